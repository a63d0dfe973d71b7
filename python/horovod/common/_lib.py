"""The binding of libgorovod.so. Only this module uses it, and ``_cells``, which submits operations.

The library is looked for at ``$GOROVOD_LIBRARY``, then at ``horovod/lib/libgorovod.so`` (its place in a wheel), then at
``build/libgorovod.so`` of the checkout that has this file. ``include/gorovod.h`` describes the C interface.

Every call of this module releases the GIL. ``gorovod_last_error`` belongs to the calling thread: to get the reason for
a failure, ask in the thread that made the call.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import resource
import weakref
from pathlib import Path
from typing import Any, Optional, Sequence, Union

from horovod.common.exceptions import HorovodInternalError

FILE_NAME = "libgorovod.so"

# Status codes.
OK = 0
UNKNOWN_ERROR = 1
PRECONDITION_ERROR = 2
ABORTED = 3
INVALID_ARGUMENT = 4
IN_PROGRESS = 5
STORAGE_ERROR = 6

# Element types.
UINT8 = 0
INT8 = 1
UINT16 = 2
INT16 = 3
INT32 = 4
INT64 = 5
FLOAT16 = 6
FLOAT32 = 7
FLOAT64 = 8
BOOL = 9
BFLOAT16 = 10
FLOAT8_E4M3FN = 11
FLOAT8_E5M2 = 12

# Reduce operations.
AVERAGE = 0
SUM = 1
ADASUM = 2

# How an allreduce travels between hosts.
WIRE_AS_IT_IS = 0
WIRE_FP16 = 1
WIRE_BF16 = 2

# Operations.
ALLREDUCE = 0
ALLGATHER = 1
BROADCAST = 2
JOIN = 3
ALLTOALL = 5
BARRIER = 6
REDUCESCATTER = 7
GATHER = 69
SCATTER = 70
NAMED_BARRIER = 71

# This process's part in an elastic job.
NOT_ELASTIC = 0
ELASTIC_MEMBER = 1
ELASTIC_DISMISSED = 2
ELASTIC_ABANDONED = 3

# The longest wait in C in one call, because Python handles signals (Ctrl-C) only between two calls.
WAIT_SLICE_MS = 100

_int_p = ctypes.POINTER(ctypes.c_int)
_int32_p = ctypes.POINTER(ctypes.c_int32)
_int64_p = ctypes.POINTER(ctypes.c_int64)
_uint64_p = ctypes.POINTER(ctypes.c_uint64)
_size_p = ctypes.POINTER(ctypes.c_size_t)
_uint16_p = ctypes.POINTER(ctypes.c_uint16)
_void_pp = ctypes.POINTER(ctypes.c_void_p)

# name: (result, arguments)
_PROTOTYPES = {
    "horovod_init": (ctypes.c_bool, [_int_p, ctypes.c_int, _int_p, _int_p, ctypes.c_int]),
    "horovod_init_multi_comm": (ctypes.c_bool, [ctypes.c_char_p, ctypes.c_int, _int_p, _int_p, ctypes.c_int]),
    "horovod_comm_process_set": (ctypes.c_int, [ctypes.c_void_p]),
    "horovod_shutdown": (None, []),
    "horovod_is_initialized": (ctypes.c_int, []),
    "horovod_rank": (ctypes.c_int, []),
    "horovod_size": (ctypes.c_int, []),
    "horovod_local_rank": (ctypes.c_int, []),
    "horovod_local_size": (ctypes.c_int, []),
    "horovod_cross_rank": (ctypes.c_int, []),
    "horovod_cross_size": (ctypes.c_int, []),
    "horovod_is_homogeneous": (ctypes.c_bool, []),
    "horovod_start_timeline": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_bool]),
    "horovod_stop_timeline": (ctypes.c_int, []),
    "horovod_mpi_threads_supported": (ctypes.c_int, []),
    "horovod_mpi_enabled": (ctypes.c_bool, []),
    "horovod_mpi_built": (ctypes.c_bool, []),
    "horovod_gloo_enabled": (ctypes.c_bool, []),
    "horovod_gloo_built": (ctypes.c_bool, []),
    "horovod_nccl_built": (ctypes.c_int, []),
    "horovod_ddl_built": (ctypes.c_bool, []),
    "horovod_ccl_built": (ctypes.c_bool, []),
    "horovod_cuda_built": (ctypes.c_bool, []),
    "horovod_rocm_built": (ctypes.c_bool, []),
    "horovod_reduce_op_average": (ctypes.c_int, []),
    "horovod_reduce_op_sum": (ctypes.c_int, []),
    "horovod_reduce_op_adasum": (ctypes.c_int, []),
    "horovod_reduce_op_min": (ctypes.c_int, []),
    "horovod_reduce_op_max": (ctypes.c_int, []),
    "horovod_reduce_op_product": (ctypes.c_int, []),
    "horovod_add_process_set": (ctypes.c_int, [_int_p, ctypes.c_int]),
    "gorovod_keep_process_sets": (ctypes.c_int, []),
    "gorovod_add_process_set_of_the_rest": (ctypes.c_int, [_int_p, ctypes.c_int]),
    "horovod_remove_process_set": (ctypes.c_int, [ctypes.c_int]),
    "horovod_process_set_rank": (ctypes.c_int, [ctypes.c_int]),
    "horovod_process_set_size": (ctypes.c_int, [ctypes.c_int]),
    "horovod_process_set_included": (ctypes.c_int, [ctypes.c_int]),
    "horovod_number_of_process_sets": (ctypes.c_int, []),
    "horovod_process_set_ids": (None, [_int_p]),
    "horovod_process_set_ranks": (ctypes.c_int, [ctypes.c_int, _int_p]),
    "gorovod_wait": (ctypes.c_int, [ctypes.c_int64, ctypes.c_int64]),
    "gorovod_output": (ctypes.c_int, [ctypes.c_int64, _void_pp, ctypes.c_int, _int_p, _int64_p]),
    "gorovod_take_output": (ctypes.c_int, [ctypes.c_int64, _void_pp]),
    "gorovod_free": (None, [ctypes.c_void_p]),
    "gorovod_takes_device": (ctypes.c_int, [ctypes.c_int]),
    "gorovod_await_on_stream": (ctypes.c_int, [ctypes.c_int64, ctypes.c_size_t]),
    "gorovod_settle": (ctypes.c_int, [ctypes.c_int64]),
    "gorovod_free_on_device": (None, [ctypes.c_int, ctypes.c_void_p]),
    "gorovod_free_on_stream": (None, [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]),
    "gorovod_on_low_memory": (None, [ctypes.c_void_p]),
    "gorovod_received_splits": (ctypes.c_int, [ctypes.c_int64, ctypes.c_int, _int32_p]),
    "gorovod_last_joined": (ctypes.c_int, [ctypes.c_int64]),
    "gorovod_name": (ctypes.c_char_p, [ctypes.c_int64]),
    "gorovod_on_done": (ctypes.c_int, [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]),
    "gorovod_send": (
        ctypes.c_int,
        [ctypes.c_int, ctypes.c_uint32, ctypes.c_uint16, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64],
    ),
    "gorovod_recv": (
        ctypes.c_int,
        [ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, _size_p, _uint16_p, ctypes.c_int64],
    ),
    "gorovod_recv_among": (
        ctypes.c_int,
        [_int_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, _int_p, _size_p, _uint16_p]
        + [ctypes.c_int64],
    ),
    "gorovod_serve": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, _int_p]),
    "gorovod_elastic": (ctypes.c_int, []),
    "gorovod_elastic_updates": (ctypes.c_int, [_int64_p]),
    "gorovod_elastic_await": (ctypes.c_int, [ctypes.c_int64]),
    "gorovod_elastic_committed": (None, [ctypes.c_int64]),
    "gorovod_elastic_intact": (None, []),
    "gorovod_elastic_needs_sync": (ctypes.c_int, []),
    "gorovod_checkpoint_due": (ctypes.c_int, [ctypes.c_int64, ctypes.c_int]),
    "gorovod_checkpoint_save": (ctypes.c_int, [ctypes.c_int64, ctypes.c_char_p, ctypes.c_size_t]),
    "gorovod_checkpoint_load": (ctypes.c_int, [_int64_p, _void_pp, _size_p]),
    "gorovod_fail": (None, [ctypes.c_char_p]),
    "gorovod_failure": (ctypes.c_char_p, []),
    "gorovod_release": (ctypes.c_int, [ctypes.c_int64]),
    "gorovod_last_error": (ctypes.c_char_p, []),
    "gorovod_version": (ctypes.c_char_p, []),
    "gorovod_facts": (ctypes.c_char_p, []),
    "gorovod_cuda_report": (None, [ctypes.c_int, ctypes.c_int]),
    "gorovod_nccl_report": (None, [ctypes.c_int, ctypes.c_int]),
    "gorovod_await_nccl_built": (ctypes.c_int, [ctypes.c_int64]),
    "gorovod_usable_nccl": (ctypes.c_int, [ctypes.c_int]),
    "gorovod_table_create": (ctypes.c_int, [ctypes.c_void_p, _int64_p]),
    "gorovod_table_reserve": (ctypes.c_int64, []),
    "gorovod_table_rows": (ctypes.c_int64, [ctypes.c_int64]),
    "gorovod_lookup": (
        ctypes.c_int,
        [ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, _int64_p, _int64_p],
    ),
    "gorovod_pull": (ctypes.c_int, [ctypes.c_int, _int64_p, _void_pp, ctypes.c_uint32, _int64_p]),
    "gorovod_push": (ctypes.c_int, [ctypes.c_int, _int64_p, _void_pp, ctypes.c_float, ctypes.c_uint32, _int64_p]),
    "gorovod_lookup_release": (None, [ctypes.c_int64]),
    "gorovod_table_save": (ctypes.c_int, [ctypes.c_int64, ctypes.c_char_p]),
    "gorovod_table_load": (ctypes.c_int, [ctypes.c_int64, ctypes.c_char_p]),
    "gorovod_table_commit": (ctypes.c_int, [ctypes.c_int64, ctypes.c_int64, ctypes.c_int]),
    "gorovod_table_restore": (ctypes.c_int, [ctypes.c_int64, ctypes.c_int64, ctypes.c_int]),
    "gorovod_table_pushes": (ctypes.c_int64, [ctypes.c_int64]),
    "gorovod_table_copy": (
        ctypes.c_int64,
        [ctypes.c_int64, _int32_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "gorovod_share": (ctypes.c_int64, [ctypes.c_int64, ctypes.c_int, ctypes.c_int]),
    "gorovod_share_begin": (ctypes.c_int64, [ctypes.c_int64, ctypes.c_int, ctypes.c_int]),
    "gorovod_digest": (None, [ctypes.c_void_p, ctypes.c_size_t, _uint64_p]),
    "gorovod_consistency_steps": (ctypes.c_int, []),
    "gorovod_metrics": (ctypes.c_void_p, []),
    "gorovod_count_samples": (ctypes.c_int, [ctypes.c_int64]),
    "gorovod_offer_stack": (ctypes.c_int, [_uint64_p, ctypes.c_char_p, ctypes.c_char_p]),
    "gorovod_counters": (ctypes.c_int, [_int64_p, ctypes.c_int]),
}


def path() -> Path:
    """Path of the library. Raises ImportError with advice if there is none."""
    explicit = os.environ.get("GOROVOD_LIBRARY")
    if explicit:
        if not Path(explicit).is_file():
            raise ImportError(f"GOROVOD_LIBRARY is {explicit}, which is not a file")
        return Path(explicit)
    package = Path(__file__).resolve().parent.parent
    candidates = (package / "lib" / FILE_NAME, package.parent.parent / "build" / FILE_NAME)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    places = " nor at ".join(str(candidate) for candidate in candidates)
    raise ImportError(
        f"{FILE_NAME} is neither at {places}. In a checkout, build it with `make build`; otherwise reinstall the "
        "package, or set GOROVOD_LIBRARY to the file."
    )


# Whether this process is a forked child of the process that loaded the library. Such a child must not use the library.
forked = False


def _after_fork() -> None:
    global forked
    forked = True


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The library, loaded on the first call. Raises ImportError if it is missing or unusable."""
    file = path()
    try:
        library = ctypes.CDLL(str(file))
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as e:
        raise ImportError(f"{file} cannot be used: {e}") from e
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    if limited and not library.gorovod_version():  # otherwise no call here waits for Go's runtime
        raise ImportError((library.gorovod_last_error() or b"").decode(errors="replace"))
    os.register_at_fork(after_in_child=_after_fork)
    return library


def last_error() -> str:
    """The reason for this thread's last failed call, or an empty string."""
    return (load().gorovod_last_error() or b"").decode(errors="replace")


def error(status: int) -> Exception:
    """This thread's last failure: ValueError for a bad argument, OSError for a file, else HorovodInternalError."""
    reason = last_error() or f"operation failed with status {status}"
    return {INVALID_ARGUMENT: ValueError, STORAGE_ERROR: OSError}.get(status, HorovodInternalError)(reason)


def not_initialized() -> ValueError:
    """The error of a call before init, after shutdown, or in a forked child."""
    if forked:
        return ValueError(
            "Horovod cannot be used in a forked child of the process that imported it, such as a DataLoader worker; "
            "use it in the parent, or start the child with the spawn method."
        )
    return ValueError("Horovod has not been initialized; use hvd.init().")


def int32(value: int, what: str) -> int:
    """``value`` as C's int. Raises ValueError, with ``what``, if it does not fit; ctypes would cut it.

    TypeError unless it is an integer.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {value!r}") from None
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError(f"{what} {number} is out of range: it must fit into 32 bits.")
    return number


@functools.lru_cache(maxsize=None)
def array_type(element: Any, length: int) -> Any:
    """The ctypes type of ``length`` elements."""
    return element * length


def wait(handle: int) -> int:
    """Wait for the operation's end and return its status. A signal's Python handler runs within 100 ms."""
    gorovod_wait = load().gorovod_wait
    while True:
        status = gorovod_wait(handle, WAIT_SLICE_MS)
        if status != IN_PROGRESS:
            return status


def output(handle: int, ndim: int) -> tuple[Optional[int], tuple[int, ...]]:
    """Address and shape of an output that the engine owns. It has ``ndim`` dimensions, as many as the input.

    The address is valid until the release, or until :func:`take_output`. A finished allgather, alltoall or
    reducescatter has such an output, unless it was submitted with its own.
    """
    data, dims, shape = ctypes.c_void_p(), ctypes.c_int(), array_type(ctypes.c_int64, ndim)()
    status = load().gorovod_output(handle, data, ndim, dims, shape)
    if status != OK:
        raise error(status)
    if dims.value != ndim:
        raise HorovodInternalError(f"the output has {dims.value} dimensions, where {ndim} were expected")
    return data.value, tuple(shape)


def take_output(handle: int, size: int) -> memoryview:
    """The ``size`` bytes at the address from :func:`output`, as a view. From now on the view owns them.

    They outlive the engine, and are ordinary memory in a forked child. ``size`` must not be 0.
    """
    data = ctypes.c_void_p()
    status = load().gorovod_take_output(handle, data)
    if status != OK:
        raise error(status)
    view = _memory_view(data.value, size, _WRITABLE)
    owner = weakref.finalize(view, load().gorovod_free, data.value)
    owner.atexit = False  # a view may still be read while Python exits
    return view


def take_output_address(handle: int) -> int:
    """The address from :func:`output`, whose memory belongs to the caller from now on.

    It is for outputs in a device's memory: free them with ``gorovod_free_on_device``.
    """
    data = ctypes.c_void_p()
    status = load().gorovod_take_output(handle, data)
    if status != OK:
        raise error(status)
    return data.value or 0


_WRITABLE = 0x200  # PyBUF_WRITE
_memory_view = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_view.restype = ctypes.py_object
_memory_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)


def rank_and_size(process_set: int) -> Optional[tuple[int, int]]:
    """This process's rank in the set, and the set's size; None if it is no member, or if there is no such set."""
    number = int32(process_set, "process set id")
    rank, size = load().horovod_process_set_rank(number), load().horovod_process_set_size(number)
    return None if rank < 0 or size < 0 else (rank, size)


def received_splits(handle: int) -> list[int]:
    """How many rows a finished alltoall has brought from each member."""
    function = load().gorovod_received_splits
    size = function(handle, 0, None)
    rows = array_type(ctypes.c_int32, max(size, 0))()
    if size < 0 or function(handle, size, rows) < 0:
        raise error(UNKNOWN_ERROR)
    return list(rows)


def last_joined(handle: int) -> int:
    """The rank that joined last, after a finished join."""
    rank = load().gorovod_last_joined(handle)
    if rank < 0:
        raise error(UNKNOWN_ERROR)
    return rank


def name(handle: int) -> str:
    """The operation's name. The engine has chosen it if the submitter did not."""
    return (load().gorovod_name(handle) or b"").decode(errors="replace")


def release(handle: int) -> None:
    """Forget the handle, and free the output that the engine owns."""
    load().gorovod_release(handle)


def int_array(values: Sequence[int]) -> ctypes.Array:
    """``values`` as a C array of int. Raises ValueError for one that does not fit."""
    return (ctypes.c_int * len(values))(*(int32(value, "value") for value in values))


Done = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_char_p)


def on_done(handle: int, done: Any, context: int) -> None:
    """Call ``done``, a :data:`Done` that lives for ever, with ``context`` (not 0) at the operation's end.

    A thread of the engine calls it, once, perhaps before this function returns. Raises as :func:`error` says, also if
    the operation already has such a callback.
    """
    status = load().gorovod_on_done(handle, ctypes.cast(done, ctypes.c_void_p), context)
    if status != OK:
        raise error(status)


def send(to: int, tag: int, label: int, address: int, size: int, timeout_ms: int = -1) -> None:
    """Send a message of ``size`` bytes to a rank, and return when the memory may be reused. Raises as :func:`error`.

    ``label``, of 16 bits, travels with the message.
    """
    status = load().gorovod_send(to, tag, label, address, size, timeout_ms)
    if status != OK:
        raise error(status)


def recv(source: Union[int, Sequence[int], None], tag: int, address: int, size: int) -> tuple[int, int, int]:
    """Wait for a message of at most ``size`` bytes, from a rank, from any of several, or from any if ``source``
    is None.

    Returns the sender, the length and the label. A message that is longer than ``size`` is not received: it stays for
    the next call. Raises as :func:`error` says.
    """
    received, label = ctypes.c_size_t(), ctypes.c_uint16()
    sender = ctypes.c_int(source if isinstance(source, int) else -1)
    if isinstance(source, int):
        status = load().gorovod_recv(source, tag, address, size, received, label, -1)
    else:
        ranks = None if source is None else (ctypes.c_int * len(source))(*source)
        count = 0 if source is None else len(source)
        status = load().gorovod_recv_among(ranks, count, tag, address, size, sender, received, label, -1)
    if status != OK and received.value <= size:
        raise error(status)
    return sender.value, received.value, label.value


def serve(host: str, key: bytes, size: int) -> int:
    """Serve the rendezvous of a job of ``size`` ranks in this process, and return its port on address ``host``."""
    port = ctypes.c_int()
    status = load().gorovod_serve(host.encode(), key, len(key), size, port)
    if status != OK:
        raise error(status)
    return port.value


def elastic_updates() -> tuple[int, int]:
    """Time stamp and kind of the driver's news of the hosts since the last init, once; (0, 0) if there is none."""
    stamp = ctypes.c_int64()
    result = load().gorovod_elastic_updates(stamp)
    return stamp.value, result


def await_elastic_updates() -> bool:
    """Wait until :func:`elastic_updates` has news. False if none will come. Only one thread may wait."""
    return bool(load().gorovod_elastic_await(-1) > 0)


def settle() -> None:
    """Wait until GPUs have done what has ended. Raises HorovodInternalError if results may be wrong.

    A signal's Python handler runs within 100 ms.
    """
    gorovod_settle = load().gorovod_settle
    status = IN_PROGRESS
    while status == IN_PROGRESS:
        status = gorovod_settle(WAIT_SLICE_MS)
    if status != OK:
        raise error(status)


def save_checkpoint(number: int, data: bytes) -> None:
    """Write the state of commit ``number`` to the disk. Blocks until it is there. Raises OSError."""
    if load().gorovod_checkpoint_save(number, data, len(data)) != OK:
        raise OSError(last_error())


def load_checkpoint() -> Optional[tuple[int, bytes]]:
    """Number and state of the newest commit on the disk, None if there is none. Raises OSError."""
    number, data, size = ctypes.c_int64(), ctypes.c_void_p(), ctypes.c_size_t()
    if load().gorovod_checkpoint_load(number, data, size) != OK:
        raise OSError(last_error())
    if number.value < 0:
        return None
    try:
        return number.value, ctypes.string_at(data, size.value)
    finally:
        load().gorovod_free(data)
