"""The front ends' tables of operations agree with the library."""

from __future__ import annotations

import pytest
import torch

import horovod.torch as hvd
from horovod.common import _facts, _lib
from horovod.common._reduce_ops import ALLREDUCE_OPS, SCATTER_OPS
from horovod.torch import _graph, _submission


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
        if name not in ("band", "bor", "bxor"):
            assert getattr(hvd, name.capitalize()) == number
        assert getattr(_lib, name.upper(), number) == number


@pytest.mark.parametrize(("name", "horovods"), [("allreduce", ALLREDUCE_OPS), ("reducescatter", SCATTER_OPS)])
def test_reduce_operations_are_those_of_horovod_that_the_engine_takes(name, horovods):
    assert horovods <= _facts.kinds()[name].reduce_ops
    for op in _facts.reduce_ops().values():
        call = getattr(hvd, name)
        if op in horovods:
            call(torch.ones(4), op=op)
        else:
            with pytest.raises(
                (hvd.HorovodInternalError, ValueError), match="currently only supports|unknown reduce op"
            ):
                call(torch.ones(4), op=op)


def test_kinds_that_do_not_combine_have_no_reduce_operations():
    assert _facts.kinds()["broadcast"].reduce_ops == frozenset()


@pytest.mark.parametrize("rows", [0, 1, 7, 1000])
def test_shares_are_the_rows_of_a_reducescatter(rows):
    share = _facts.share(rows, 0)
    assert share == hvd.reducescatter(torch.ones(rows, 2)).shape[0]
    total = hvd.allreduce(torch.tensor([share]), op=hvd.Sum)
    assert int(total) == rows
    assert _graph._share(torch.empty(rows, 2), None, hvd.Sum, 1.0, 1.0, 0).shape == (share, 2)
    assert _facts.symbolic_share(Symbol(rows), 0).value == share


class Symbol:
    """A number that cannot be compared, like a size that a compiler does not know yet."""

    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return Symbol(self.value + other)

    def __sub__(self, other):
        return Symbol(self.value - other)

    def __floordiv__(self, other):
        return Symbol(self.value // other)

    def compare(self, _):
        raise AssertionError("it is not known")

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = compare
    __hash__ = None


def test_every_type_of_the_engine_is_one_of_pytorchs():
    known = set(_submission._DTYPES.values())
    newer = {_lib.UINT16, _lib.FLOAT8_E4M3FN, _lib.FLOAT8_E5M2}  # PyTorch has these since 2.3 and 2.1
    assert set(_facts.element_types().values()) - known <= newer
