"""Which set a ProcessSet stands for after an elastic job has changed its size. Needs no job."""

import horovod.torch  # noqa: F401  binds the library
from horovod.common import process_sets
from horovod.common.process_sets import ProcessSet


class Basics:
    """The engine's sets by their ids, as it tells them after init."""

    def __init__(self, known):
        self.known = known

    def _get_process_set_ids_and_ranks(self):
        return dict(self.known)


def test_a_set_may_become_the_world(monkeypatch):
    monkeypatch.setattr(process_sets, "_added", set())
    monkeypatch.setattr(process_sets.global_process_set, "ranks", None)
    both, upper = ProcessSet([0, 1]), ProcessSet([1, 2])
    process_sets._rebind_process_sets(Basics({0: [0, 1, 2], 1: [0, 1], 2: [1, 2]}), [both, upper])
    assert (both.process_set_id, upper.process_set_id) == (1, 2)
    process_sets._rebind_process_sets(Basics({0: [0, 1], 1: [1]}), [])
    assert (both.process_set_id, upper.process_set_id) == (0, 1)
    assert both.ranks == [0, 1] and upper.ranks == [1]
