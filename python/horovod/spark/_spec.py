"""What Spark's tasks need to know about a job. The driver's pickled function carries it, so it has only plain types."""

from __future__ import annotations

import platform
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import horovod


def of_job(
    kind: str,
    work: bytes,
    path: Sequence[str],
    where: Optional[Mapping[str, Any]],
    env: Mapping[str, str],
    nics: Optional[Sequence[str]] = None,
    executable: Optional[str] = None,
    start_timeout: float = 0.0,
    key: str = "",
) -> dict[str, Any]:
    """Put the description together.

    Args:
        kind: "static" or "elastic".
        work: the function with its arguments, pickled.
        path: where the driver finds modules.
        where: the addresses of the driver's hub; None if there is none.
        env: variables of the processes.
        nics: the network interfaces that the ranks may use.
        executable: the Python of the processes.
        start_timeout: seconds in which the ranks must meet.
        key: the job's secret, if the driver made it.
    """
    return {
        "kind": kind,
        "module": f"horovod.spark._{kind}_task",
        "work": work,
        "path": list(path),
        "where": where,
        "env": dict(env),
        "nics": list(nics or ()),
        "executable": executable,
        "start_timeout": start_timeout,
        "key": key,
        "horovod": horovod.__version__,
        "python": platform.python_version(),
    }


def portable(spec: Mapping[str, Any]) -> Callable[[], Iterator[bytes]]:
    """A task's function for any executor, even one without gorovod: it yields pickled rows."""

    def task() -> Iterator[bytes]:
        import importlib
        import json
        import os
        import pickle
        import platform
        import socket

        from pyspark import BarrierTaskContext, TaskContext

        trouble = ""
        try:
            package = importlib.import_module("horovod")
            there = f"horovod {package.__version__} in {os.path.dirname(str(package.__file__))}"
            if package.__version__ != spec["horovod"]:
                trouble = f"{there} (the driver has {spec['horovod']})"
            else:
                runs = importlib.import_module(spec["module"])
        except Exception as error:
            trouble = f"a Python ({platform.python_version()}) that cannot import gorovod's horovod.spark: "
            trouble += f"{type(error).__name__}: {error}"
        if not trouble:
            yield from getattr(runs, spec["kind"])(spec)
            return
        context = TaskContext.get()
        facts = {"unfit": trouble, "host": socket.gethostname(), "attempt": context.taskAttemptId()}
        if spec["kind"] == "elastic":
            raise RuntimeError(f"the executor on {facts['host']} has {trouble}")
        everyone = [json.loads(text) for text in BarrierTaskContext.get().allGather(json.dumps(facts))]
        yield pickle.dumps(("unfit", [facts for facts in everyone if "unfit" in facts]))

    # A function without a module travels by value.
    task.__module__ = "__main__"
    return task
