"""This rank's shares of a model's variables, and the collectives on them, for a sharded optimizer on TensorFlow.

A variable of n elements is dealt out to the N ranks of a process set: each gets n // N elements, and the first n % N
ranks get one more. So a share may be empty.
"""

from __future__ import annotations

import zlib
from typing import Any, Optional, Sequence

import tensorflow as tf

from horovod._keras._tensorflow import tf_variable
from horovod.common import _facts
from horovod.common._options import Options
from horovod.common._reduce_ops import Min, Sum
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow import mpi_ops
from horovod.tensorflow._reduction import predivided, to_dense

_NARROW = (tf.float16, tf.bfloat16)


class VariableShare:
    """This rank's elements of a variable of a model.

    ``inner`` is what the inner optimizer updates: a flat variable with a copy of these elements, and for a 16-bit
    variable with their float32 masters.
    """

    __slots__ = ("begin", "end", "inner", "variable", "whole")

    def __init__(self, variable: Any, begin: int, end: int) -> None:
        self.variable = variable
        self.whole: tf.Variable = tf_variable(variable)
        self.begin, self.end = begin, end
        self.inner = tf.Variable(self._wide(self._elements()), trainable=False, name=self.whole.name.partition(":")[0])
        mpi_ops.mark_as_share(self.inner)

    def _elements(self) -> tf.Tensor:
        return tf.reshape(self.whole, [-1])[self.begin : self.end]

    def _wide(self, elements: tf.Tensor) -> tf.Tensor:
        return tf.cast(elements, tf.float32) if self.whole.dtype in _NARROW else elements

    def prepare(self) -> None:
        """Bring ``inner`` up to date with the variable, which the program may have changed."""
        elements = self._elements()
        now = self._wide(elements)
        if self.whole.dtype in _NARROW:
            # An element that is no longer its master's rounded value was overwritten, for example by a checkpoint.
            now = tf.where(tf.cast(self.inner, self.whole.dtype) == elements, self.inner, now)
        self.inner.assign(now)

    def cut(self, value: Any) -> Any:
        """This rank's elements of an array of the variable's shape. ValueError if it has another one."""
        if tuple(value.shape) != tuple(self.whole.shape):
            raise ValueError(
                f"the optimizer's state is of other variables: {self.whole.name} has the shape "
                f"{list(self.whole.shape)}, and its state {list(value.shape)}"
            )
        return value.reshape(-1)[self.begin : self.end]

    def reduced(self, flat: tf.Tensor) -> tf.Tensor:
        """A gradient of the share, of the length and type that the inner optimizer expects."""
        return self._wide(tf.ensure_shape(flat, [self.end - self.begin]))

    def take(self, flat: tf.Tensor) -> None:
        """Overwrite the variable with the gathered elements of all ranks."""
        self.whole.assign(tf.reshape(flat, self.whole.shape))

    def constrain(self) -> None:
        """Apply the variable's constraint, if it has one."""
        if getattr(self.variable, "constraint", None) is not None:
            self.variable.assign(self.variable.constraint(self.variable))


class Shares:
    """The shares of all variables of one optimizer. A sharded optimizer has it in the place of ``Gradients``."""

    adds_up = False

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self.shares: list[VariableShare] = []  # empty until the optimizer is built
        self.whole_state: Optional[list[Any]] = None  # arrays, while the state is gathered
        self._by_key: dict[Any, int] = {}  # numbers in `shares`, by references of variables and of inner ones
        self._of_state: dict[int, VariableShare] = {}  # by the ids of the optimizer's variables
        self._alike = False  # whether all ranks are known to have these shares; in graphs, `_compared`

    def copy(self) -> Shares:
        """Another one with the same options, without shares."""
        return Shares(self.name, self.options)

    def _refuse_local(self, _: Any) -> None:
        raise ValueError("sharded=True has no local variables or layers: all ranks train all variables together")

    register_local_var = register_local_layers = _refuse_local

    # ---- shares

    def _set_id(self) -> int:
        return mpi_ops._set_id(self.options.process_set)

    def _is_member(self) -> bool:
        return self.options.process_set.included() is not False

    def _is_shared(self) -> bool:
        return self._is_member() and (self.options.process_set.size() or 0) > 1

    def build(self, variables: Sequence[Any]) -> None:
        """Make the shares of ``variables``. In eager mode."""
        for variable in variables:
            if getattr(variable, "overwrite_with_gradient", False):
                raise ValueError("sharded=True takes no variables that are overwritten with gradients, as in float8")
        self._compared = tf.Variable(False, trainable=False)
        for i, variable in enumerate(variables):
            whole = tf_variable(variable)
            elements = int(whole.shape.num_elements())
            bounds = _facts.bounds(elements, self._set_id()) if self._is_member() else None
            share = VariableShare(variable, *(bounds or (0, elements)))
            self.shares.append(share)
            self._by_key[whole.ref()] = self._by_key[share.inner.ref()] = i

    def of(self, variable: Any) -> VariableShare:
        """The share of a variable of the model, or the one that has ``variable`` as its inner one."""
        number = self._by_key.get(tf_variable(variable).ref())
        if number is None:
            raise ValueError(
                f"Unknown variable: {variable}. A sharded optimizer can only be called for the variables it was "
                "originally built with"
            )
        return self.shares[number]

    def note_state(self, made: Any, reference: Any) -> None:
        """Note that ``made``, a variable of the optimizer, has an element for each of ``reference``, an inner one."""
        self._of_state[id(made)] = self.of(reference)
        mpi_ops.mark_as_share(tf_variable(made))

    def share_of_state(self, variable: Any) -> Optional[VariableShare]:
        """The share that a variable of the optimizer belongs to; None if it is the same on all ranks."""
        return self._of_state.get(id(variable))

    # ---- collectives

    def meet(self) -> None:
        """Once, in eager mode, check that all ranks shard.

        A rank that does not shard begins with an allreduce of the name used here, so both fail. In graphs all names are
        the same with and without sharding, so a reducescatter meets an allreduce.
        """
        if self._alike or not self._is_shared() or not tf.executing_eagerly():
            return
        try:
            mpi_ops._allreduce(
                tf.zeros([2, 0, 2, 0], tf.uint8), f"{self.name}_Allreduce/grad_0", process_set=self.options.process_set
            )
        except tf.errors.FailedPreconditionError as e:
            if "ismatched" not in str(e):
                raise
            raise HorovodInternalError(
                "the ranks disagree about sharded=True of hvd.DistributedOptimizer: in what follows, the ranks with "
                f"uint8 have passed it, and the others have not. {e}"
            ) from None

    def compare(self, iterations: Any, after: Sequence[Any]) -> None:
        """Once, after these reduced gradients, check that all ranks have equal variables, and made as many steps.

        Raises:
            ValueError: they differ. In a graph it is an InvalidArgumentError, when the graph runs.
        """
        if self._alike or not self._is_shared():
            return
        described = ", ".join(f"{s.whole.dtype.name} {list(s.whole.shape)}" for s in self.shares)
        steps = tf.cast(tf.convert_to_tensor(iterations), tf.int64)
        mine = tf.reshape(tf.stack([steps, zlib.crc32(described.encode())]), [1, 2])
        text = (
            "the ranks of a sharded optimizer have other variables, or have made other numbers of steps: all ranks "
            "must load its state, because each keeps only its share. Steps, and a checksum of shapes and types, by "
            "rank: "
        )

        def every() -> Any:
            return mpi_ops.allgather(mine, f"{self.name}.shares", process_set=self.options.process_set)

        if tf.executing_eagerly():
            rows = every().numpy()
            if (rows != rows[0]).any():
                raise ValueError(text + str(rows.tolist()))
            self._alike = True
            return

        def check() -> None:
            rows = every()
            tf.debugging.Assert(tf.reduce_all(rows == rows[0]), [text, rows], summarize=1 << 10)
            self._compared.assign(True)

        with tf.control_dependencies([g for g in after if g is not None]):
            tf.cond(self._compared, lambda: None, check)

    def scatter(self, gradients: Sequence[Any], variables: Sequence[Any], reduce: bool = True) -> list[Any]:
        """This rank's shares of the gradients, reduced unless they are already. None stays None."""
        shares = [self.of(v) for v in variables]
        with tf.device(self.options.device_dense), tf.name_scope(self.name + "_Allreduce"):
            flat: list[Any] = [None if g is None else tf.reshape(to_dense(g), [-1]) for g in gradients]
            present = [i for i, g in enumerate(flat) if g is not None]
            if reduce and self._is_shared():
                scattered = self._scattered([flat[i] for i in present], [variables[i] for i in present])
            else:
                scattered = [flat[i][shares[i].begin : shares[i].end] for i in present]
            results: list[Any] = [None] * len(flat)
            for i, part in zip(present, scattered):
                results[i] = shares[i].reduced(part)
        return results

    def _scattered(self, flat: list[Any], variables: list[Any]) -> list[Any]:
        prescale, postscale = predivided(self.options.gradient_predivide_factor, self.options.op)
        arguments: dict[str, Any] = {
            "op": self.options.op,
            "process_set": self.options.process_set,
            "prescale_factor": prescale,
            "postscale_factor": postscale,
        }
        if not tf.executing_eagerly():  # each starts when it is ready, and they fuse
            numbers = [self._by_key[tf_variable(v).ref()] for v in variables]
            return [mpi_ops._reducescatter(g, f"grad_{i}", **arguments) for i, g in zip(numbers, flat)]
        return self._by_dtype(flat, lambda some, name: mpi_ops._grouped_reducescatter(some, name, **arguments), "grads")

    def _by_dtype(self, tensors: list[Any], run: Any, what: str) -> list[Any]:
        """``run`` on groups of one dtype, in eager mode. The results are in the order of ``tensors``."""
        results: list[Any] = [None] * len(tensors)
        for dtype in dict.fromkeys(t.dtype for t in tensors):
            members = [i for i, t in enumerate(tensors) if t.dtype == dtype]
            done = run([tensors[i] for i in members], f"{self.name}.{what}.{dtype.name}")
            for i, result in zip(members, done):
                results[i] = result
        return results

    def prepare(self, shares: Sequence[VariableShare]) -> None:
        """Bring the inner variables up to date with the model's."""
        for share in shares:
            share.prepare()

    def gather(self, shares: Sequence[VariableShare]) -> None:
        """Bring the updated shares of all ranks to the model's variables."""
        process_set = self.options.process_set
        with tf.name_scope(self.name + "_Allgather"):
            parts = [tf.cast(share.inner, share.whole.dtype) for share in shares]
            if not self._is_shared():
                wholes = parts
            elif tf.executing_eagerly():
                wholes = self._by_dtype(
                    parts,
                    lambda some, name: mpi_ops.grouped_allgather(some, name, process_set=process_set),
                    "variables",
                )
            else:
                numbers = [self._by_key[share.whole.ref()] for share in shares]
                wholes = [
                    mpi_ops.allgather(part, f"variable_{i}", process_set=process_set) for i, part in zip(numbers, parts)
                ]
            for share, whole in zip(shares, wholes):
                share.take(whole)

    def constrain(self, shares: Sequence[VariableShare]) -> None:
        """Apply the constraints of the model's variables."""
        for share in shares:
            share.constrain()

    def gathered_state(self, variables: Sequence[Any]) -> list[Any]:
        """The optimizer's variables as arrays, each as it would be without sharding. In eager mode."""
        arrays = []
        for i, variable in enumerate(variables):
            share, value = self.share_of_state(variable), tf_variable(variable)
            if share is not None and self._is_shared():
                name = f"{self.name}.state.{i}"
                value = mpi_ops.allgather(value, name, process_set=self.options.process_set)
            array = value.numpy()
            arrays.append(array if share is None else array.reshape(share.whole.shape))
        return arrays

    def _reduced(self, values: tf.Tensor, op: int, what: str) -> tf.Tensor:
        if not self._is_shared():
            return values
        with tf.name_scope(self.name + "_Allreduce"):
            name = f"{self.name}.{what}" if tf.executing_eagerly() else what
            return mpi_ops._allreduce(values, name, op, process_set=self.options.process_set)

    def squares(self, gradients: Sequence[Any]) -> tf.Tensor:
        """The sum of the squares of each whole gradient, from this rank's shares of them."""
        sums = [tf.reduce_sum(tf.square(g)) for g in gradients]
        dtype = max((s.dtype for s in sums), key=lambda d: d.size)
        return self._reduced(tf.stack([tf.cast(s, dtype) for s in sums]), Sum, "squares")

    def everywhere(self, condition: Any) -> tf.Tensor:
        """Whether ``condition``, a boolean, holds on all ranks."""
        return self._reduced(tf.cast(condition, tf.int32), Min, "finite") > 0
