"""Where the program is, for those who watch the job while other ranks wait for this one."""

from __future__ import annotations

import ctypes
import sys
import threading
import types


def offer(library: ctypes.CDLL) -> bool:
    """Tell the engine where the interpreter keeps the stack of this thread, the one that trains.

    The engine reads it without the GIL, and only when a launcher asks. It first compares what it reads with what this
    function says of itself, so a build of Python that it does not know is left alone.

    Returns:
        Whether the engine can read the stack.
    """
    if sys.implementation.name != "cpython":
        return False
    thread_state = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_Get", ctypes.pythonapi))()
    code = sys._getframe().f_code
    file, name = "/".join(code.co_filename.split("/")[-2:]), getattr(code, "co_qualname", code.co_name)
    kinds = id(types.CodeType), id(str), id(bytes)
    line = sys._getframe().f_lineno + 2
    facts = (ctypes.c_uint64 * 8)(*sys.version_info[:2], thread_state, threading.get_ident(), *kinds, line)
    return library.gorovod_offer_stack(facts, file.encode(), name.encode()) == 0
