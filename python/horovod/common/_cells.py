"""The memory of operations under way: ``gorovod_enqueue`` reads it, and the engine writes the operation's status to it.

A *cell* holds a ``gorovod_op`` (see ``include/gorovod.h``), the name and the shape that this points to, and the status
that the engine writes when the operation has ended. Cells are reused. So a submission costs one packing of numbers and
one call, and the end is visible without a call.

The submitting calls keep the GIL: they never wait for another rank, and if they released the GIL, another thread could
keep it for milliseconds. The engine never calls Python while it holds a lock of its own.
"""

from __future__ import annotations

import array
import ctypes
import struct
from typing import Any, Generic, Optional, Sequence, TypeVar

from horovod.common import _lib

# Flag: the caller waits at once, so the engine need not wake its background goroutine.
WILL_WAIT = 1
# Flag: the engine releases the handle if the operation succeeds.
RELEASE_IF_OK = 2
# Flag: input and output are copies, in host memory, of a device's memory.
COPIED = 8
# Flag of an allgather: the caller is going to add up what the ranks contribute.
ADDS_UP = 16

_HOST_MEMORY = -1


class _Op(ctypes.Structure):
    """``gorovod_op``."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("type", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("reduce_op", ctypes.c_int32),
        ("root_rank", ctypes.c_int32),
        ("process_set", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("priority", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("shape", ctypes.c_void_p),
        ("name", ctypes.c_void_p),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("alloc", ctypes.c_void_p),
        ("ready", ctypes.c_void_p),
        ("done", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("splits", ctypes.c_void_p),
        ("nsplits", ctypes.c_int32),
        ("wire", ctypes.c_int32),
        ("status", ctypes.c_void_p),
        ("stream", ctypes.c_int64),
        ("input_of", ctypes.c_void_p),
        ("output_of", ctypes.c_void_p),
        ("device_stream", ctypes.c_size_t),
    ]


class _GivenMemory(ctypes.Structure):
    """``gorovod_memory``."""

    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class _Event(ctypes.Structure):
    """``gorovod_event``."""

    _fields_ = [("query", ctypes.c_void_p), ("event", ctypes.c_void_p), ("pending", ctypes.c_int)]


class DeviceEvent:
    """Work that a device has yet to do, such as a copy.

    ``address`` is CUDA's (or another library's) handle of it, and ``keep`` keeps that valid. ``query`` is the address
    of a C function, which takes this handle and returns ``pending`` until the work is done. Any thread may call it.
    """

    __slots__ = ("_keep", "memory")

    def __init__(self, keep: object, address: int, query: int, pending: int) -> None:
        self._keep = keep
        self.memory = _Event(query, address, pending)

    def is_complete(self) -> bool:
        """Whether the work is done. Asking disturbs no capture of a graph."""
        return bool(_library.gorovod_event_complete(ctypes.byref(self.memory)))


# A longer name or shape gets memory of its own.
_NAME_BYTES = 256
_DIMS = 8


class _Memory(ctypes.Structure):
    """A cell. The fields from the name to the output are packed anew for each operation."""

    _fields_ = [
        ("handle", ctypes.c_int64),
        ("status", ctypes.c_int32),
        ("name", ctypes.c_char * _NAME_BYTES),
        ("shape", ctypes.c_int64 * _DIMS),
        ("op", _Op),
        ("given", _GivenMemory),  # for the extension; others have it in Cell._extra
        ("_", ctypes.c_int64 * 2),  # the statuses are in cache lines of their own
    ]


_BYTES = ctypes.sizeof(_Memory)
_OP_SIZE = ctypes.sizeof(_Op)
_AT_NAME, _AT_OP, _AT_STATUS = _Memory.name.offset, _Memory.op.offset, _Memory.status.offset
_AT_STREAM = _AT_OP + _Op.stream.offset
_AT_ONCE = 64  # how many cells are made at a time
# How cells are laid out, which the extension (shim/python) compares with its own.
LAYOUT = (_BYTES, _AT_STATUS, _AT_NAME, _Memory.shape.offset, _AT_OP, _OP_SIZE, _Memory.given.offset)

_NAME = f"{_NAME_BYTES - 1}sx{_Memory.shape.offset - _AT_NAME - _NAME_BYTES}x"
_SHAPE = f"{8 * _DIMS}s"
_NUMBERS = "2I8i2d4Q"

_pack = struct.Struct(f"={_NAME}{_SHAPE}{_NUMBERS}").pack_into
assert struct.calcsize(f"={_NAME}{_SHAPE}") == _AT_OP - _AT_NAME
assert struct.calcsize(f"={_NUMBERS}") == _Op.alloc.offset
assert _Memory.handle.offset == 0 and _BYTES % 8 == 0
# Packs a shape, by the number of dimensions. A call of its own is cheaper than *shape among other arguments.
_lengths = [struct.Struct(f"={n}q").pack for n in range(_DIMS + 1)]


class Cell:
    """Memory for one operation at a time. ``words[word]`` is its status, ``_lib.IN_PROGRESS`` until its end.

    ``keeps`` belongs to the submitter: it keeps objects alive until then. ``flags`` are the operation's flags.
    """

    __slots__ = (
        "_extra",
        "_free",
        "_handle",
        "_handles",
        "_memory",
        "_stream",
        "_streamed",
        "_view",
        "address",
        "flags",
        "handle_ref",
        "keeps",
        "name_address",
        "op_ref",
        "shape_address",
        "start",
        "word",
        "words",
    )

    def __init__(self, free: list[Any], memory: Any, view: memoryview, index: int) -> None:
        self._free, self._view, self._handles, self.words = free, view, view.cast("q"), view.cast("i")
        self._handle = index * _BYTES // 8
        self._stream, self._streamed = self._handle + _AT_STREAM // 8, False
        self.keeps: Any = None
        self.flags = 0
        self.start = index * _BYTES + _AT_NAME
        self.word = (index * _BYTES + _AT_STATUS) // 4
        self._memory = own = memory[index]
        self._extra: Optional[list] = None  # keeps memory alive that the engine uses: a long name, splits, events
        base = ctypes.addressof(own)
        self.address = base + _AT_OP
        self.name_address = base + _AT_NAME
        self.shape_address = base + _Memory.shape.offset
        self.op_ref = ctypes.byref(own, _AT_OP)
        self.handle_ref = ctypes.byref(own)
        own.op.status = base + _AT_STATUS

    @property
    def handle(self) -> int:
        """The engine's handle. If the engine was to release it at the end, it is invalid after the end."""
        return self._handles[self._handle]

    @property
    def name(self) -> Optional[bytes]:
        """The operation's name, if the submitter gave it one. Slow."""
        address = self._memory.op.name
        return None if address is None else ctypes.string_at(address)

    def set_splits(self, splits: Sequence[int]) -> None:
        """Set how many rows go to each member. Raises ValueError for a number that does not fit into C's type."""
        rows = _lib.array_type(ctypes.c_int32, len(splits))(*(_lib.int32(rows, "split") for rows in splits))
        self._extra = [self._extra, rows]
        self._memory.op.splits, self._memory.op.nsplits = ctypes.addressof(rows), len(splits)

    def give_output(self, address: int, size: int) -> None:
        """Make an allgather or alltoall write its output, which must have ``size`` bytes, to ``address``."""
        memory = _GivenMemory(address, size)
        self._extra = [self._extra, memory]
        op = self._memory.op
        op.alloc, op.context = _given_output, ctypes.addressof(memory)
        if size == 0:
            memory.data = op.context  # any address: a tensor without elements has none, and the engine refuses NULL

    def wait_for(self, event: DeviceEvent) -> None:
        """Keep the engine from reading the input before the event. Not together with :meth:`give_output`."""
        self._extra = [self._extra, event]
        op = self._memory.op
        op.ready, op.context = _event_complete, ctypes.addressof(event.memory)

    def on_device(self, device: int, stream: int) -> None:
        """Say that input and output are a CUDA device's; the work given to ``stream`` so far makes the input."""
        self._extra = [self._extra]
        op = self._memory.op
        op.device, op.device_stream = device, stream

    @property
    def device(self) -> int:
        """The CUDA device of input and output; -1 for host memory."""
        return self._memory.op.device

    def set_wire(self, wire: int) -> None:
        """Set the form in which the operation travels between hosts."""
        self._extra = [self._extra]
        self._memory.op.wire = wire

    def stand_for(self, input: int, output: int) -> None:
        """Say of which addresses input and output are copies; 0 if they are none."""
        self._extra = [self._extra]
        op = self._memory.op
        op.input_of, op.output_of = input, output

    def set_stream(self, stream: int) -> None:
        """Order the operation after the operations of this stream, other than 0, that use its memory."""
        self._handles[self._stream], self._streamed = stream, True

    def take_over(self) -> None:
        """Take note of an operation that the extension has described and submitted: :meth:`free` then clears all."""
        self._extra, self._streamed = [], True

    def _set_large(self, name: Optional[bytes], shape: Sequence[int]) -> None:
        lengths = _lib.array_type(ctypes.c_int64, len(shape))(*shape)
        text = name if name is None else ctypes.create_string_buffer(name)
        self._extra = [lengths, text]
        op = self._memory.op
        op.shape, op.ndim = ctypes.addressof(lengths), len(shape)
        op.name = text if text is None else ctypes.addressof(text)

    def free(self) -> None:
        """Let another operation have the memory. Nobody may use it for this operation any more, nor the engine."""
        if self._extra is not None:
            self._extra = None
            op = self._memory.op
            op.splits, op.nsplits, op.wire, op.device_stream = None, 0, 0, 0
            op.alloc = op.ready = op.context = op.input_of = op.output_of = None
        if self._streamed:
            self._handles[self._stream], self._streamed = 0, False
        self.keeps = None
        self._free.append(self)


AnyCell = TypeVar("AnyCell", bound=Cell)


class Pool(Generic[AnyCell]):
    """Cells of one class, made on demand, and then reused."""

    def __init__(self, cell_class: type[AnyCell]) -> None:
        self.cell_class = cell_class
        self.free: list[AnyCell] = []  # the last one is the next one; the extension takes and returns cells, too

    def grow(self) -> None:
        """Make more cells."""
        memory = (_Memory * _AT_ONCE)()
        view = memoryview(memory).cast("B")
        cells = [self.cell_class(self.free, memory, view, i) for i in range(_AT_ONCE)]
        cells.reverse()
        self.free.extend(cells)

    def describe(
        self,
        name: Optional[bytes],
        shape: Sequence[int],
        flags: int,
        kind: int,
        dtype: int,
        reduce_op: int,
        root_rank: int,
        process_set: int,
        prescale: float,
        postscale: float,
        input: int,
        output: int,
    ) -> AnyCell:
        """Describe an operation on memory at the address ``input``; see ``gorovod_op``. 0 is no address.

        The memory is the host's, unless :meth:`Cell.on_device` says otherwise.

        Raises ValueError for a number that does not fit into C's type, TypeError for anything that is no number.
        """
        while True:  # other threads may take what grow has made
            try:
                cell = self.free.pop()
                break
            except IndexError:
                self.grow()
        cell.flags = flags
        ndim = len(shape)
        large = ndim > _DIMS or (name is not None and len(name) >= _NAME_BYTES)
        try:
            lengths = b"" if large else _lengths[ndim](*shape)
            _pack(
                cell._view, cell.start, b"" if name is None or large else name, lengths,
                _OP_SIZE, flags, kind, dtype, reduce_op, root_rank, process_set, _HOST_MEMORY, 0, ndim,
                prescale, postscale, cell.shape_address, 0 if name is None else cell.name_address, input, output,
            )  # fmt: skip
            if large:
                cell._set_large(name, shape)
        except struct.error as e:
            cell.free()
            _lib.int32(reduce_op, "reduce operation")
            _lib.int32(root_rank, "root rank")
            _lib.int32(process_set, "process set id")
            raise TypeError(f"prescale factor {prescale!r} or postscale factor {postscale!r}: {e}") from None
        return cell


describe = Pool(Cell).describe

_library = ctypes.PyDLL(str(_lib.path()))
_enqueue, _enqueue_group = _library.gorovod_enqueue, _library.gorovod_enqueue_group
_enqueue.restype = _enqueue_group.restype = ctypes.c_int
_given_output = ctypes.cast(_library.gorovod_given_output, ctypes.c_void_p).value
_event_complete = ctypes.cast(_library.gorovod_event_complete, ctypes.c_void_p).value


def enqueue(cell: Cell) -> None:
    """Submit the operation. Raises as ``_lib.error`` says.

    The cell and the tensor's memory must stay valid and untouched until the operation has ended.
    """
    status = _enqueue(cell.op_ref, cell.handle_ref)
    if status != _lib.OK:
        raise _lib.error(status)


def enqueue_group(name: Optional[bytes], cells: Sequence[Cell]) -> None:
    """Submit operations that start together, all or none. The i-th of n without a name is called NAME_iofn, from i = 1.

    Without ``name`` the engine names the group. Otherwise as :func:`enqueue`.
    """
    n = len(cells)
    ops = array.array("Q", [cell.address for cell in cells]).tobytes()
    handles = _lib.array_type(ctypes.c_int64, n)()
    status = _enqueue_group(name, ops, n, handles)
    if status != _lib.OK:
        raise _lib.error(status)
    for cell, handle in zip(cells, handles[:]):
        cell._handles[cell._handle] = handle
