"""The warning that a copy of a distributed optimizer is an ordinary one, where gorovod cannot keep it distributed."""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Iterator

_KERAS = ("keras", "tf_keras")


def functions_of_keras() -> Iterator[str]:
    """The names of Keras' functions on the stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _KERAS:
            yield frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]


def warn_of_copies() -> None:
    """Called by ``get_config``. Warn if Keras asks for the configuration to make a copy, as clone_model does.

    Keras makes a copy from the names of the class and the arguments, which must not mention Horovod: a model that is
    saved with Horovod can be loaded without it. So there is no warning while a model is saved to a file.
    """
    names = set(functions_of_keras())
    copies = not names.isdisjoint(("__reduce__", "__deepcopy__"))
    saves = any("save" in name for name in names)
    if copies or ("serialize_keras_object" in names and not saves):
        _warn_once()


@functools.lru_cache(maxsize=None)
def _warn_once() -> None:
    warnings.warn(
        "Keras asks a distributed optimizer for its configuration, which does not mention Horovod. What Keras makes of "
        "it (by clone_model, deserialize, or a copy of a model) is an ordinary optimizer, which trains on this rank "
        "alone. Make a distributed one of it with hvd.DistributedOptimizer, and compile the model with that.",
        stacklevel=3,
    )
