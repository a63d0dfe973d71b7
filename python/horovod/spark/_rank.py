"""The first steps of a rank's process: it takes its place in the job, then calls the user's function."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any, Mapping, Sequence

from horovod.spark import task


def work(path: Sequence[str], variables: Mapping[str, str], devices: Sequence[str], function: bytes) -> bytes:
    """The task for ``horovod.runner.run_task``.

    The variables include the job's secret, so they travel through a pipe, which no list of processes shows.

    Args:
        path: where the driver finds modules.
        variables: of the rank.
        devices: the GPUs of the rank.
        function: the user's, with its arguments, pickled.
    """
    call = pickle.dumps((enter, (dict(variables), list(devices), function), {}))
    return pickle.dumps((list(path), call))


def enter(variables: Mapping[str, str], devices: Sequence[str], function: bytes) -> Any:
    """Call the function as a rank."""
    import cloudpickle

    os.environ.update(variables)
    task.own_devices = list(devices)
    try:
        fn, args, kwargs = cloudpickle.loads(function)
    except Exception as error:
        raise RuntimeError(
            f"{sys.executable} with cloudpickle {cloudpickle.__version__} cannot load the function that the driver has "
            f"sent: {type(error).__name__}: {error}. Install the driver's packages there, or name the Python that has "
            "them by PYSPARK_PYTHON."
        ) from error
    return fn(*args, **kwargs)
