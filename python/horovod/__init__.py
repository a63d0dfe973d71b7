"""Horovod's Python interface on gorovod's engine.

Training scripts import a front end: ``import horovod.torch as hvd``.
"""

from horovod._version import __version__ as __version__
from horovod.runner import run as run


def _warn_of_upstream() -> None:
    import warnings

    from horovod._upstream import problem

    found = problem()
    if found is not None:
        warnings.warn(found, stacklevel=3)


_warn_of_upstream()
