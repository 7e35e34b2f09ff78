"""Run commands in a pod's container: to their end, or attached with stdin, stdout and a terminal.

Each WebSocket message begins with its channel number. The server's last message is a Status on a
separate channel, with the exit code. Source: k8s.io/apimachinery/pkg/util/remotecommand.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.error_message import KubeError
from cockpit.backends.kuberay.api.fields import whole
from cockpit.backends.kuberay.api.websocket import messages, open_websocket
from cockpit.backends.protocol import ExecResult
from cockpit.model.decoding.limited_json import loads
from cockpit.model.error import CockpitError, UnreachableError, UsageError
from cockpit.model.text import one_line

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

# v5 is v4 and a message that closes a channel.
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
INPUT, OUTPUT, ERRORS, STATUS, SIZE, CLOSE = 0, 1, 2, 3, 4, 255
CANNOT_RUN, NOT_FOUND = 126, 127
_NOT_FOUND = ("executable file not found", "no such file or directory")
_CANNOT_RUN = ("permission denied", "exec format error", "is a directory")
_NO_CONTAINER = "container not found"
"""The kubelet's, of a pod whose container has ended or has not begun (tried, 1.34)."""
OUTPUT_LIMIT_BYTES = 16 << 20
STATUS_LIMIT_BYTES = 64 << 10
WRITE_BYTES = 32 << 10


async def run(
    client: KubeClient, namespace: str, pod: str, container: str, argv: Sequence[str]
) -> ExecResult:
    """Wait for the command's end.

    As in a shell, 127 is an unknown command and 126 one that cannot be run, with the reason in
    `stderr`.
    """
    params = _params(container, argv, stdin=False, tty=False)
    opened = await open_websocket(client, _path(namespace, pod), params, (V5, V4))
    received: dict[int, bytearray] = {OUTPUT: bytearray(), ERRORS: bytearray()}
    status = b""
    try:
        async for channel, data in messages(opened):
            if channel in received:
                received[channel] += data
                if sum(map(len, received.values())) > OUTPUT_LIMIT_BYTES:
                    raise CockpitError(
                        f"{argv[0]!r} in {one_line(pod)} was left.",
                        f"It wrote more than {OUTPUT_LIMIT_BYTES >> 20} MiB.",
                        "Write to a file in the pod, or filter there.",
                    )
            elif channel == STATUS:
                status = _status(status, data, pod)
    finally:
        await opened.close()
    code, why = _ended(status, pod)
    errors = received[ERRORS].decode(errors="replace")
    return ExecResult(code, received[OUTPUT].decode(errors="replace"), errors or why)


async def attach(
    client: KubeClient,
    namespace: str,
    pod: str,
    container: str,
    argv: Sequence[str],
    *,
    tty: bool,
    rows: int = 24,
    columns: int = 80,
) -> RemoteTerminal:
    """The command, started, with its input open. With `tty` on a terminal of that size."""
    params = _params(container, argv, stdin=True, tty=tty)
    opened = await open_websocket(client, _path(namespace, pod), params, (V5, V4))
    terminal = RemoteTerminal(opened, pod, tty=tty)
    if tty:
        await terminal.resize(rows, columns)
    return terminal


class RemoteTerminal:
    """`protocol.Terminal` over a WebSocket. Unread output is buffered in the pod, not here."""

    def __init__(self, opened: ClientConnection, pod: str, *, tty: bool) -> None:
        self._opened, self._pod, self._tty = opened, pod, tty
        self._status = b""
        self._reading = False
        self._ended = asyncio.Event()

    async def output(self) -> AsyncGenerator[bytes, None]:
        self._reading = True
        try:
            async for channel, data in messages(self._opened):
                if channel == STATUS:
                    self._status = _status(self._status, data, self._pod)
                elif channel in (OUTPUT, ERRORS) and data:
                    yield data
            self._ended.set()
        finally:
            self._reading = False
        if self._status and (why := _ended(self._status, self._pod)[1]):
            yield why.encode() + (b"\r\n" if self._tty else b"\n")

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), WRITE_BYTES):
            await self._send(INPUT, data[start : start + WRITE_BYTES])

    async def close_input(self) -> None:
        if self._tty:
            await self._send(INPUT, b"\x04")  # the terminal's own end of input
        elif self._opened.subprotocol == V5:
            await self._send(CLOSE, bytes([INPUT]))
        else:
            raise KubeError(
                "This API server cannot end a command's input.",
                f"It supports only {V4}.",
                "It needs Kubernetes 1.30 or newer.",
                status=101,
            )

    async def resize(self, rows: int, columns: int) -> None:
        await self._send(SIZE, json.dumps({"Width": columns, "Height": rows}).encode())

    async def wait(self) -> int:
        """Raises KubeError when it could not be started, UnreachableError when how it ended is
        not known.
        """
        if not self._reading and not self._ended.is_set():
            async for _ in self.output():
                pass  # otherwise a command with much output would never end
        await self._ended.wait()
        return _ended(self._status, self._pod)[0]

    async def aclose(self) -> None:
        await self._opened.close()

    async def _send(self, channel: int, data: bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        with suppress(ConnectionClosed):  # it has ended: `output` and `wait` return how
            await self._opened.send(bytes([channel]) + data)


def _status(before: bytes, more: bytes, pod: str) -> bytes:
    """The Status so far; a server that never ends it must not fill the memory."""
    if len(before) + len(more) > STATUS_LIMIT_BYTES:
        raise UnreachableError(
            f"How the command in {one_line(pod)} ended is not known.",
            f"The server's Status has more than {STATUS_LIMIT_BYTES >> 10} KiB.",
        )
    return before + more


def _ended(status: bytes, pod: str) -> tuple[int, str]:
    """The exit code, and a sentence when the command did not even start."""
    if not status:
        raise UnreachableError(
            f"The connection to {one_line(pod)} broke while the command ran.",
            "How it ended is not known; it may still be running.",
            "Look at the pod, then try again.",
        )
    try:
        received: Any = loads(status)
        if received.get("status") == "Success":
            return 0, ""
        message = str(received.get("message") or received.get("reason") or "")
        causes = (received.get("details") or {}).get("causes") or []
        codes = [cause["message"] for cause in causes if cause.get("reason") == "ExitCode"]
        if codes:
            return int(codes[0]), ""
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise KubeError(
            f"How the command in {one_line(pod)} ended is not known.",
            f"The server reported: {one_line(status.decode(errors='replace'))}",
            status=200,
        ) from error
    if _NO_CONTAINER in message:
        raise UsageError(
            f"The container of pod {one_line(pod)} is not running.",
            "It has ended, or has not begun.",
            "Wait for it; see: cockpit pods",
        )
    # containerd and runc report only as text why a program was not started, its name in quotes.
    text = message.rpartition('"')[2].lower()
    why = one_line(message.rpartition("unable to start container process: ")[2])
    why = why.removeprefix("exec: ").removesuffix(": unknown")
    if any(phrase in text for phrase in _NOT_FOUND):
        return NOT_FOUND, why
    if any(phrase in text for phrase in _CANNOT_RUN):
        return CANNOT_RUN, why
    raise KubeError(
        f"The command in {one_line(pod)} could not be run.",
        why,
        status=whole(received, "code", 500),
        reason=one_line(str(received.get("reason") or "")),
    )


def _path(namespace: str, pod: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/exec"


def _params(
    container: str, argv: Sequence[str], *, stdin: bool, tty: bool
) -> list[tuple[str, str]]:
    """A terminal has one stream for both outputs, and the server refuses requests for two."""
    flags = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    query = [(name, "true") for name, wanted in flags.items() if wanted]
    if container:
        query.append(("container", container))
    return query + [("command", part) for part in argv]
