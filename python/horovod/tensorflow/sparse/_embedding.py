"""A layer of Keras whose rows are divided among the ranks."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from horovod.common import _tables
from horovod.common._reduce_ops import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.mpi_ops import _set_id
from horovod.tensorflow.sparse import _operations
from horovod.tensorflow.sparse._registry import make
from horovod.tensorflow.sparse._saves import Saved


@tf.keras.utils.register_keras_serializable("horovod")
class ShardedEmbedding(Saved, tf.keras.layers.Layer):
    """As Keras' Embedding, but the rows are divided among the ranks, and exist once they are trained.

    So there may be more rows than a machine can hold, and keys of any value. The rows are no weights of the model: the
    rank that has a row trains it while the gradients are computed, by an optimizer of the layer's own, and a
    ``DistributedOptimizer`` of the other weights has nothing to reduce for them.

    All ranks of ``process_set`` make the layer with equal arguments, and run it and its gradient equally often. A new
    row's numbers depend on ``seed``, ``table_name`` and the key alone. Without ``training=True`` a new key reads as
    such a row, which is not made; with ``training=False`` rows are not trained. With as many ranks, each run has the
    same bits. The layer's input is integers, or a list or dict of them: what they ask for travels together.

    :meth:`save` and :meth:`load` keep the rows in a directory. The weights that Keras saves have none of them, only the
    number of pushes, with a warning if these are not saved. Files in HDF5's old form and in TensorFlow's have nothing.

    Args:
        dim: the numbers of a row.
        num_embeddings: keys are those from 0 to ``num_embeddings - 1``. None: every int64.
        optimizer: "adagrad", "rowwise_adagrad" (4 bytes of state for a row), "adam", "ftrl" or "sgd".
        lr: the learning rate, or a function of the number of pushes so far; 0.01, for Adam 0.001. See the attribute
            ``lr``.
        seed: of the new rows.
        init: of the new rows: "normal", "uniform" or "zeros".
        scale: the standard deviation of "normal", or the bound of "uniform"; 1/sqrt(dim).
        padding_idx: a key that reads as zeros, and has no gradient.
        op: ``hvd.Sum`` adds the gradients of the ranks; ``hvd.Average`` divides by their number.
        table_name: of its own in the process set. Without it, the tables are numbered as they are made.
        process_set: the ranks that have the rows.
        options: the optimizer's numbers: ``eps``, ``initial_accumulator``, ``beta1``, ``beta2``, ``beta``, ``l1``,
            ``l2``. Which keys have rows: with ``admit_after=n`` a key gets its row at its n-th pull with
            ``training=True``; ``evict_idle=n`` drops rows that were not used for n pushes, except those with
            ``evict_keep`` pulls; ``max_rows=n`` drops the rows that were not used for longest. And the arguments of
            Keras' layers, such as ``name``.

    Raises:
        ValueError, TypeError: arguments are bad.
        HorovodInternalError: another rank has other arguments: the text names them.
        NotImplementedError: the job is elastic, and ``process_set`` is not that of all ranks; or Keras runs on another
            framework; or losses are scaled, as under the policy "mixed_float16".

    Example:
        >>> layer = sparse.ShardedEmbedding(2, optimizer="sgd", lr=1.0, init="zeros")
        >>> with tf.GradientTape() as tape:
        ...     loss = tf.reduce_sum(layer(tf.constant([[10**12, -5], [7, 7]]), training=True))
        >>> tape.gradient(loss, layer.trainable_weights)
        []
        >>> layer(tf.constant([7])).numpy().tolist()
        [[-2.0, -2.0]]
    """

    def __init__(
        self,
        dim: int,
        num_embeddings: Optional[int] = None,
        optimizer: str = "adagrad",
        lr: Optional[_tables.Rate] = None,
        seed: int = 0,
        init: str = "normal",
        scale: Optional[float] = None,
        padding_idx: Optional[int] = None,
        op: int = Sum,
        table_name: Optional[str] = None,
        process_set: ProcessSet = global_process_set,
        **options: Any,
    ) -> None:
        numbers = {name: options.pop(name) for name in (*_tables.NUMBERS, *_tables.LIMITS) if name in options}
        super().__init__(**options)
        if tf.keras.backend.backend() != "tensorflow":
            raise NotImplementedError(f"ShardedEmbedding is for Keras on TensorFlow, not {tf.keras.backend.backend()}")
        if not tf.compat.v1.executing_eagerly_outside_functions():
            raise NotImplementedError(
                "ShardedEmbedding needs eager mode, if only outside of functions; in graphs with sessions use "
                "horovod.tensorflow.sparse.gen_sparse_table_ops"
            )
        if op not in (Sum, Average):
            raise ValueError(f"op must be hvd.Sum or hvd.Average, not {op!r}")
        self._own = {
            "dim": dim, "num_embeddings": num_embeddings, "optimizer": optimizer, "seed": seed, "init": init,
            "scale": scale, "padding_idx": padding_idx, "op": op, "table_name": table_name, **numbers,
        }  # fmt: skip
        self._process_set = process_set
        number = _set_id(process_set)
        self._table = make(
            _tables.unnamed(number) if table_name is None else table_name, dim=dim, num_embeddings=num_embeddings,
            optimizer=optimizer, lr=lr, seed=seed, init=init, process_set=number, scale=scale, **numbers,
        )  # fmt: skip
        self._padding_idx = padding_idx
        self._averages = op == Average
        self.supports_jit = False  # collectives cannot be compiled by XLA

    @property
    def lr(self) -> _tables.Rate:
        """The learning rate of later pushes: a number, or a function of the number of pushes so far. Set it alike on
        all ranks.
        """
        return self._table.lr

    @lr.setter
    def lr(self, lr: _tables.Rate) -> None:
        self._table.lr = lr

    def call(self, inputs: Any, training: Any = None) -> Any:
        """The rows of keys. All ranks call this, each with keys of its own.

        Args:
            inputs: integers of any shape; or a list, tuple or dict of such tensors.
            training: True makes rows for new keys. False looks only, and the rows are not trained.

        Returns:
            For each tensor of keys one of its shape and ``dim``, of the layer's type.

        Raises:
            TypeError: keys are no integers.
            NotImplementedError: losses are scaled, as under the policy "mixed_float16".
            tf.errors.InvalidArgumentError: a key is out of range.
            tf.errors.FailedPreconditionError: another rank has a key that is out of range.
            tf.errors.UnknownError: a rank has died or left.
        """
        trains = training is None or bool(training) if not tf.is_tensor(training) else True
        if trains and "float16" in (self.compute_dtype, tf.keras.mixed_precision.global_policy().compute_dtype):
            raise NotImplementedError(
                "with float16 losses are scaled, and rows would be trained with scaled gradients: use mixed_bfloat16"
            )
        keys = [_keys(tensor) for tensor in tf.nest.flatten(inputs)]
        rows, index = _operations.pull(
            self._table, keys, [[]] * len(keys), training is not True, trains, self._padding_idx, self._averages
        )
        found = [tf.cast(tf.gather(matrix, places), self.compute_dtype) for matrix, places in zip(rows, index)]
        return tf.nest.pack_sequence_as(inputs, found)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the rows for keys of a shape, for Keras.

        Args:
            input_shape: of one tensor of keys.

        Returns:
            The shape.
        """
        return (*tuple(input_shape), self._table.dim)

    def local_rows(self) -> int:
        """How many rows of the table this rank has.

        Returns:
            The number of rows.

        Example:
            >>> layer = sparse.ShardedEmbedding(4)
            >>> _ = layer(tf.constant([7, 7, -1]), training=True)
            >>> layer.local_rows()
            2
        """
        return self._table.rows()

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments, for Keras. They have no rows.

        Returns:
            The arguments by name.

        Raises:
            NotImplementedError: the layer has a process set of its own, which no file can name.

        Example:
            >>> sparse.ShardedEmbedding(4).get_config()["dim"]
            4
        """
        if self._process_set is not global_process_set:
            raise NotImplementedError("a ShardedEmbedding with a process_set has no configuration that can be saved")
        return {**super().get_config(), **self._own, "lr": self.lr}


def _keys(tensor: Any) -> tf.Tensor:
    keys = tf.convert_to_tensor(tensor)
    if not keys.dtype.is_integer or keys.dtype == tf.uint64:
        raise TypeError(f"keys must be integers that fit into tf.int64, not {keys.dtype.name}")
    return tf.cast(keys, tf.int64)
