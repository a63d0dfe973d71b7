"""A page in a headless Chromium, controlled over its debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path
from typing import Any

OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync"]
OPTIONS += ["--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"]


class Browser:
    """One tab of Chromium, from ``with`` to the end of its block.

    Example:
        >>> with Browser() as browser:  # doctest: +SKIP
        ...     browser.size(400, 800)
        ...     browser.visit("file:///tmp/page.html")
        ...     browser.value("document.title")
    """

    def __enter__(self) -> Browser:
        self.profile = tempfile.mkdtemp()
        their_input, self.commands = os.pipe()
        self.answers, their_output = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
        script = f'exec "$0" "$@" 3<&{their_input} 4>&{their_output}'
        command = ["bash", "-c", script, "chromium", *OPTIONS, f"--user-data-dir={self.profile}", "about:blank"]
        quiet = subprocess.DEVNULL
        ends = (their_input, their_output)
        self.process = subprocess.Popen(command, pass_fds=ends, stdin=quiet, stdout=quiet, stderr=quiet)
        for end in ends:
            os.close(end)
        self.received, self.number, self.session = b"", 0, None
        made = self.do("Target.createTarget", url="about:blank")
        self.session = self.do("Target.attachToTarget", targetId=made["targetId"], flatten=True)["sessionId"]
        self.do("Page.enable")
        return self

    def __exit__(self, *_: Any) -> None:
        self.session = None
        try:
            self.do("Browser.close")
        finally:
            os.close(self.commands)
            os.close(self.answers)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
            shutil.rmtree(self.profile, ignore_errors=True)

    def message(self) -> dict[str, Any]:
        """The next message of the browser: an answer, or an event."""
        while b"\0" not in self.received:
            piece = os.read(self.answers, 1 << 16)
            if not piece:
                raise RuntimeError("chromium ended")
            self.received += piece
        text, _, self.received = self.received.partition(b"\0")
        return json.loads(text)

    def send(self, method: str, parameters: dict[str, Any]) -> int:
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        return self.number

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command of Chromium's protocol."""
        number = self.send(method, parameters)
        while True:
            message = self.message()
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def visit(self, address: str) -> None:
        """Opens a page, and waits until it is loaded."""
        self.send("Page.navigate", {"url": address})
        while self.message().get("method") != "Page.loadEventFired":
            pass

    def size(self, width: int, height: int) -> None:
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        told = self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def pixel(self, x: float, y: float) -> tuple[int, int, int]:
        """Red, green and blue of the page at a place."""
        clip = {"x": x, "y": y, "width": 1, "height": 1, "scale": 1}
        png = base64.b64decode(self.do("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"])
        data, at = b"", 8
        while at < len(png):  # a chunk has its length, its kind, the data and a checksum
            (length,) = struct.unpack(">I", png[at : at + 4])
            if png[at + 4 : at + 8] == b"IDAT":
                data += png[at + 8 : at + 8 + length]
            at += length + 12
        _, red, green, blue = zlib.decompress(data)[:4]  # no filter changes the first pixel
        return red, green, blue

    def picture(self, file: Path, x: float = 0, y: float = 0, width: float = 0, height: float = 0) -> None:
        """Writes a picture of the page, or of a part of it, as PNG."""
        part = {"clip": {"x": x, "y": y, "width": width, "height": height, "scale": 1}} if width else {}
        told = self.do("Page.captureScreenshot", captureBeyondViewport=bool(width), **part)
        file.write_bytes(base64.b64decode(told["data"]))
