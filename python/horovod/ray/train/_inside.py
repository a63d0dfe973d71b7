"""Uses of Ray Train's names that Ray does not promise to keep, because its public names cannot do this.

- The callbacks see a wait for room, and workers before their first task: ``ray.train.UserCallback`` sees reports only.
- ``resume_from_checkpoint`` sets what ``ray.train.get_checkpoint()`` returns.
"""

from typing import Any

from horovod.ray import _require

try:
    from ray.train.v2._internal.constants import (
        DEFAULT_WORKER_GROUP_START_TIMEOUT_S,
        WORKER_GROUP_START_TIMEOUT_S_ENV_VAR,
    )
    from ray.train.v2._internal.execution.callback import ControllerCallback, WorkerGroupCallback
    from ray.train.v2._internal.execution.context import get_train_context
    from ray.train.v2._internal.execution.train_fn_utils import LocalTrainFnUtils, get_train_fn_utils
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
except ImportError as e:
    if not (e.name or "").startswith("ray."):  # a package that Ray Train requires is missing
        raise
    raise _require.inside(e) from e

__all__ = [
    "DEFAULT_WORKER_GROUP_START_TIMEOUT_S",
    "WORKER_GROUP_START_TIMEOUT_S_ENV_VAR",
    "ControllerCallback",
    "DataParallelTrainer",
    "WorkerGroupCallback",
    "offer_checkpoint",
]


def offer_checkpoint(checkpoint: Any) -> None:
    """Make ``ray.train.get_checkpoint()`` return it in this worker."""
    utils = get_train_fn_utils()
    if isinstance(utils, LocalTrainFnUtils):  # the run has no workers
        holder, name = utils, "_last_checkpoint"
    else:
        holder, name = get_train_context(), "checkpoint"
    if not hasattr(holder, name):
        raise _require.inside(AttributeError(f"{type(holder).__name__}.{name}"))
    setattr(holder, name, checkpoint)
