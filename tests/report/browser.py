"""Headless Chromium through its DevTools protocol: pages at a size and in a colour scheme."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

START_S = 60.0
LOAD_S = 60.0
MESSAGE_BYTES = 1 << 28


def program() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


@dataclass
class Page:
    """One tab. `errors` are exceptions of scripts and what the security policy has refused."""

    _socket: ClientConnection
    errors: list[str] = field(default_factory=list)
    _number: int = 0

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        self._socket.send(json.dumps(request))
        while True:
            message = json.loads(self._socket.recv(LOAD_S))
            self._note(message)
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                return message["result"]

    def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + LOAD_S
        while self.evaluate("document.readyState") != "complete":
            assert time.monotonic() < deadline, "the page does not load"

    def evaluate(self, expression: str) -> Any:
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str, timeout_s: float = 20.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"never: {expression}"
            time.sleep(0.02)

    def show(self, width: int, height: int, scheme: str, *, mobile: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=mobile,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, *, whole: bool = False) -> bytes:
        """PNG of the window, or of the whole page."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def _note(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(message["params"]["exceptionDetails"]))
            case "Log.entryAdded" if message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"]["text"])


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A tab of a new browser, which ends with it."""
    found = program()
    assert found is not None
    command = [found, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    with (profile.parent / "browser.log").open("wb") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with connect(_address(profile, child), max_size=MESSAGE_BYTES) as socket:
            yield Page(socket)
    finally:
        child.terminate()
        child.wait(30)


def _address(profile: Path, child: subprocess.Popen[bytes]) -> str:
    """Of the tab; the browser writes the port that it has chosen into its profile."""
    from urllib.request import urlopen

    written, deadline = profile / "DevToolsActivePort", time.monotonic() + START_S
    while not written.exists() or "\n" not in written.read_text():
        assert child.poll() is None, "the browser has ended"
        assert time.monotonic() < deadline, "the browser does not start"
        time.sleep(0.05)
    port = written.read_text().splitlines()[0]
    with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=START_S) as answer:
        tabs = json.load(answer)
    return next(str(tab["webSocketDebuggerUrl"]) for tab in tabs if tab["type"] == "page")
