"""Makes ranks equal at the start: sends variables and objects from one rank to all."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import numpy as np
import tensorflow as tf

from horovod.common import _arguments, _pickling
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import is_version_greater_equal_than
from horovod.tensorflow.mpi_ops import allgather, broadcast, broadcast_, check_variables, rank


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrite ``variables`` with those of one rank, on all ranks of ``process_set``.

    Args:
        variables: a list of variables, the same on all ranks, in the same order.
        root_rank: the rank whose variables all ranks get.
        process_set: the ranks that take part.
        inplace: write into the memory of resource variables instead of assigning new values, if this TensorFlow lets a
            kernel do that.

    Returns:
        In a graph, the operation that does it.

    Raises:
        TypeError: one of them is not a variable.
        NotImplementedError: ``inplace``, and TensorFlow is older than 2.6.

    Example:
        >>> v = tf.Variable([1.0])
        >>> hvd.broadcast_variables([v], root_rank=0)
    """
    if inplace:
        if not is_version_greater_equal_than(tf.__version__.split("-")[0].split("rc")[0], "2.6.0"):
            raise NotImplementedError("In-place broadcasts need TensorFlow 2.6 or later.")
        return tf.group(*_operations(broadcast_(list(variables), root_rank, process_set=process_set)))
    return _assign_broadcast(list(variables), root_rank, process_set)


def _operations(values: Sequence[Any]) -> list[Any]:
    return [] if tf.executing_eagerly() else [v for v in values if v is not None]


def _assign_broadcast(variables: Sequence[Any], root_rank: int, process_set: ProcessSet) -> Any:
    """In eager mode, one function for all variables, so that they travel together."""
    check_variables(variables)

    def assign() -> Any:
        assigned = []
        for i, variable in enumerate(variables):
            # By number, because names of variables may repeat, and may differ between ranks.
            value = broadcast(variable, root_rank, f"HorovodBroadcast_{i}", process_set=process_set)
            assigned.append(
                variable.assign(value) if hasattr(variable, "assign") else tf.compat.v1.assign(variable, value)
            )
        return tf.group(*_operations(assigned))

    if tf.executing_eagerly():
        if variables:
            tf.function(lambda: assign() and None, autograph=False)()
        return None
    return assign()


def broadcast_global_variables(root_rank: int, process_set: ProcessSet = global_process_set) -> Any:
    """Make the operation that overwrites all global variables with those of one rank.

    Args:
        root_rank: the rank whose variables all ranks get.
        process_set: the ranks that take part.

    Returns:
        The operation.

    Raises:
        RuntimeError: in eager mode, which has no global variables.

    Example:
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     v = tf.compat.v1.get_variable("v", initializer=1.0)
        ...     session.run(tf.compat.v1.global_variables_initializer())
        ...     session.run(hvd.broadcast_global_variables(0))
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use "
            "`hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank, process_set)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Makes all ranks start with the variables of ``root_rank``, for ``MonitoredTrainingSession`` and estimators.

    Use it if training starts from random weights, or from a checkpoint that one rank restores.

    Args:
        root_rank: the rank whose variables all ranks get.
        device: where the operation is placed; the communication runs on the CPU.
        process_set: the ranks that take part.

    Example:
        >>> hook = hvd.BroadcastGlobalVariablesHook(0)
        >>> with tf.Graph().as_default():
        ...     v = tf.compat.v1.train.get_or_create_global_step()
        ...     with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
        ...         print(session.run(v))
        0
    """

    def __init__(self, root_rank: int, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        """See the class."""
        super().__init__()
        self.process_set = _arguments.process_set(process_set)
        self.root_rank = _arguments.root_rank(root_rank)
        self.bcast_op: Any = None
        self.device = device

    def begin(self) -> None:
        """Build the broadcast, once for each graph. TensorFlow calls this."""
        if self.bcast_op is None or self.bcast_op.graph != tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank, self.process_set)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run the broadcast. TensorFlow calls this.

        Args:
            session: the session.
            coord: no effect.
        """
        session.run(self.bcast_op)


def _to_array(obj: Any) -> np.ndarray:
    return np.frombuffer(_pickling.dumps(obj), np.uint8)


def _evaluate(session: Optional[Any], build: Callable[[Any], Any], value: np.ndarray) -> np.ndarray:
    """``build(value)`` as an array: at once in eager mode, otherwise in ``session``."""
    if tf.executing_eagerly():
        return build(tf.convert_to_tensor(value)).numpy()
    return (session or default_session()).run(build(tf.convert_to_tensor(value)))


def default_session() -> Any:
    """The session around the call. ValueError if there is none."""
    session = tf.compat.v1.get_default_session()
    if session is None:
        raise ValueError("there is no default session: pass session=…, or call inside `with session:`")
    return session


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Optional[Any] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Give all ranks of ``process_set`` the ``obj`` of one rank, pickled on the way. Blocks.

    Args:
        obj: any picklable object; only that of the root matters.
        root_rank: the rank whose object all ranks get.
        session: the session to use in a graph; the default session by default.
        name: must be the same on all ranks.
        process_set: the ranks that take part.

    Returns:
        The root's object. The root gets its own.

    Example:
        >>> hvd.broadcast_object({"epoch": 3}, root_rank=0)
        {'epoch': 3}
    """
    name = _arguments.name(name) or "broadcast_object"
    root_rank = _arguments.root_rank(root_rank)
    content = _to_array(obj) if rank() == root_rank else np.zeros(0, np.uint8)

    def send(part: str) -> Callable[[Any], Any]:
        return lambda value: broadcast(value, root_rank, f"{name}.{part}", process_set=process_set)

    length = _evaluate(session, send("sz"), np.array([content.size], np.int64))
    if rank() != root_rank:
        content = np.zeros(int(length[0]), np.uint8)
    content = _evaluate(session, send("t"), content)
    return obj if rank() == root_rank else _pickling.loads(content.tobytes())


def broadcast_object_fn(
    root_rank: int = 0,
    session: Optional[Any] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Make a function that does the work of :func:`broadcast_object`, any number of times.

    In a graph its operations are built once, so you can call it after the graph is finalised.

    Args:
        root_rank, session, name, process_set: as for :func:`broadcast_object`.

    Returns:
        A function of one object.

    Example:
        >>> from_rank_0 = hvd.broadcast_object_fn(root_rank=0)
        >>> from_rank_0([1, 2])
        [1, 2]
    """
    name = _arguments.name(name) or "broadcast_object_fn"
    root_rank = _arguments.root_rank(root_rank)
    if tf.executing_eagerly():
        return lambda obj: broadcast_object(obj, root_rank, name=name, process_set=process_set)
    size_in = tf.compat.v1.placeholder(tf.int64, [1])
    content_in = tf.compat.v1.placeholder(tf.uint8, [None])
    size_out = broadcast(size_in, root_rank, f"{name}.sz", process_set=process_set)
    content_out = broadcast(content_in, root_rank, f"{name}.t", process_set=process_set)

    def send(obj: Any) -> Any:
        run = (session or default_session()).run
        is_root = rank() == root_rank
        content = _to_array(obj) if is_root else np.zeros(0, np.uint8)
        length = run(size_out, {size_in: [content.size]})
        content = run(content_out, {content_in: content if is_root else np.zeros(int(length[0]), np.uint8)})
        return obj if is_root else _pickling.loads(content.tobytes())

    return send


def allgather_object(
    obj: Any,
    session: Optional[Any] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Give all ranks of ``process_set`` the objects of all of them, pickled on the way. Blocks.

    Args:
        obj: any picklable object.
        session: the session to use in a graph; the default session by default.
        name: must be the same on all ranks.
        process_set: the ranks that take part.

    Returns:
        The objects, in the order of ranks.

    Example:
        >>> hvd.allgather_object("rank 0")
        ['rank 0']
    """
    name = _arguments.name(name) or "allgather_object"
    content = _to_array(obj)

    def gather(part: str) -> Callable[[Any], Any]:
        return lambda value: allgather(value, f"{name}.{part}", process_set=process_set)

    lengths = _evaluate(session, gather("sz"), np.array([content.size], np.int64))
    contents = _evaluate(session, gather("t"), content)
    ends = np.cumsum(lengths)
    return [_pickling.loads(contents[end - length : end].tobytes()) for end, length in zip(ends, lengths)]
