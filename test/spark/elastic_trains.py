"""What the elastic tests train: a state whose every commit can be checked."""

import json
import os
import time


def trains(steps, folder, every=0.02, enough=None):
    """Add up the numbers of ``steps`` steps, or of fewer if the file ``enough`` is there.

    What the worker does is in its journal, ``folder/worker.N``: one entry in JSON for each phase.
    """
    import torch

    import horovod.torch as hvd

    number = os.environ["GOROVOD_ELASTIC_WORKER"]
    journal = open(os.path.join(folder, f"worker.{number}"), "a", buffering=1)

    def note(phase, **more):
        journal.write(json.dumps({"at": time.time(), "phase": phase, "pid": os.getpid(), **more}) + "\n")

    note("init")
    hvd.init()

    @hvd.elastic.run
    def train(state):
        note("train", step=state.step, size=hvd.size(), rank=hvd.rank())
        while state.step < steps:
            stop = float(enough is not None and hvd.rank() == 0 and os.path.exists(enough))
            total = hvd.allreduce(torch.tensor([1.0, stop]), op=hvd.Sum, name="step").tolist()
            assert total[0] == hvd.size()
            if total[1]:
                break
            state.step += 1
            state.total += 1.0 * state.step
            time.sleep(every)
            note("commit", step=state.step, rank=hvd.rank(), size=hvd.size())
            state.commit()
            note("committed", step=state.step)
        return {"step": state.step, "total": state.total, "rank": hvd.rank(), "size": hvd.size(), "pid": os.getpid()}

    return train(hvd.elastic.TorchState(step=0, total=0.0))


def journals(folder):
    """All entries, by worker."""
    found = {}
    for name in os.listdir(folder):
        if name.startswith("worker."):
            with open(os.path.join(folder, name)) as file:
                found[int(name.partition(".")[2])] = [json.loads(line) for line in file if line.endswith("\n")]
    return found


def check_commits(folder, results):
    """No commit is lost: a worker that trains again never begins before its newest commit."""
    for worker, entries in journals(folder).items():
        highest = 0
        for e in entries:
            if e["phase"] == "committed":
                assert e["step"] > highest, (worker, e)
                highest = e["step"]
            elif e["phase"] == "train":
                assert e["step"] >= highest, (worker, e, highest)
    assert results
    for result in results:
        assert result["total"] == result["step"] * (result["step"] + 1) / 2, results
        assert result["step"] == results[0]["step"], results
