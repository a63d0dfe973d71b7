"""The native operations: one small library, which the installed TensorFlow loads.

``libgorovod_tensorflow.so`` is in the folder of ``libgorovod.so``. It finds TensorFlow's C interface when it is loaded,
so nothing is compiled on the user's machine, and one file serves every version.
"""

from __future__ import annotations

import ctypes
import functools
from types import ModuleType

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from horovod.common import _lib, _patches, _tables

FILE_NAME = "libgorovod_tensorflow.so"

COLLECTIVES = (
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodAlltoall",
    "HorovodBarrier",
    "HorovodBroadcast",
    "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce",
    "HorovodGroupedReducescatter",
    "HorovodJoin",
    "HorovodReducescatter",
)


def _run_in_any_order() -> None:
    """Keep ``tf.function`` from running the collectives one after the other, in the program's order.

    They are stateful, so that TensorFlow neither merges two of them nor removes one whose result is not used. But
    TensorFlow also runs stateful operations in sequence. Then ranks with different orders would wait for one another
    for ever, and gradients could not travel at the same time.
    """
    independent = "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS"
    known = getattr(auto_control_deps, independent)
    _patches.replace("tensorflow-any-order", auto_control_deps, independent, known | frozenset(COLLECTIVES))


@functools.lru_cache(maxsize=None)
def load() -> ModuleType:
    """The module with the generated functions of the operations. Raises ImportError, which says what is missing."""
    engine = _lib.path()
    _lib.load()
    file = engine.parent / FILE_NAME
    if not file.is_file():
        raise ImportError(
            f"{FILE_NAME} is not beside {engine}. In a checkout, build it with `make build`; otherwise reinstall the "
            "package."
        )
    _run_in_any_order()
    try:
        module = tf.load_op_library(str(file))
        shim = ctypes.CDLL(str(file))
    except (OSError, tf.errors.OpError) as e:
        raise ImportError(f"{file} cannot be loaded by TensorFlow {tf.__version__}: {e}") from e
    for function in (shim.gorovod_tensorflow_error, shim.gorovod_tensorflow_bind):
        function.restype = ctypes.c_char_p
    problem = shim.gorovod_tensorflow_error()
    if problem is not None:
        raise ImportError(f"{file} cannot be used with TensorFlow {tf.__version__}: {problem.decode()}")
    missing = shim.gorovod_tensorflow_bind(str(engine).encode())
    if missing is not None:
        raise ImportError(f"{engine} and {file} do not belong together: {missing.decode()} is missing")
    shim.gorovod_tensorflow_rates(_tables.next_rate)
    return module
