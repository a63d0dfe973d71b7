"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.common._reduce_ops import Sum
from horovod.torch._collectives import allgather_async, allreduce_async
from horovod.torch._compiling import between_graphs, never_trace
from horovod.torch._submission import synchronize
from horovod.torch.mpi_ops import size


class SyncBatchNorm(_BatchNorm):
    """As ``torch.nn.BatchNorm1d`` to ``BatchNorm3d``, with the mean and variance of all ranks' batches together.

    The input has the shape (N, num_features, …), with any N on each rank, including 0; float16, bfloat16, float32 or
    float64, on any device. The layer synchronises when it uses the batch's statistics, that is in training, or with
    ``track_running_stats=False``. Then all ranks must call it, and backward if they do, in the same order: the
    operations have fixed names, so two layers cannot be under way at once. Running statistics have the same bits on all
    ranks.

    The gradients of weight and bias are those of this rank's rows: average or sum them over ranks, as
    ``DistributedOptimizer`` does.

    Args:
        num_features, eps, momentum, affine, track_running_stats: as for ``torch.nn.BatchNorm1d``.

    Raises:
        ValueError: an input has less than two dimensions, or all ranks together have only one value per channel.

    Example:
        >>> layer = hvd.SyncBatchNorm(3)
        >>> layer(torch.zeros(4, 3)).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    @between_graphs
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalise a batch by the statistics of all ranks' batches, in training. All ranks call this. Blocks.

        Args:
            input: of at least two dimensions; the second is the channels.

        Returns:
            A tensor of the same shape.

        Raises:
            ValueError: the shape does not fit, or all ranks together have only one value per channel.
        """
        self._check_input_dim(input)
        of_batch = self.training or (self.running_mean is None and self.running_var is None)
        if not of_batch or size() == 1:
            return super().forward(input)
        if input.shape[1] != self.num_features:
            raise ValueError(f"expected {self.num_features} channels, the input has the shape {tuple(input.shape)}")
        output, mean, variance, count = _Normalize.apply(input, self.weight, self.bias, self.eps)
        if self.training and self.track_running_stats:
            self._track(mean, variance, count)
        return output

    @torch.no_grad()
    def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor) -> None:
        """Update the running statistics by a batch of ``count`` values per channel."""
        self.num_batches_tracked.add_(1)
        part = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        for running, new in [
            (self.running_mean, mean),
            (self.running_var, variance * (count / (count - 1))),
        ]:
            running.copy_((1 - part) * running.double() + part * new)


class _Normalize(torch.autograd.Function):
    """Normalises with the statistics of all ranks, which are additional results: float64, and not differentiable."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: Optional[torch.Tensor],
        bias: Optional[torch.Tensor],
        eps: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        x = _widened(input)
        mean, variance, count = _of_all_ranks(x, eps)
        if count <= 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, over all ranks; this rank's input has the size "
                f"{tuple(input.shape)}"
            )
        inverse = torch.rsqrt(variance + eps)
        centered = x - _by_channel(mean, x)
        scale = inverse if weight is None else inverse * weight
        output = centered * _by_channel(scale, x)
        if bias is not None:
            output += _by_channel(bias, x)
        ctx.save_for_backward(input, weight, mean, inverse, count)
        ctx.mark_non_differentiable(mean, variance, count)
        return output.to(input.dtype), mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor, *_: Any) -> tuple[Optional[torch.Tensor], ...]:
        input, weight, mean, inverse, count = ctx.saved_tensors
        x, grad = _widened(input), _widened(grad_output)
        others = _all_but_channels(x)
        centered = x - _by_channel(mean, x)
        sum_dy = grad.sum(others).double()
        sum_dy_xmu = (grad * centered).sum(others).double()

        grad_input = grad_weight = grad_bias = None
        if weight is not None and ctx.needs_input_grad[1]:
            grad_weight = (sum_dy_xmu * inverse).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = sum_dy.to(input.dtype if weight is None else weight.dtype)
        if ctx.needs_input_grad[0]:
            handles = [
                allreduce_async(sum_dy, op=Sum, name="sync_batch_norm.sum_dy"),
                allreduce_async(sum_dy_xmu, op=Sum, name="sync_batch_norm.sum_dy_xmu"),
            ]
            sum_dy, sum_dy_xmu = map(synchronize, handles)
            scale = inverse if weight is None else inverse * weight
            slope = inverse * inverse * (sum_dy_xmu / count)
            grad_input = grad - _by_channel(sum_dy / count, x) - centered * _by_channel(slope, x)
            grad_input = (grad_input * _by_channel(scale, x)).to(input.dtype)
        return grad_input, grad_weight, grad_bias, None


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """In a type in which many numbers can be added up."""
    return tensor.float() if tensor.element_size() < 4 else tensor


def _all_but_channels(x: torch.Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _by_channel(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """``values``, one for each channel, in a shape and a type that suit ``x``."""
    return values.to(x.dtype).view(1, -1, *[1] * (x.dim() - 2))


def _of_all_ranks(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mean and (biased) variance of each channel over the rows of all ranks, and the number of values, in float64."""
    own_count = x.numel() // x.shape[1]
    if own_count:
        own_variance, own_mean = (t.double() for t in torch.var_mean(x, _all_but_channels(x), unbiased=False))
    else:
        own_variance = own_mean = x.new_zeros(x.shape[1], dtype=torch.float64)
    own = {
        "count": own_mean.new_full((1,), own_count),
        "mean": own_mean,
        "invstd": torch.rsqrt(own_variance + eps),
    }
    handles = [allgather_async(value[None].contiguous(), f"sync_batch_norm.{name}") for name, value in own.items()]
    counts, means, inverses = [synchronize(handle) for handle in handles]
    count = counts.sum()
    share = counts / count
    mean = (share * means).sum(0)
    variances = inverses.pow(-2) - eps
    # The squared deviations within the ranks' batches, and those between the batches' means.
    variance = (share * (variances + (means - mean).square())).sum(0).clamp_(min=0)
    return mean, variance, count


never_trace(__name__)
