"""A rank's questions about its task of Spark."""

from __future__ import annotations

from typing import Optional

__all__ = ["get_available_devices"]

own_devices: Optional[list[str]] = None
"""The GPUs of this rank; None in a process that is none."""


def get_available_devices() -> list[str]:
    """The GPUs that Spark has given to the task of this rank.

    Returns:
        Their numbers among the GPUs that ``CUDA_VISIBLE_DEVICES`` shows to this process; the first is that of
        ``hvd.local_rank()``. The list is empty if Spark gives no GPUs (``spark.task.resource.gpu.amount``), or if
        ``HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX`` is 1.

    Raises:
        RuntimeError: this process is not a rank of ``horovod.spark``.

    Example:
        >>> from horovod.spark.task import get_available_devices
        >>> def first_device():  # in a function that horovod.spark.run calls
        ...     return get_available_devices()[0]
    """
    if own_devices is None:
        raise RuntimeError("get_available_devices is for functions that horovod.spark.run calls")
    return list(own_devices)
