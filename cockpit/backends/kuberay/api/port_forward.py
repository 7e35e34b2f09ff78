"""A port of a pod as a Unix socket on this machine.

A socket in a folder of ours and not a TCP port: on a bastion everyone could connect to that.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.error_message import KubeError
from cockpit.backends.kuberay.api.websocket import messages, open_websocket
from cockpit.backends.private_folder import PrivateFolder
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

PROTOCOL = "v4.channel.k8s.io"
DATA, ERRORS = 0, 1
CHUNK_BYTES = 32 << 10


class PortForward:
    """Listen while entered; each connection is a separate WebSocket to the pod.

    A failed connection is closed, and `error` is the reason.
    """

    def __init__(self, client: KubeClient, namespace: str, pod: str, port: int) -> None:
        self._client, self._namespace, self._pod, self._port = client, namespace, pod, port
        self.socket_path = ""
        self.error: CockpitError | None = None
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._folder = PrivateFolder()
        self.socket_path = str(self._folder.path / "s")
        try:
            self._server = await asyncio.start_unix_server(self._connected, self.socket_path)
        except BaseException:
            self._folder.remove()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)
        self._folder.remove()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._carry(reader, writer)
        except CockpitError as error:
            self.error = error
        except ConnectionError:
            pass  # the local client closed it
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = await open_websocket(
            self._client,
            f"/api/v1/namespaces/{quote(self._namespace, safe='')}"
            f"/pods/{quote(self._pod, safe='')}/portforward",
            [("ports", str(self._port))],
            (PROTOCOL,),
        )
        going_in = asyncio.create_task(_carry_in(reader, opened))
        coming_out = asyncio.create_task(self._carry_out(opened, writer))
        try:
            await asyncio.wait({going_in, coming_out}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            going_in.cancel()
            coming_out.cancel()
            results = await asyncio.gather(going_in, coming_out, return_exceptions=True)
            await opened.close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _carry_out(self, opened: ClientConnection, writer: asyncio.StreamWriter) -> None:
        numbered: set[int] = set()
        async for channel, data in messages(opened):
            if channel not in numbered:
                numbered.add(channel)  # the first message of each is the port's number
            elif channel == DATA:
                writer.write(data)
                await writer.drain()
            elif channel == ERRORS and data:
                raise KubeError(
                    f"Port {self._port} of {one_line(self._pod)} cannot be reached.",
                    _reason(data.decode(errors="replace")),
                    status=502,
                )


async def _carry_in(reader: asyncio.StreamReader, opened: ClientConnection) -> None:
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed):
        while data := await reader.read(CHUNK_BYTES):
            await opened.send(bytes([DATA]) + data)


def _reason(text: str) -> str:
    """The runtime's message begins with its call chain; the end is the error."""
    if "connection refused" in text:
        return "Nothing listens there: connection refused."
    line = one_line(text, limit=10_000)
    return line if len(line) <= 200 else f"…{line[-199:]}"
