"""Whether a limit on the address space (``ulimit -v``) leaves room for Go's runtime.

The runtime ends the process with a dump of its own where it cannot reserve what it wants, so this asks before.
"""

from __future__ import annotations

import mmap
import resource

# What the runtime reserves at its start on a 64-bit machine, of which it uses hardly any: in the program, and in the
# library, which has a thread with its stack and its share of the C library's memory besides.
PROGRAM = 740 << 20
LIBRARY = 800 << 20

_NO_ACCESS = 0
_NO_RESERVE = 0x4000  # MAP_NORESERVE, which module mmap has from Python 3.11 on


def limit() -> int | None:
    """The limit in bytes, None if there is none."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if most == resource.RLIM_INFINITY else most


def check() -> None:
    """Raise ImportError if this process may not map as much as the runtime reserves."""
    most = limit()
    if most is None:
        return
    try:
        mmap.mmap(-1, LIBRARY, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE, _NO_ACCESS).close()
    except OSError as e:
        raise ImportError(f"gorovod's engine cannot start in this process: {advice(most, LIBRARY)}") from e


def advice(most: int, reserved: int) -> str:
    """What is wrong with the limit, and what helps."""
    return (
        f"the limit on its address space is {most >> 20} MiB (ulimit -v), and Go's runtime needs {reserved >> 20} MiB "
        "beside all else, which it reserves and hardly uses. `ulimit -v unlimited` lifts the limit; to bound the "
        "memory that is used, take a cgroup (systemd-run -p MemoryMax=..., docker run --memory)"
    )
