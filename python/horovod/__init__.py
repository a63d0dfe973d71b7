"""Horovod's Python interface on gorovod's engine.

Training scripts import a front end: ``import horovod.torch as hvd``.
"""

from horovod.runner import run as run

# The Horovod release whose interface this is, then gorovod's own version.
__version__ = "0.28.1+gorovod.0.1.0"


def _warn_of_upstream() -> None:
    import warnings

    from horovod._upstream import conflict

    problem = conflict()
    if problem is not None:
        warnings.warn(problem, stacklevel=3)


_warn_of_upstream()
