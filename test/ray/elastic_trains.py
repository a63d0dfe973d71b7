"""What the elastic tests train: a state whose every commit can be checked."""

import json
import os
import time


def trains(steps, folder, every=0.02, die=None, enough=None):
    """Add up the numbers of ``steps`` steps, or of fewer if ``enough()`` on rank 0.

    What the worker does is in its journal, ``folder/worker.N``: one entry in JSON for each phase. ``die(number, step)``
    is called before each commit.
    """
    import torch

    import horovod.torch as hvd
    from horovod.ray import ray_logger

    number = os.environ["GOROVOD_ELASTIC_WORKER"]
    journal = open(os.path.join(folder, f"worker.{number}"), "a", buffering=1)

    def note(phase, **more):
        journal.write(json.dumps({"at": time.time(), "phase": phase, "pid": os.getpid(), **more}) + "\n")

    note("init")
    hvd.init()
    held = torch.full((8,), float(os.getpid()))  # of this process: it must live on in a survivor

    @hvd.elastic.run
    def train(state):
        note("train", step=state.step, size=hvd.size(), rank=hvd.rank())
        while state.step < steps:
            stop = float(enough is not None and hvd.rank() == 0 and enough())
            total = hvd.allreduce(torch.tensor([1.0, stop]), op=hvd.Sum, name="step").tolist()
            assert total[0] == hvd.size()
            if total[1]:
                break
            state.step += 1
            state.total += 1.0 * state.step
            time.sleep(every)
            note("commit", step=state.step, total=state.total, rank=hvd.rank(), size=hvd.size())
            if die is not None:
                die(number, state.step)
            state.commit()
            note("committed", step=state.step)
            if hvd.rank() == 0 and state.step % 10 == 0:
                ray_logger.log({"step": state.step, "size": hvd.size()})
        assert held.tolist() == [float(os.getpid())] * 8
        return {"step": state.step, "total": state.total, "worker": int(number), "rank": hvd.rank(), "pid": os.getpid()}

    state = hvd.elastic.TorchState(step=0, total=0.0)
    return train(state)


def journals(folder):
    """All entries, by worker."""
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name)) as file:
            found[int(name.partition(".")[2])] = [json.loads(line) for line in file if line.endswith("\n")]
    return found


def check_commits(folder, result, steps):
    """No commit is lost: a worker that trains again never begins before its newest commit."""
    for worker, entries in journals(folder).items():
        highest = 0
        for e in entries:
            if e["phase"] == "committed":
                assert e["step"] > highest, (worker, e)
                highest = e["step"]
            elif e["phase"] == "train":
                assert e["step"] >= highest, (worker, e, highest)
    assert all(r["step"] == steps and r["total"] == steps * (steps + 1) / 2 for r in result), result
