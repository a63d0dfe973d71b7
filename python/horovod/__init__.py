"""Horovod's Python interface on gorovod's engine.

Training scripts import a front end: ``import horovod.torch as hvd``.
"""

from horovod._version import __version__ as __version__
from horovod.runner import run as run


def _warn_of_upstream() -> None:
    import warnings

    from horovod._upstream import conflict

    problem = conflict()
    if problem is not None:
        warnings.warn(problem, stacklevel=3)


_warn_of_upstream()
