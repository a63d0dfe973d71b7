"""The driver of an elastic job: the program ``gorovod drive``, which reads and writes lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from typing import Any, Callable, Mapping

from horovod import _program

# The variables by which a job is shown and reported, and to whom. They count for the driver: the ranks meet there.
_SHOWS = (
    "GOROVOD_METRICS",
    "GOROVOD_DASHBOARD",
    "GOROVOD_METRICS_TOKEN",
    "GOROVOD_METRICS_TOKEN_FILE",
    "GOROVOD_METRICS_CERT",
    "GOROVOD_METRICS_KEY",
    "GOROVOD_TLS",
    "GOROVOD_SUMMARY",
    "GOROVOD_OTLP",
    *(
        f"OTEL_EXPORTER_OTLP_{of}{what}"
        for of in ("", "TRACES_")
        for what in ("ENDPOINT", "HEADERS", "TIMEOUT", "PROTOCOL")
    ),
    "OTEL_SERVICE_NAME",
)


class Drive:
    """One job's driver.

    Args:
        heard: called with every event, on a thread of its own; and with None when the program has ended.
        variables: of the workers' environment. Those by which a job is shown or reported are the driver's, too, and
            count more than this process's.

    The requests and events are those of docs/drive.md.
    """

    def __init__(self, heard: Callable[[Any], None], variables: Mapping[str, Any]) -> None:
        try:
            program = str(_program.path())
        except SystemExit as e:  # SystemExit is meant for a command line
            raise RuntimeError(e.code) from None
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            ["gorovod", "drive"],
            executable=program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **{name: str(variables[name]) for name in _SHOWS if name in variables}},
            text=True,
            start_new_session=True,  # the terminal's Ctrl-C must not reach it
        )
        self._heard = heard
        threading.Thread(target=self._read, daemon=True).start()

    def request(self, kind: str, **fields: Any) -> None:
        """Send a request. A request after the end of the program is lost."""
        message: Mapping[str, Any] = {"type": kind, **fields}
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            pass  # the program's end is reported separately

    def close(self) -> str:
        """End the program, and return its stderr, or else how it has ended; nothing the second time."""
        if self._errors.closed:
            return ""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read()
        self._errors.close()
        return said.strip() or (f"it was killed by signal {-code}" if code < 0 else f"exit code {code}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # a program that is killed may leave a part of a line
                self._heard(json.loads(line))
        self._heard(None)
