"""``HorovodTrainer``: jobs that Ray Train starts, watches and restarts, with Horovod between their workers.

Example:
    >>> from ray.train import ScalingConfig
    >>> from horovod.ray.train import HorovodTrainer
    >>> result = HorovodTrainer(train, scaling_config=ScalingConfig(num_workers=4)).fit()
"""

from horovod.ray import _require as _require  # first: it says what is missing
from horovod.ray.train.config import HorovodConfig
from horovod.ray.train.trainer import HorovodTrainer

__all__ = ["HorovodConfig", "HorovodTrainer"]
