"""Horovod's Python interface on gorovod's engine.

Training scripts import a front end: ``import horovod.torch as hvd``.
"""

from typing import NoReturn

from horovod._version import __version__ as __version__
from horovod.runner import run as run


def _warn_of_upstream() -> None:
    import warnings

    from horovod._upstream import problem

    found = problem()
    if found is not None:
        warnings.warn(found, stacklevel=3)


_warn_of_upstream()

_FRONT_ENDS = ("torch", "tensorflow", "keras", "jax", "spark", "ray")


def __getattr__(name: str) -> NoReturn:
    """Say where the functions are: in the front ends, which programs import."""
    text = f"module 'horovod' has no attribute '{name}'"
    if name in _FRONT_ENDS:
        text += f": import it first, with `import horovod.{name}`"
    elif not name.startswith("_"):
        text += ": import a front end, for instance with `import horovod.torch as hvd`, and call "
        text += f"hvd.init() and the other functions there, not horovod.{name}"
    raise AttributeError(text)
