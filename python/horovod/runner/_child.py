"""A process that runs a function below a supervisor of the launcher, which ends it together with all its descendants.

The process is ``python -m horovod.runner.run_task``. It ends when this process does, even by SIGKILL.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
from typing import Callable, Mapping, NamedTuple, Optional

from horovod import _program

# The descriptors of a supervisor (internal/launch/spawn/supervisor_linux.go).
_STDIN, _STDOUT, _STDERR, _CONTROL, _STATUS, _RESULT = range(6)
_COMMANDS_RESULT = 3
_ABOVE = 16  # our own descriptors are above those
_LAST_OUTPUT_S = 1.0  # how long to wait for output after the process's end
_IGNORED_BY_DEFAULT = (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGQUIT, signal.SIGTERM)


class Ending(NamedTuple):
    """How a process has ended: with a code, or by a signal; or ``error`` kept it from starting."""

    code: Optional[int] = None
    signal: Optional[int] = None
    error: str = ""

    @property
    def exit_code(self) -> int:
        """The code, or the signal's number as a negative one, as in the module subprocess."""
        if self.signal is not None:
            return -self.signal
        return 127 if self.code is None else self.code


class Child:
    """A started process.

    Args:
        python: the interpreter.
        environment: all of its variables.
        heard: called with ``("stdout", bytes)`` and ``("stderr", bytes)``, on a thread for each stream.
    """

    def __init__(self, python: str, environment: Mapping[str, str], heard: Callable[[str, bytes], None]) -> None:
        try:
            program = str(_program.path())
        except SystemExit as e:  # SystemExit is meant for a command line
            raise RuntimeError(e.code) from None
        theirs: list[int] = []
        ours: list[int] = []
        for descriptor in range(6):
            read, write = os.pipe()
            in_ours = descriptor in (_STDIN, _CONTROL)
            theirs.append(_raised(read if in_ours else write))
            ours.append(write if in_ours else read)
        actions = [(os.POSIX_SPAWN_DUP2, at, descriptor) for descriptor, at in enumerate(theirs)]
        try:
            self._supervisor = os.posix_spawn(
                program,
                ["gorovod-supervisor", python, python, "-m", "horovod.runner.run_task"],
                {**environment, "GOROVOD_RESULT_FD": str(_COMMANDS_RESULT)},
                file_actions=actions,
                setsid=True,
                setsigmask=[],
                setsigdef=_IGNORED_BY_DEFAULT,
            )
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._python = python
        self._ours = ours
        self._control: Optional[int] = ours[_CONTROL]
        self._lock = threading.Lock()
        self._outputs = [
            threading.Thread(target=_read_output, args=(ours[_STDOUT], "stdout", heard), daemon=True),
            threading.Thread(target=_read_output, args=(ours[_STDERR], "stderr", heard), daemon=True),
        ]
        for thread in self._outputs:
            thread.start()
        self._result = b""
        self._results = threading.Thread(target=self._read_result, daemon=True)
        self._results.start()
        self._statuses = os.fdopen(ours[_STATUS], "r")

    def begin(self, task: bytes) -> int:
        """Send the function, in ``run_task``'s form, and return the process's id; 0 if it could not start."""
        threading.Thread(target=self._write, args=(task,), daemon=True).start()
        self._first = self._statuses.readline().split()
        return int(self._first[1]) if self._first[:1] == ["started"] else 0

    def wait(self) -> tuple[Ending, bytes]:
        """After :meth:`begin`, wait for the end. Returns how it ended, and the result from ``run_task``."""
        if self._first[:1] == ["failed"]:
            ending = Ending(error=f"{self._python}: {os.strerror(int(self._first[1]))}")
        else:
            ending = _ending(self._statuses.readline().split())
        self._results.join(_LAST_OUTPUT_S)
        for thread in self._outputs:
            thread.join(_LAST_OUTPUT_S)
        return ending, self._result

    def signal(self, number: int) -> None:
        """Send a signal to the process's group; SIGKILL goes to all its descendants."""
        with self._lock, contextlib.suppress(OSError):
            if self._control is not None:
                os.write(self._control, bytes([number]))

    def close(self) -> None:
        """End the rest of the process, and wait until nothing is left."""
        with self._lock:
            if self._control is not None:
                os.close(self._control)
                self._control = None
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._supervisor, 0)
        self._statuses.close()

    def _write(self, task: bytes) -> None:
        with contextlib.suppress(OSError), open(self._ours[_STDIN], "wb") as stdin:
            stdin.write(task)

    def _read_result(self) -> None:
        with open(self._ours[_RESULT], "rb") as result:
            self._result = result.read()


def _raised(descriptor: int) -> int:
    """The descriptor, moved away from the numbers that the supervisor uses."""
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    os.close(descriptor)
    return high


def _read_output(descriptor: int, stream: str, heard: Callable[[str, bytes], None]) -> None:
    with contextlib.suppress(OSError):
        while True:
            data = os.read(descriptor, 1 << 16)
            if not data:
                break
            heard(stream, data)
    os.close(descriptor)


def _ending(words: list[str]) -> Ending:
    if words[:1] == ["exited"]:
        return Ending(code=int(words[1]))
    if words[:1] == ["killed"]:
        return Ending(signal=int(words[1]))
    return Ending(error="its supervisor was killed")
