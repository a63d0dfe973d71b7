"""Sparse tables: embeddings whose rows are divided among the ranks, and trained where they are.

:class:`ShardedEmbedding` is a layer for Keras 2 and 3. The other names are those of tensornet, for its programs. The
examples know TensorFlow as ``tf`` and this module as ``sparse``, and ``hvd.init()`` has been called, in a job of one
rank.
"""

from __future__ import annotations

from typing import Any

from horovod.tensorflow import _require as _require  # noqa: I001  first: it says what is missing
from horovod.tensorflow.sparse import gen_sparse_table_ops
from horovod.tensorflow.sparse._optimizers import AdaGrad, Adam, Ftrl
from horovod.tensorflow.sparse._registry import create_sparse_table
from horovod.tensorflow.sparse._saves import load_sparse_table, save_sparse_table

__all__ = [
    "AdaGrad",
    "Adam",
    "Ftrl",
    "ShardedEmbedding",  # noqa: F822  see __getattr__
    "create_sparse_table",
    "gen_sparse_table_ops",
    "load_sparse_table",
    "save_sparse_table",
]


def __getattr__(name: str) -> Any:
    """ShardedEmbedding is a layer of Keras, so Keras is imported only if a program uses it."""
    if name == "ShardedEmbedding":
        from horovod.tensorflow.sparse._embedding import ShardedEmbedding

        return ShardedEmbedding
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
