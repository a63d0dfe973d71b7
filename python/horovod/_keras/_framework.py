"""The interface through which Horovod for Keras uses the framework below Keras."""

from __future__ import annotations

import pickle
from typing import Any, Callable, Optional, Sequence

from horovod.common import _consistency
from horovod.common._arguments import compressor, process_set_id
from horovod.common._options import Options
from horovod.common._reduce_ops import Average
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set


class Framework:
    """A framework under Keras. A derived class adds the framework's collectives, and overrides methods."""

    Compression: Any  # the class of the framework's front end
    Gradients: Any  # a class derived from Gradients below: a distributed optimizer's work on gradients
    front_end: Any  # has the framework's allreduce, allgather, broadcast, reducescatter and broadcast_object

    def tensor(self, value: Any) -> Any:
        """``value``, an array or a nested list of numbers, as a tensor of the framework."""
        raise NotImplementedError

    def evaluated(self, tensor: Any) -> Any:
        """The result of a collective, as a user gets it."""
        return tensor

    def check_compression(self, compression: Any) -> Any:
        """``compression``; TypeError if it is no compression."""
        return compressor(compression)

    def prepare(self, is_distributed: Callable[[Any], bool]) -> None:
        """Called for each distributed optimizer of Keras 3. ``is_distributed`` says whether an optimizer is one."""

    def internal_error(self, error: BaseException) -> Optional[HorovodInternalError]:
        """The HorovodInternalError for an exception of the framework; None if it is not the error of a collective."""
        return None

    def is_share(self, variable: Any) -> bool:
        """Whether each rank has its own part of ``variable``, which belongs to a sharded optimizer."""
        return False

    def check_consistency(self, model: Any, process_set: ProcessSet = global_process_set) -> None:
        """Compare the trained variables of ``model`` on all ranks of ``process_set``, bit for bit. All of them call
        this. Blocks.

        Args:
            model: a model of Keras, or a list or a dict of variables.
            process_set: the ranks that take part.

        Raises:
            ConsistencyError: a variable differs. The message names it, and the ranks whose values differ from the
                majority's.
            TypeError: ``model`` is anything else.

        Example:
            >>> model = keras.Sequential([keras.layers.Dense(1)])
            >>> model.build((None, 2))
            >>> hvd.check_consistency(model)
        """
        process_set_id(process_set)  # raises the right error
        prints = _consistency.fingerprints_of_variables(model, self.values)
        gather = self.front_end.allgather_object
        _consistency.check(
            prints,
            _consistency.ranks_of(process_set),
            lambda obj, name: gather(obj, name=name, process_set=process_set),
        )

    def values(self, variable: Any) -> Any:
        """The variable in a form that NumPy can read."""
        return variable.numpy()

    def broadcast_object(self, obj: Any, root_rank: int) -> Any:
        """The picklable ``obj`` of ``root_rank``, on all ranks."""
        return self.front_end.broadcast_object(obj, root_rank=root_rank)

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """Overwrite variables of Keras with those of ``root_rank``, on all ranks of ``process_set``."""
        raise NotImplementedError

    def broadcast_global_variables(self, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
        """Overwrite all global variables of a graph of TensorFlow 1 with those of one rank.

        Args:
            root_rank: the rank whose variables all ranks get.
            process_set: the ranks that take part.

        Raises:
            RuntimeError: there are no global variables, as in eager mode and on other frameworks than TensorFlow.

        Example:
            >>> hvd.broadcast_global_variables(0)
            Traceback (most recent call last):
            RuntimeError: hvd.broadcast_global_variables() ...
        """
        raise RuntimeError(
            "hvd.broadcast_global_variables() is for graphs of TensorFlow. Use a BroadcastGlobalVariablesCallback "
            "instead."
        )

    def allreduce(
        self,
        value: Any,
        name: Optional[str] = None,
        average: Optional[bool] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: Optional[int] = None,
        compression: Any = None,  # a derived class has its Compression.none here
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """Reduce ``value`` over the ranks of ``process_set``: the average, unless ``op`` says otherwise. Blocks.

        Args:
            value: an array, or a value that can become one; shape and dtype must be equal on all ranks.
            name: the name by which ranks match their calls.
            average: deprecated form of ``op``: True is Average, False is Sum.
            prescale_factor: each element is multiplied by it before the reduction.
            postscale_factor: each element is multiplied by it after the reduction.
            op: a reduce operation of the framework's front end.
            compression: how the value travels, see ``Compression``.
            process_set: the ranks that take part.

        Returns:
            A tensor (on JAX an array); in a graph of TensorFlow 1 its value, which the session computes.

        Example:
            >>> np.asarray(hvd.allreduce([1.0, 2.0])).tolist()
            [1.0, 2.0]
        """
        reduced = self.front_end.allreduce(
            self.tensor(value),
            average=average,
            name=name,
            compression=self.check_compression(compression),
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return self.evaluated(reduced)

    def allgather(self, value: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
        """Concatenate the values of all ranks along their first dimension, which may differ. Blocks.

        Args:
            value: an array, or a value that can become one.
            name: the name by which ranks match their calls.
            process_set: the ranks that take part.

        Returns:
            A tensor (on JAX an array); in a graph of TensorFlow 1 its value, which the session computes.

        Example:
            >>> np.asarray(hvd.allgather([1.0, 2.0])).tolist()
            [1.0, 2.0]
        """
        return self.evaluated(self.front_end.allgather(self.tensor(value), name=name, process_set=process_set))

    def broadcast(
        self, value: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
    ) -> Any:
        """Copy the value of one rank to all ranks of ``process_set``. Blocks.

        Args:
            value: an array, or a value that can become one.
            root_rank: the rank whose value all ranks get, a rank of the world.
            name: the name by which ranks match their calls.
            process_set: the ranks that take part.

        Returns:
            A tensor (on JAX an array); in a graph of TensorFlow 1 its value, which the session computes.

        Example:
            >>> np.asarray(hvd.broadcast([1.0, 2.0], root_rank=0)).tolist()
            [1.0, 2.0]
        """
        sent = self.front_end.broadcast(self.tensor(value), root_rank, name=name, process_set=process_set)
        return self.evaluated(sent)

    def reducescatter(
        self, value: Any, name: Optional[str] = None, op: int = Average, process_set: ProcessSet = global_process_set
    ) -> Any:
        """Reduce ``value`` over the ranks of ``process_set``, and give each rank its rows. Blocks.

        Args:
            value: an array, or a value that can become one.
            name: the name by which ranks match their calls.
            op: Average or Sum.
            process_set: the ranks that take part.

        Returns:
            A tensor (on JAX an array); in a graph of TensorFlow 1 its value, which the session computes.

        Example:
            >>> np.asarray(hvd.reducescatter([1.0, 2.0])).tolist()
            [1.0, 2.0]
        """
        rows = self.front_end.reducescatter(self.tensor(value), name=name, op=op, process_set=process_set)
        return self.evaluated(rows)


class Gradients:
    """Reduces the gradients of one optimizer, except those of local variables."""

    def __init__(self, name: str, options: Options) -> None:
        self._name = name
        self._options = options
        self._local: dict[int, Any] = {}  # variables by their ids
        self._local_layers: list[Any] = []

    @property
    def adds_up(self) -> bool:
        """Whether gradients are added up over several passes before they are reduced."""
        return self._options.backward_passes_per_step > 1

    def copy(self) -> Gradients:
        """Another one with the same options, and the same local variables now and later."""
        other = type(self)(self._name, self._options)
        other._local, other._local_layers = self._local, self._local_layers
        return other

    def __reduce__(self) -> Any:
        options = self._options._asdict()
        own_set = options.pop("process_set") is not global_process_set
        if own_set or self._local or self._local_layers or isinstance(options["groups"], list):
            raise pickle.PicklingError(
                "a distributed optimizer with local variables, local layers, groups of variables or a process set "
                "cannot be pickled, because copies of these would not be those of the job that reads them. Pickle the "
                "optimizer that you gave to Horovod, and make a distributed one of the copy."
            )
        return _unpickled, (type(self), self._name, options)

    def register_local_var(self, variable: Any) -> None:
        """Keep the gradient of ``variable`` from being reduced."""
        self._local[id(variable)] = variable

    def register_local_layers(self, layers: Sequence[Any]) -> None:
        """Keep the gradients of the weights of ``layers`` from being reduced, also of weights that are made later."""
        self._local_layers.extend(layers)

    def _register_weights(self) -> None:
        """Register the weights that the local layers have now."""
        for layer in self._local_layers:
            for variable in layer.trainable_weights:
                self.register_local_var(variable)

    def apply(
        self, optimizer: Any, gradients: list[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        """``apply`` reduced gradients. While gradients are being added up, only count the step of ``optimizer``."""
        raise NotImplementedError


def _unpickled(kind: type[Gradients], name: str, options: dict[str, Any]) -> Gradients:
    """Gradients that are reduced by the ranks of this job."""
    return kind(name, Options(**options))
