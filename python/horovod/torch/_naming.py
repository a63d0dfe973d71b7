"""Names for the parameters of several DistributedOptimizers, of which some may be called alike."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Sequence

from horovod.torch._submission import generation

_mutex = threading.Lock()
_uses: Counter[tuple[int, str]] = Counter()  # by process set and name
_counted_in = generation()


def distinct_names(names: Sequence[str], process_set: int) -> list[str]:
    """``names``, if nobody was given one of them before; else ``<name>.optimizer<n>``, with the same n for all.

    Two reductions of one name cannot be under way at a time, and ranks that meet them in different orders would add up
    gradients of different parameters. Nothing but the order of the calls decides, since all ranks must come to the same
    names: not, for instance, whether an earlier optimizer is still there. After another init the count begins anew, so
    that ranks that were there before agree with new ones.
    """
    global _counted_in
    with _mutex:
        if _counted_in != generation():
            _uses.clear()
            _counted_in = generation()
        n = 1 + max((_uses[process_set, name] for name in names), default=0)
        _uses.update({(process_set, name): n - _uses[process_set, name] for name in names})
    return list(names) if n == 1 else [f"{name}.optimizer{n}" for name in names]
