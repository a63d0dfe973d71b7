"""hvd.metrics(): what this process has counted."""

import os
import re

import pytest
import torch
from definitions import rejoin

import horovod.torch as hvd
from horovod.common._summary import sentence


def count(figures, kind, **labels):
    """The number of ``kind`` with these labels."""
    return sum(f["count"] for f in figures[kind] if labels.items() <= f.items())


def test_counts_what_was_submitted(job):
    rejoin()
    for _ in range(5):
        hvd.allreduce(torch.ones(1000), name="gradient")
    hvd.allreduce(torch.ones(2, dtype=torch.int64), name="steps")
    hvd.broadcast(torch.ones(40000, dtype=torch.float64), 0, name="weights")
    figures = hvd.metrics()
    assert (figures["rank"], figures["size"]) == (hvd.rank(), hvd.size())
    assert count(figures, "tensors", op="allreduce", dtype="float32", process_set="0") == 5
    assert count(figures, "tensors", op="allreduce", dtype="int64") == 1
    assert count(figures, "tensors", op="broadcast", dtype="float64") == 1
    assert count(figures, "collectives", op="allreduce", size_class="32KiB") == 5
    assert count(figures, "collectives", op="broadcast", size_class="1MiB") == 1
    gradients = next(c for c in figures["collectives"] if (c["op"], c["size_class"]) == ("allreduce", "32KiB"))
    assert gradients["bytes"] == 5 * 4000 and gradients["seconds"] > 0
    assert gradients["bus_bytes"] == 5 * (4000 * 2 * (hvd.size() - 1) // hvd.size())
    assert hvd.size() == 1 or sum(w["bytes"] for w in figures["wire"] if w["size_class"] == "32KiB") > 0
    assert all(w["link"] in ("shm", "tcp", "mpi") and w["seconds"] > 0 for w in figures["wire"])
    for histogram in [figures["negotiation"], *figures["collectives"]]:
        assert sum(histogram["buckets"]) == histogram["count"]
        assert len(histogram["buckets"]) == len(figures["bucket_bounds"]) + 1
    assert figures["negotiation"]["count"] >= 7
    assert figures["cache"]["hits"] + figures["cache"]["misses"] >= 7
    assert figures["pending"] == 0


def test_counts_steps_and_samples(job):
    rejoin()
    steps = 20
    for _ in range(steps):
        for name, size in (("small", 10), ("gradient", 5000), ("bias", 10)):
            hvd.allreduce(torch.ones(size), name=name)
        hvd.allreduce(torch.ones(100000))  # a name of its own each time
        hvd.count_samples(32)
    figures = hvd.metrics()
    assert figures["samples"] == 32 * steps
    assert steps - 4 <= figures["steps"]["count"] < steps  # a name is known when it comes again
    assert sum(figures["steps"]["buckets"]) == figures["steps"]["count"]
    assert 0 < figures["steps"]["seconds"]
    with pytest.raises(ValueError, match="-1"):
        hvd.count_samples(-1)


def test_the_short_form_is_a_sentence(job):
    rejoin()
    for _ in range(3):
        hvd.allreduce(torch.ones(1000), name="gradient")
    hvd.count_samples(96)
    text = hvd.metrics(short=True)
    time = r"[\d.]+ (µs|ms|s)"
    begin = rf"rank {hvd.rank()} of {hvd.size()}: 3 collectives \(12 kB of tensors\) in {time}; "
    assert re.match(begin + rf"(\d steps of {time}; )?96 samples; waited {time} for other ranks", text), text
    assert hvd.metrics(short=False)["samples"] == 96


def test_what_the_short_form_says():
    figures = {
        "rank": 1,
        "size": 4,
        "collectives": [{"count": 2, "bytes": 5e9, "seconds": 2.5}, {"count": 1, "bytes": 0, "seconds": 0.5}],
        "steps": {"count": 4, "seconds": 0.5},
        "samples": 0,
        "wait_seconds": 0.25,
        "waited_for": [{"rank": 3, "seconds": 0.01}, {"rank": 2, "seconds": 0.2}],
        "pending": 2,
        "oldest_pending_seconds": 61.2,
        "nans": 1,
    }
    assert sentence(figures) == (
        "rank 1 of 4: 3 collectives (5 GB of tensors) in 3.0 s; 4 steps of 125 ms; waited 250 ms for other ranks, "
        "most for rank 2 (200 ms); 2 pending, the oldest for 61.2 s; 1 tensors with a NaN or an infinity"
    )


def test_needs_a_job(job):
    hvd.shutdown()
    with pytest.raises(ValueError, match="init"):
        hvd.metrics()
    with pytest.raises(ValueError, match="init"):
        hvd.count_samples(1)
    hvd.init()


def test_a_forked_child_has_none(job):
    child = os.fork()
    if child == 0:
        try:
            hvd.metrics()
        except ValueError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
