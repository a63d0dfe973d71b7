"""Which parameters of a sharded optimizer have a gradient on some rank, and whether the ranks shard alike."""

from __future__ import annotations

import zlib
from typing import Collection, Mapping

import torch

from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet
from horovod.torch._compiling import never_trace
from horovod.torch._gradient_presence import DifferentParametersError, GradientPresence

_BITS = 20  # of a layout's checksum: sums over 2047 ranks fit into 32 bits


def _layout(p: torch.Tensor) -> int:
    """A checksum of how the elements of ``p`` lie in memory: shares of other layouts would be of other elements."""
    text = f"{p.dtype} {tuple(p.shape)} {tuple(p.stride())}"
    return zlib.crc32(text.encode()) >> (32 - _BITS)


class SharePresence(GradientPresence):
    """Has one row more than the count of an optimizer that is not sharded, so that ranks that disagree fail here."""

    def __init__(
        self,
        parameters: Mapping[torch.Tensor, str],
        trained: Collection[torch.Tensor],
        submitted: Collection[torch.Tensor],
        name: str,
        process_set: ProcessSet,
    ) -> None:
        self._layouts = [_layout(p) if p in trained else 0 for p in parameters]
        super().__init__(parameters, trained, submitted, name, process_set)

    def _rows(self, rows: list[list[int]]) -> list[list[int]]:
        return [*rows, self._layouts]

    def agree(self) -> None:
        """Wait for the other ranks, and raise DifferentParametersError unless all shard the same parameters alike."""
        try:
            self.wait()
            rows = self._result().tolist()
        except DifferentParametersError:
            raise
        except HorovodInternalError as e:
            if "Mismatched" not in str(e):
                raise
            sharded = len(self._rows([[], [], [], []]))
            raise DifferentParametersError(
                "the ranks disagree about sharded=True of hvd.DistributedOptimizer, or about its parameters: in what "
                f"follows, the ranks with {sharded} rows have passed it, and those with {sharded - 1} have not. {e}"
            ) from None
        trained, layouts = rows[3], rows[4]
        differ = [i for i, mine in enumerate(self._layouts) if mine and layouts[i] != mine * trained[i]]
        if differ:
            names = list(self._parameters.values())
            raise DifferentParametersError(
                "parameters of a sharded optimizer differ between ranks in shape, type or memory format: "
                f"{', '.join(names[i] for i in differ[:8])}"
            )


never_trace(__name__)
