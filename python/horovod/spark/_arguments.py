"""The arguments of ``run`` and ``run_elastic``, checked before anything starts."""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

import cloudpickle

from horovod.runner import _unpicklable

_START_TIMEOUT = "HOROVOD_SPARK_START_TIMEOUT"
_ELASTIC_TIMEOUT = "HOROVOD_ELASTIC_TIMEOUT"
_DEFAULT_START_TIMEOUT_S = 600.0


def pickled(fn: Callable[..., Any], args: Sequence[Any], kwargs: Optional[Mapping[str, Any]]) -> bytes:
    """The pickled function with its arguments. Raises TypeError, which says what is wrong with it."""
    if not callable(fn):
        raise TypeError(f"horovod.spark calls a function in each process, but {fn!r} is not callable")
    if isinstance(args, (str, bytes)) or not isinstance(args, Iterable):
        raise TypeError(f"args={args!r}: a tuple of arguments is needed")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs={kwargs!r}: a dict of arguments is needed")
    for name in kwargs or {}:
        if not isinstance(name, str):
            raise TypeError(f"kwargs has the key {name!r}: names of arguments are text")
    call = (fn, tuple(args), dict(kwargs or {}))
    try:
        return bytes(cloudpickle.dumps(call))
    except Exception as error:
        raise TypeError(
            f"{name_of(fn)} cannot be sent to Spark's tasks: {_unpicklable.culprit(call, error)}. Make it inside the "
            "function, in the task, or pass what it is made from."
        ) from error


def name_of(fn: Callable[..., Any]) -> str:
    """The function's name."""
    return str(getattr(fn, "__name__", type(fn).__name__))


def whole(name: str, value: Any, least: int = 1) -> int:
    """The number. It must be whole and at least ``least``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: a whole number is needed")
    if number < least:
        raise ValueError(f"{name}={number}: at least {least} is needed")
    return number


def is_silent(verbose: Any) -> bool:
    """Whether ``verbose``, a whole number or a bool, means silence."""
    if not isinstance(verbose, int):
        raise TypeError(f"verbose={verbose!r}: a whole number is needed, such as 0 or 1")
    return verbose < 1


def interpreter(executable: Optional[str]) -> Optional[str]:
    """The Python of the processes, as a path or a name; None for that of Spark's tasks."""
    if executable is not None and not isinstance(executable, (str, os.PathLike)):
        raise TypeError(f"executable={executable!r}: the path of a Python is needed")
    return os.fspath(executable) if executable else None


def start_limit(asked: Optional[float]) -> float:
    """Seconds until all processes must have started."""
    return _limit("start_timeout", asked, _START_TIMEOUT)


def elastic_limit(asked: Optional[float]) -> float:
    """Seconds for each wait of an elastic job for processes."""
    return _limit("elastic_timeout", asked, _ELASTIC_TIMEOUT)


def _limit(name: str, asked: Optional[float], variable: str) -> float:
    """The caller's seconds, or those in the environment's ``variable``."""
    value: Any = asked
    if asked is None:
        name, value = variable, os.environ.get(variable) or _DEFAULT_START_TIMEOUT_S
    try:
        limit = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={value!r}: a number of seconds is needed") from None
    if not limit > 0:
        raise ValueError(f"{name}={limit:g}: a time above 0 seconds is needed")
    if math.isinf(limit):
        raise ValueError(f"{name}={limit:g}: a finite number of seconds is needed")
    return limit


def variables(env: Optional[Mapping[str, str]]) -> dict[str, str]:
    """The user's variables, as text."""
    if env is not None and not isinstance(env, Mapping):
        raise TypeError(f"env={env!r}: a dict of variables is needed")
    for name, value in (env or {}).items():
        if value is None:
            raise TypeError(f"env has None for {name}: a variable is text. Leave it out, or give it the empty text")
        if not str(name) or set("=\0") & set(str(name)) or "\0" in str(value):
            raise ValueError(f"env has {name!r}: {value!r}, which no environment can have")
    return {str(name): str(value) for name, value in (env or {}).items()}


def interfaces(nics: Optional[Sequence[str]]) -> list[str]:
    """The names of network interfaces. A text is one name."""
    names = [nics] if isinstance(nics, str) else nics or ()
    if not isinstance(names, Iterable) or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"nics={nics!r}: names of network interfaces are needed, such as ['eth0']")
    return list(names)
