"""torchft's own tests of process groups, over gorovod's.

Its test classes make their groups in one place, which the classes here replace. Their ranks are threads of one process,
so the groups are those whose engine is in a child process. ProcessGroupGorovod has its engine in the process itself,
and is tested alone, and with processes for ranks (torchft_replicas.py).
"""

import doctest
from datetime import timedelta

import pytest
import torch
from parameterized import parameterized
from torchft import process_group_test as theirs

import horovod.torch.torchft
from horovod.torch.torchft import ProcessGroupBabyGorovod, ProcessGroupGorovod


class OverGorovod:
    @classmethod
    def _create_pg(cls, _):
        return ProcessGroupBabyGorovod(timeout=timedelta(seconds=60))


class TestBabyGorovod(OverGorovod, theirs.BabyGlooMultiPgTest):
    """The collectives that torchft tries with Gloo, in one group, and with a rank that leaves."""


class TestMoreThanGloo(OverGorovod, theirs.MultiPgBaseTest):
    """The collectives that Gloo does not have."""

    WORLD_SIZE = 3

    @parameterized.expand(theirs.BabyGlooMultiPgTest.SKIP)
    def test_collective(self, collective):
        self._run_parallel(collective, device="cpu")


@pytest.fixture
def store():
    return theirs.TCPStore(host_name="localhost", port=0, is_master=True, wait_for_workers=False)


@pytest.mark.parametrize("make", [ProcessGroupGorovod, ProcessGroupBabyGorovod])
def test_apis(store, make):
    group = make()
    group.configure(f"localhost:{store.port}/prefix", "0", 0, 1)
    assert group.size() == 1
    theirs._test_pg(group, torch.tensor([2]))
    group.shutdown()


def test_examples():
    found = doctest.testmod(horovod.torch.torchft, extraglobs={"torch": torch})
    assert found.attempted > 0 and found.failed == 0


def test_reconfigured(store):
    """One object, several worlds, as a Manager uses it."""
    group = ProcessGroupGorovod()
    for quorum in range(3):
        group.configure(f"localhost:{store.port}/quorum/{quorum}", "0", 0, 1)
        theirs._test_pg(group, torch.tensor([2.0]))
    group.abort()
    assert group.errored() is None
    group.shutdown()


def test_a_child_that_starts_slowly(store):
    """The timeout is for operations: a process that imports PyTorch may take longer. configure leaves it as it was."""
    group = ProcessGroupBabyGorovod(timeout=0.5)
    group.configure(f"localhost:{store.port}/prefix", "0", 0, 1)
    assert group.size() == 1
    assert group._timeout == 0.5
    group.shutdown()


def test_ranks_that_do_not_meet(store, monkeypatch):
    monkeypatch.setattr(horovod.torch.torchft, "_CHILD_START_S", 2.0)
    group = ProcessGroupBabyGorovod(timeout=1.0)
    with pytest.raises(TimeoutError, match="rank 0 of 2: .* within 2 s: see what the other ranks say"):
        group.configure(f"localhost:{store.port}/prefix", "0", 0, 2)
    group.shutdown()
