"""Estimators for PyTorch."""

from horovod.spark.torch._training import minibatch
from horovod.spark.torch.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel", "minibatch"]
