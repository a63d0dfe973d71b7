"""Averaging the gradients of all processes."""

from __future__ import annotations

from typing import Any, Iterable

import torch

_NONE, _DENSE, _SPARSE = range(3)


def average(parameters: Iterable[Any], hvd: Any, compression: Any) -> None:
    """Set each parameter's gradient to the average of all processes.

    A process without the gradient counts as zeros. A gradient that no process has stays missing.

    Args:
        parameters: the same on all processes.
        hvd: ``horovod.torch``.
        compression: of ``hvd.Compression``, or None.
    """
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    kinds = hvd.allreduce(
        torch.tensor([_kind(one.grad) for one in wanted], device="cpu"), op=hvd.Max, name="spark.gradients.kinds"
    )
    dense, sparse = [], []
    for number, (parameter, kind) in enumerate(zip(wanted, kinds.tolist())):
        if kind == _DENSE:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dense.append(parameter.grad)
        elif kind == _SPARSE:
            grad = _no_rows(parameter) if parameter.grad is None else parameter.grad
            sparse.append((parameter, hvd.sparse_allreduce_async(grad, f"spark.sparse.{number}", hvd.Average)))
    if dense and compression is None:
        hvd.grouped_allreduce_(dense, op=hvd.Average, name="spark.gradients")
    elif dense:
        averaged = hvd.grouped_allreduce(dense, op=hvd.Average, name="spark.gradients", compression=compression)
        for grad, result in zip(dense, averaged):
            grad.copy_(result)
    for parameter, wait in sparse:
        parameter.grad = wait()


def _kind(grad: Any) -> int:
    return _NONE if grad is None else _SPARSE if grad.is_sparse else _DENSE


def _no_rows(parameter: Any) -> Any:
    places = torch.zeros((1, 0), dtype=torch.int64, device=parameter.device)
    return torch.sparse_coo_tensor(places, parameter.detach()[:0], parameter.shape, device=parameter.device)
