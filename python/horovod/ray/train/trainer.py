"""``HorovodTrainer``."""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable, Optional, Union

from ray.train import Checkpoint, DataConfig, RunConfig, ScalingConfig, get_checkpoint

from horovod.ray.train._inside import DataParallelTrainer, offer_checkpoint
from horovod.ray.train.config import HorovodConfig
from horovod.ray.train.patience import Patience
from horovod.ray.train.suitability import Suitability


class HorovodTrainer(DataParallelTrainer):
    """Runs a training function on each of several workers, which are the ranks of a Horovod job.

    The function calls ``hvd.init()`` first. Everything of Ray Train works in it: ``ray.train.report()``, checkpoints,
    the shards of ``datasets``, ``ray.train.get_context()``, whose ranks are Horovod's. If a worker fails, Ray Train
    restarts all workers as often as ``RunConfig(failure_config=…)`` allows, with the newest checkpoint.

    Args:
        train_loop_per_worker: the function; it takes nothing, or ``train_loop_config``.
        train_loop_config: a dictionary for the function.
        horovod_config: settings of Horovod.
        scaling_config: how many workers, and the resources of each. With ``num_workers=(low, high)`` Ray Train starts
            as many as there is room for, and restarts all when that changes.
        run_config: name and storage of the run, its failure policy, callbacks.
        datasets: Ray Data's datasets, by name.
        dataset_config: how the datasets are split.
        validation_config: how Ray Train validates reported checkpoints.
        resume_from_checkpoint: the result of ``ray.train.get_checkpoint()`` until the run has a checkpoint of its own.
        metadata: Ray Train has removed it: the exception DeprecationWarning says what to do instead.

    Raises:
        ray.train.TrainingFailedError: from :meth:`fit`. A ``WorkerGroupError`` has each failed rank with its error in
            ``worker_failures``; a ``ControllerError`` says why the workers could not start.

    Example:
        >>> import horovod.torch as hvd, ray.train, torch
        >>> def train(config):
        ...     hvd.init()
        ...     total = hvd.allreduce(torch.tensor([config["x"]]), op=hvd.Sum)
        ...     ray.train.report({"total": total.item()})
        >>> trainer = HorovodTrainer(
        ...     train, train_loop_config={"x": 2.0}, scaling_config=ray.train.ScalingConfig(num_workers=4)
        ... )
        >>> result = trainer.fit()
    """

    def __init__(
        self,
        train_loop_per_worker: Union[Callable[[], Any], Callable[[dict[str, Any]], Any]],
        *,
        train_loop_config: Optional[dict[str, Any]] = None,
        horovod_config: Optional[HorovodConfig] = None,
        scaling_config: Optional[ScalingConfig] = None,
        run_config: Optional[RunConfig] = None,
        datasets: Optional[dict[str, Any]] = None,
        dataset_config: Optional[DataConfig] = None,
        validation_config: Any = None,
        resume_from_checkpoint: Optional[Checkpoint] = None,
        metadata: Optional[dict[str, Any]] = None,
    ) -> None:
        config = horovod_config or HorovodConfig()
        if not isinstance(config, HorovodConfig):
            raise TypeError(
                f"horovod_config is a {type(config).__module__}.{type(config).__name__}; HorovodTrainer "
                "takes horovod.ray.train.HorovodConfig"
            )
        if resume_from_checkpoint is not None:
            train_loop_per_worker = _resuming(train_loop_per_worker, resume_from_checkpoint)
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=config,
            scaling_config=scaling_config,
            run_config=_with_callbacks(run_config, config),
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            metadata=metadata,
        )


def _with_callbacks(run_config: Optional[RunConfig], config: HorovodConfig) -> Optional[RunConfig]:
    """A copy of the user's config, with our callbacks after the user's. Ray Train itself refuses other types."""
    if run_config is not None and not isinstance(run_config, RunConfig):
        return run_config
    mine = copy.copy(run_config) if run_config is not None else RunConfig()
    mine.callbacks = [*(mine.callbacks or ()), Suitability(), Patience(config.placement_group_timeout_s)]
    return mine


def _resuming(loop: Callable[..., Any], checkpoint: Checkpoint) -> Callable[..., Any]:
    """The training function, which finds this checkpoint until the run has its own."""

    @functools.wraps(loop)
    def resuming(*config: Any) -> Any:
        if get_checkpoint() is None:
            offer_checkpoint(checkpoint)
        return loop(*config)

    return resuming
