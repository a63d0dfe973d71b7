"""The rank and size that a launcher wrote into the environment."""

from __future__ import annotations

import os

# In order of preference: horovodrun, Open MPI, and launchers that speak PMI (MPICH, Slurm).
_RANK_AND_SIZE = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def get_env_rank_and_size() -> tuple[int, int]:
    """Read this process's rank and size from the environment, without initialising Horovod.

    Returns:
        ``(rank, size)``; ``(0, 1)`` outside of any job.

    Raises:
        RuntimeError: the environment has only one variable of a pair, such as ``HOROVOD_RANK`` without
            ``HOROVOD_SIZE``.

    Example:
        >>> from horovod.runner.common.util.env import get_env_rank_and_size
        >>> get_env_rank_and_size()
        (0, 1)
    """
    for rank_name, size_name in _RANK_AND_SIZE:
        rank, size = os.environ.get(rank_name), os.environ.get(size_name)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            raise RuntimeError(
                f"Could not determine process rank and size: only one of {rank_name} and {size_name} "
                "found in environment"
            )
    return 0, 1
