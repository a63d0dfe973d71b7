"""Decides which package of Lightning a training uses: ``lightning.pytorch`` and ``pytorch_lightning`` have separate
classes.

Classes derived from Lightning's are written without a base, and get the base once the package is known.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Optional

Open: Any = object
"""In place of a class of Lightning: :func:`derive` puts it below."""

MIN_PL_VERSION = "2.0.0"
"""The oldest Lightning that works."""

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def of(model: Any) -> Optional[Any]:
    """The package of the model's LightningModule; None if the model is another module.

    Raises:
        ImportError: the package is too old.
    """
    known = [sys.modules[name] for name in _NAMES if name in sys.modules]
    return next((_checked(package) for package in known if isinstance(model, package.LightningModule)), None)


def preferred() -> Any:
    """The package to use if the model does not decide.

    Raises:
        ImportError: no package is installed, or it is too old.
    """
    for name in _NAMES:
        try:
            package = importlib.import_module(name)
        except ModuleNotFoundError as e:
            if not name.startswith(str(e.name)):
                raise
            continue
        return _checked(package)
    raise ImportError("horovod.spark.lightning needs Lightning: pip install pytorch-lightning")


def _checked(package: Any) -> Any:
    if int(package.__version__.split(".")[0]) < int(MIN_PL_VERSION.split(".")[0]):
        raise ImportError(
            f"horovod.spark.lightning needs Lightning {MIN_PL_VERSION} or later; {package.__name__} is "
            f"{package.__version__}"
        )
    return package


def derive(cls: type, base: Any) -> Any:
    """The class on top of a class of Lightning."""
    return type(cls.__name__.lstrip("_"), (cls, base), {"__doc__": cls.__doc__, "__module__": cls.__module__})
