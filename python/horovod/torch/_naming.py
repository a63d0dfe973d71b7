"""Names for the parameters of several DistributedOptimizers, which may have equal names."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Sequence

from horovod.torch._submission import generation

_mutex = threading.Lock()
_uses: Counter[tuple[int, str]] = Counter()  # by process set and name
_counted_in = generation()


def distinct_names(names: Sequence[str], process_set: int) -> list[str]:
    """``names``, if none of them was given out before; otherwise ``<name>.optimizer<n>``, with the same n for all.

    Two reductions of one name cannot be under way at a time, and ranks that started them in different orders would add
    up gradients of different parameters. Only the order of the calls decides, because all ranks must get the same
    names; whether an earlier optimizer still exists, for instance, does not. After another init the count begins anew,
    so that ranks of an earlier job agree with new ones.
    """
    global _counted_in
    with _mutex:
        if _counted_in != generation():
            _uses.clear()
            _counted_in = generation()
        n = 1 + max((_uses[process_set, name] for name in names), default=0)
        _uses.update({(process_set, name): n - _uses[process_set, name] for name in names})
    return list(names) if n == 1 else [f"{name}.optimizer{n}" for name in names]
