"""Compression of gradients on their way through allreduce."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common import _facts, _lib
from horovod.tensorflow.mpi_ops import Average, Sum


class Compressor:
    """The interface of a compressor: two static methods, of which the second undoes the first as far as possible.

    Example:
        >>> class Halves(hvd.Compression.none):
        ...     @staticmethod
        ...     def compress(tensor):
        ...         return tensor / 2, None
        ...     @staticmethod
        ...     def decompress(tensor, ctx):
        ...         return tensor * 2
        >>> float(hvd.allreduce(tf.constant(1.0), compression=Halves))
        1.0
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Make the tensor that travels.

        Args:
            tensor: the program's tensor.

        Returns:
            The tensor to send, and the value that :meth:`decompress` needs.
        """
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Undo :meth:`compress`.

        Args:
            tensor: the result of the operation.
            ctx: the second result of :meth:`compress`.

        Returns:
            The tensor in its original form.
        """
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are.

    Example:
        >>> tensor, ctx = hvd.Compression.none.compress(tf.constant([1.0]))
        >>> tensor.dtype, ctx
        (tf.float32, None)
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Do nothing.

        Args:
            tensor: the tensor.

        Returns:
            The tensor itself, and None.
        """
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Do nothing.

        Args:
            tensor: the tensor.
            ctx: no effect.

        Returns:
            The tensor itself.
        """
        return tensor


class FP16Compressor(Compressor):
    """Sends floating-point tensors as float16, others as they are.

    Example:
        >>> tensor, ctx = hvd.Compression.fp16.compress(tf.constant([1.0]))
        >>> tensor.dtype, ctx
        (tf.float16, tf.float32)
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Convert floats to float16.

        Args:
            tensor: the tensor.

        Returns:
            A float16 copy and the original dtype; for other tensors the tensor itself and None.
        """
        if tensor.dtype.is_floating:
            return tf.cast(tensor, tf.float16), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Convert back.

        Args:
            tensor: the result of the operation.
            ctx: the original dtype, or None.

        Returns:
            The tensor in its original dtype.
        """
        return tensor if ctx is None else tf.cast(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends float32 and float64 tensors as bfloat16, others as they are.

    Example:
        >>> tensor, ctx = hvd.Compression.bf16.compress(tf.constant([1.0]))
        >>> tensor.dtype, ctx
        (tf.bfloat16, tf.float32)
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Convert float32 and float64 to bfloat16.

        Args:
            tensor: the tensor.

        Returns:
            A bfloat16 copy and the original dtype; for other tensors the tensor itself and None.
        """
        if tensor.dtype in _WIDE:
            return tf.cast(tensor, tf.bfloat16), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Convert back.

        Args:
            tensor: the result of the operation.
            ctx: the original dtype, or None.

        Returns:
            The tensor in its original dtype.
        """
        return tensor if ctx is None else tf.cast(tensor, ctx)


class EngineCompressor(Compressor):
    """Leaves sums and averages of float32 to the engine, which sends 8 bits a number; other types travel as they are.

    Example:
        >>> tensor, ctx = hvd.Compression.int8.compress(tf.constant([1]))
        >>> tensor.dtype, ctx
        (tf.int32, None)
    """

    wire: int
    form: str
    dtypes: frozenset[tf.DType]

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Refuse float32: only the engine compresses it, in an allreduce with Sum or Average.

        Args:
            tensor: the tensor.

        Returns:
            The tensor itself, and None.

        Raises:
            ValueError: the tensor is of float32.
        """
        if tensor.dtype in cls.dtypes:
            raise ValueError(
                f"Compression.{cls.form} is for allreduces of float32 with Sum or Average; use Compression.fp16 here"
            )
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Do nothing.

        Args:
            tensor: the result of the operation.
            ctx: no effect.

        Returns:
            The tensor itself.
        """
        return tensor


def is_engines(compression: Any) -> bool:
    """Whether ``compression`` is an :class:`EngineCompressor`."""
    return isinstance(compression, type) and issubclass(compression, EngineCompressor)


def _of_engine(form: str) -> type[EngineCompressor]:
    """The class for one of the engine's forms, made when it is first asked for."""
    wire = _facts.kept_wire(form)
    name = f"{form.upper()}Compressor"
    if name not in globals():
        dtypes = frozenset(getattr(tf, dtype) for dtype in wire.types)
        members = {"wire": wire.number, "form": form, "dtypes": dtypes, "__module__": __name__}
        globals()[name] = type(name, (EngineCompressor,), members)
    return globals()[name]


def __getattr__(name: str) -> Any:
    """``INT8Compressor`` and others, where a program unpickles them before it asks for them."""
    form, compressor, rest = name.partition("Compressor")
    if not compressor or rest or not form.isupper():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _of_engine(form.lower())


class _Forms(type):
    """The type of :class:`Compression`, whose attributes are also the engine's own forms, by their names."""

    def __getattr__(cls, form: str) -> type[EngineCompressor]:
        return _of_engine(form)

    def __dir__(cls) -> list[str]:
        return [*super().__dir__(), *(form for form, wire in _facts.wires().items() if wire.keeps)]


class Compression(metaclass=_Forms):
    """The compressors to choose from. You can also use a class of your own.

    In an allreduce with Sum or Average, ``fp16`` and ``bf16`` leave float32 and float64 tensors to the engine: it
    rounds them where they travel between hosts, and nowhere else. Otherwise a tensor is compressed before the
    operation, and decompressed after it.

    ``int8`` and ``fp8`` send 8 bits a number. They are for sums and averages of float32 in tensors with a name: each
    rank keeps the rounding errors of a tensor by its name and process set, and adds them to the next allreduce of that
    name. So they do not accumulate over the steps of a training. Blocks of 32 numbers have a common scale. The numbers
    of ``int8`` are integers; those of ``fp8`` are floats, so that the small ones of a block lose less.

    Example:
        >>> import tensorflow as tf
        >>> hvd.allreduce(tf.constant([1.0]), compression=hvd.Compression.fp16).numpy().tolist()
        [1.0]
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


_WIDE = (tf.float32, tf.float64)


def wire_of(compression: Any, tensor: tf.Tensor, op: int) -> int:
    """The form in which the engine sends ``tensor`` between hosts, in an allreduce with ``op``."""
    if compression is FP16Compressor:
        wire = _lib.WIRE_FP16
    elif compression is BF16Compressor:
        wire = _lib.WIRE_BF16
    elif is_engines(compression) and tensor.dtype in compression.dtypes:
        wire = compression.wire
    else:
        return _lib.WIRE_AS_IT_IS
    return wire if op in (Sum, Average) and tensor.dtype in _WIDE else _lib.WIRE_AS_IT_IS


def prepare(compression: Any, tensor: tf.Tensor, op: int) -> tuple[tf.Tensor, Any, int]:
    """The tensor for an allreduce with ``op``, the context for ``compression.decompress``, and :func:`wire_of` it."""
    wire = wire_of(compression, tensor, op)
    return (tensor, None, wire) if wire else (*compression.compress(tensor), wire)
