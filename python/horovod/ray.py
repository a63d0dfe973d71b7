"""Horovod on Ray, which gorovod does not have yet: the import says so."""

from horovod import _not_yet

raise _not_yet.error(__name__, "Ray", "ray")
