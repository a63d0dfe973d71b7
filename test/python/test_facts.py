"""What the front ends know of operations is what the library says."""

from __future__ import annotations

import pytest
import torch

import horovod.torch as hvd
from horovod.common import _facts, _lib
from horovod.torch import _submission


@pytest.fixture(autouse=True)
def _world():
    hvd.init()
    yield


def test_constants_are_the_librarys():
    kinds = _facts.kinds()
    for name in ("allreduce", "allgather", "broadcast", "join", "alltoall", "barrier", "reducescatter"):
        assert getattr(_lib, name.upper()) == kinds[name].number, name
    for name, number in _facts.element_types().items():
        assert getattr(_lib, name.upper()) == number
    for name, number in _facts.reduce_ops().items():
        assert getattr(hvd, name.capitalize()) == number
        assert getattr(_lib, name.upper(), number) == number


def test_reduce_operations_are_those_that_the_engine_takes():
    kinds = _facts.kinds()
    assert kinds["broadcast"].reduce_ops == frozenset()
    for name, kind in kinds.items():
        for op in _facts.reduce_ops().values():
            if name not in ("allreduce", "reducescatter"):
                continue
            call = getattr(hvd, name)
            if op in kind.reduce_ops:
                call(torch.ones(4), op=op)
            else:
                with pytest.raises(hvd.HorovodInternalError, match="is not possible"):
                    call(torch.ones(4), op=op)


@pytest.mark.parametrize("rows", [0, 1, 7, 1000])
def test_shares_are_the_rows_of_a_reducescatter(rows):
    share = _facts.share(rows, 0)
    assert share == hvd.reducescatter(torch.ones(rows, 2)).shape[0]
    total = hvd.allreduce(torch.tensor([share]), op=hvd.Sum)
    assert int(total) == rows


def test_every_type_of_the_engine_is_one_of_pytorchs():
    known = set(_submission._DTYPES.values())
    assert set(_facts.element_types().values()) - known <= {_lib.UINT16}  # which PyTorch has since 2.3
