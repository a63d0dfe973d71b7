"""Checks of a user's arguments, before anything starts."""

from __future__ import annotations

import math
import numbers
import operator
import sys
from typing import Any, Mapping

from horovod.ray import _translation
from horovod.ray._settings import MiniSettings


def whole(name: str, value: Any) -> int:
    """``value`` as a whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: a whole number is needed") from None


def positive(name: str, value: Any, least: int = 1) -> int:
    """``value`` as a whole number of at least ``least``."""
    count = whole(name, value)
    if count < least:
        raise ValueError(f"{name}={count}: at least {least} is needed")
    return count


def number(name: str, value: Any) -> None:
    """Raise unless ``value`` is a number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={value!r}: a number is needed")


def amount(name: str, value: Any, least: float = 0, most: float = sys.float_info.max) -> None:
    """Raise unless ``value`` is a number from ``least`` to ``most``."""
    number(name, value)
    if not least <= value <= most:
        upto = "on" if most >= sys.float_info.max else f"to {most:g}"
        raise ValueError(f"{name}={value!r}: a number from {least:g} {upto} is needed")


def cooldown_range(value: Any) -> None:
    """Raise unless ``value`` is None, or two numbers of seconds."""
    if value is None:
        return
    needed = f"cooldown_range={value!r}: two numbers above 0 are needed, the lesser first"
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, numbers.Real) for v in value):
        raise TypeError(needed)
    if not (len(value) == 2 and 0 < value[0] <= value[1]):
        raise ValueError(needed)


def settings(value: Any) -> MiniSettings:
    """Settings, checked, as those of a job on Ray; the defaults for None."""
    if value is None:
        return MiniSettings()
    if not hasattr(value, "nics"):
        raise TypeError(f"settings={value!r}: RayExecutor.create_settings() makes the settings of a job")
    made = _translation.of(value)
    amount("settings.timeout_s", made.timeout_s)
    amount("settings.placement_group_timeout_s", made.placement_group_timeout_s, most=math.inf)
    whole("settings.verbose", made.verbose)
    if isinstance(made.nics, str):
        made.nics = [made.nics]
    names("settings.nics", made.nics)
    return made


def names(name: str, value: Any) -> None:
    """Raise unless ``value`` is None, or names of network interfaces."""
    if value is not None and not all(isinstance(nic, str) for nic in _listed(name, value)):
        raise TypeError(f"{name}={value!r}: names of network interfaces are needed")


def hosts(value: Any) -> dict[str, int]:
    """The hosts that a discovery has found, checked: the number of slots by host."""
    if not isinstance(value, Mapping) or not all(isinstance(host, str) for host in value):
        raise TypeError(f"find_available_hosts_and_slots() returned {value!r}: a dict of hosts and slots is needed")
    return {host: positive(f"the slots of host {host}", slots, least=0) for host, slots in value.items()}


def callbacks(value: Any) -> None:
    """Raise unless ``value`` is None, or a list of functions."""
    for callback in () if value is None else _listed("callbacks", value):
        if not callable(callback):
            raise TypeError(f"callbacks has {callback!r}, which cannot be called: functions of one argument are needed")


def _listed(name: str, value: Any) -> Any:
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name}={value!r}: a list is needed")
    return value
