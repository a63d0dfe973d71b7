"""The job's secret, by which its ranks recognise one another.

An actor makes it, and the other processes ask that actor for it. So it travels only as a method's return value, which
Ray shows to nobody. Never put it into an argument, a name, a runtime environment or a log: Ray's dashboard shows those.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

VARIABLE = "HOROVOD_SECRET_KEY"


class JobSecret:
    """An actor that makes a job's secret and keeps it for the job's processes."""

    def __init__(self) -> None:
        self._key = secrets.token_hex(32)

    def secret_key(self) -> str:
        """The secret, for another process of the job."""
        return self._key

    @staticmethod
    def start() -> Any:
        """Start the actor, which takes no resources. Pass its handle to the job's processes, for :func:`adopt`."""
        import ray

        return ray.remote(JobSecret).options(num_cpus=0).remote()


def adopt(keeper: Any) -> str:
    """Ask ``keeper`` for the job's secret, make it this process's, and return it.

    ``keeper`` is the handle of an actor with a method ``secret_key``, such as :class:`JobSecret`.
    """
    import ray

    key: str = ray.get(keeper.secret_key.remote())
    os.environ[VARIABLE] = key
    return key


def own() -> str:
    """This process's secret; a new one if it has none."""
    return os.environ.setdefault(VARIABLE, secrets.token_hex(32))
