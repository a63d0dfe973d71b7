"""The timeline: a JSON file of what happened to each tensor, by rank 0."""

import json
import tempfile
import time
from pathlib import Path

import pytest
import torch
from definitions import rejoin, several, works

import horovod.torch as hvd


@pytest.fixture
def folder(job):
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def again(job, monkeypatch):
    """Joins the job anew with HOROVOD_TIMELINE as given; afterwards the job is as before."""

    def init(timeline, mark_cycles="0"):
        monkeypatch.setenv("HOROVOD_TIMELINE", str(timeline))
        monkeypatch.setenv("HOROVOD_TIMELINE_MARK_CYCLES", mark_cycles)
        rejoin()

    yield init
    monkeypatch.delenv("HOROVOD_TIMELINE")
    monkeypatch.delenv("HOROVOD_TIMELINE_MARK_CYCLES")
    rejoin()


class Trace:
    """A timeline as a strict reader sees it."""

    def __init__(self, path):
        self.records = json.loads(path.read_text())
        names = [r for r in self.records if r["ph"] == "M" and r["name"] == "process_name"]
        self.tensors = {r["args"]["name"]: r["pid"] for r in names if "name" in r["args"]}
        assert names[0]["pid"] == 0 and "start_time_since_epoch_in_micros" in names[0]["args"]

    def phases(self, tensor):
        """The depth and name of each phase, in order. Checks that each phase ends."""
        open_, found = [], []
        for r in self.records:
            if r.get("pid") != self.tensors[tensor]:
                continue
            if r["ph"] == "B":
                found.append((len(open_), r["name"]))
                open_.append(r["name"])
            elif r["ph"] == "E":
                open_.pop()
        assert open_ == []
        return found

    def arrivals(self, tensor):
        """For each negotiation, the ranks in the order in which they were ready. The last one may be in progress."""
        found = []
        for r in self.records:
            if r.get("pid") == self.tensors.get(tensor):
                if r["ph"] == "B" and r["name"].startswith("NEGOTIATE_"):
                    found.append([])
                elif r["ph"] == "X":
                    found[-1].append(int(r["name"]))
        return found

    def cycles(self):
        return sum(r["ph"] == "i" and r["name"] == "CYCLE_START" for r in self.records)


def one_of_each():
    n = hvd.size()
    hvd.allreduce(torch.ones(4), name="tl")
    hvd.allgather(torch.ones(4), name="tl")
    hvd.broadcast(torch.ones(4), 0, name="tl")
    hvd.alltoall(torch.ones(n), name="tl")
    hvd.reducescatter(torch.ones(n), name="tl")
    hvd.allreduce(torch.ones(4), name="ada", op=hvd.Adasum)
    for _ in range(3):  # once it is cached, a group becomes ready in one step, and so is fused
        hvd.grouped_allreduce([torch.ones(4), torch.ones(5)], name="tl")
        hvd.grouped_allreduce([torch.ones(4), torch.ones(5)], name="ada", op=hvd.Adasum)


def has_one_of_each(path, size):
    trace = Trace(path)
    for tensor, op in {
        "allreduce.tl": "ALLREDUCE",
        "allgather.tl": "ALLGATHER",
        "broadcast.tl": "BROADCAST",
        "alltoall.tl": "ALLTOALL",
        "reducescatter.tl": "REDUCESCATTER",
        "allreduce.ada": "ADASUM",
        "grouped_allreduce.tl_1of2": "ALLREDUCE",
        "grouped_allreduce.tl_2of2": "ALLREDUCE",
    }.items():
        phases = trace.phases(tensor)
        assert (0, f"NEGOTIATE_{op}") in phases
        assert (0, op) in phases
        assert phases.index((0, f"NEGOTIATE_{op}")) < phases.index((0, op))
    fused = trace.phases("grouped_allreduce.ada_1of2")
    if size > 1:  # sums of tensors in shared memory need no fusion buffer
        assert (1, "MEMCPY_IN_FUSION_BUFFER") in fused
        assert (1, "MEMCPY_OUT_FUSION_BUFFER") in fused
    return trace


def test_file_from_init(again, folder, monkeypatch):
    path = folder / "timeline.json"
    again(path)
    rank, size = hvd.rank(), hvd.size()
    one_of_each()
    hvd.barrier()
    hvd.shutdown()
    if rank == 0:
        assert has_one_of_each(path, size).cycles() == 0
    else:
        assert not path.exists()
    monkeypatch.setenv("HOROVOD_TIMELINE_MARK_CYCLES", "1")
    hvd.init()
    one_of_each()
    hvd.barrier()
    hvd.shutdown()
    if rank == 0:
        assert has_one_of_each(path, size).cycles() > 0
    hvd.init()


def test_start_and_stop(again, folder):
    again("DYNAMIC")
    for mark in (False, True):
        path = folder / f"timeline.{mark}.json"
        hvd.allreduce(torch.ones(2), name="before")
        hvd.barrier()
        hvd.start_timeline(str(path), mark_cycles=mark)
        hvd.barrier()
        one_of_each()
        hvd.barrier()
        hvd.stop_timeline()
        hvd.barrier()
        hvd.allreduce(torch.ones(2), name="after")
        if hvd.rank() == 0:
            trace = has_one_of_each(path, hvd.size())
            assert "allreduce.before" not in trace.tensors
            assert "allreduce.after" not in trace.tensors
            assert bool(trace.cycles()) == mark
        else:
            assert not path.exists()
    hvd.stop_timeline()  # nothing is running: no error
    works()


@several()
def test_arrivals_of_cached_tensors(again, folder):
    """Each rank is marked when it is ready, also while rank 0 computes, each time."""
    again("DYNAMIC")
    path, rounds = folder / "timeline.json", 5
    for _ in range(3):
        hvd.allreduce(torch.ones(2), name="cached")
    hvd.barrier()
    hvd.start_timeline(str(path))
    hvd.barrier()
    others = set(range(1, hvd.size()))
    for done in range(rounds):
        deadline = time.monotonic() + 30
        while hvd.rank() == 0:
            seen = Trace(path).arrivals("allreduce.cached")
            if len(seen) > done and set(seen[done]) == others:
                break
            assert time.monotonic() < deadline, seen
            time.sleep(0.01)
        hvd.allreduce(torch.ones(2), name="cached")
    hvd.barrier()
    hvd.stop_timeline()
    if hvd.rank() == 0:
        seen = Trace(path).arrivals("allreduce.cached")
        assert [sorted(ranks) for ranks in seen] == [list(range(hvd.size()))] * rounds, seen
        assert all(ranks[-1] == 0 for ranks in seen), seen
    works()


def test_path_objects(again, folder):
    again("DYNAMIC")
    hvd.start_timeline(folder / "timeline.json")
    works()
    hvd.stop_timeline()
    if hvd.rank() == 0:
        Trace(folder / "timeline.json")


def test_the_file_is_valid_while_it_is_written(again, folder):
    again("DYNAMIC")
    path = folder / "timeline.json"
    hvd.start_timeline(str(path))
    for i in range(20):
        hvd.allreduce(torch.ones(3), name=f"while.{i}")
        if hvd.rank() == 0:
            json.loads(path.read_text())
    hvd.stop_timeline()


def test_errors(again, folder):
    with pytest.raises(ValueError, match="HOROVOD_TIMELINE=DYNAMIC"):
        hvd.start_timeline(str(folder / "timeline.json"))
    hvd.stop_timeline()
    again("DYNAMIC")
    if hvd.rank() == 0:
        with pytest.raises(OSError, match="no-such-folder"):
            hvd.start_timeline(str(folder / "no-such-folder" / "timeline.json"))
    works()
