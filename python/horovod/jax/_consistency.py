"""Checks whether ranks have the same arrays."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from horovod.common import _arguments, _consistency
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax.mpi_ops import allgather_object


def check_consistency(tree: Any, process_set: ProcessSet = global_process_set) -> None:
    """Compare a tree of arrays, such as parameters, of all ranks of ``process_set``, bit for bit. Blocks.

    All of them call this, outside compiled programs. Each rank makes a digest of each array, at the speed of memory,
    and only digests travel.

    Args:
        tree: arrays in dicts, lists, tuples and other trees of JAX.
        process_set: the ranks that take part.

    Raises:
        ConsistencyError: an array differs. The message names it, and the ranks whose values differ from the majority's.
        jax.errors.TracerArrayConversionError: it was called inside a compiled program.

    Example:
        >>> hvd.check_consistency({"weights": jnp.ones(3)})
    """
    _arguments.process_set_id(process_set)  # raises the right error
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    prints = _consistency.fingerprints((jax.tree_util.keystr(path), leaf) for path, leaf in leaves)
    gather = partial(allgather_object, process_set=process_set)
    _consistency.check(prints, _consistency.ranks_of(process_set), gather)
