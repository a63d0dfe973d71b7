"""Horovod's jobs on a Ray cluster: the ranks are actors.

>>> import ray
>>> from horovod.ray import RayExecutor
>>> ray.init()
>>> executor = RayExecutor(num_workers=4)
>>> executor.start()
>>> results = executor.run(train, args=[config])  # train() calls hvd.init()
>>> executor.shutdown()
"""

from horovod.ray import _require as _require  # first: it says what is missing
from horovod.ray.elastic import ElasticRayExecutor
from horovod.ray.runner import RayExecutor
from horovod.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "ElasticRayExecutor", "RayExecutor"]
