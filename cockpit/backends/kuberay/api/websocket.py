"""A WebSocket to the API server: the way into a pod for exec and port-forward.

`websockets` is imported when the first one is opened, not when this module is: it costs 50 ms.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.error_message import KubeError, refusal, unreachable

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

OPEN_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0
PING_S = 20.0
"""Keeps firewalls and load balancers from forgetting a quiet shell."""
DEAD_PEER_S = 60
"""After this long without the kernel's acknowledgement of what was sent, the connection ends."""
MESSAGE_BYTES = 1 << 20
"""The API server's messages are of 32 KiB at most."""


async def open_websocket(
    client: KubeClient,
    path: str,
    params: Sequence[tuple[str, str]],
    protocols: Sequence[str],
) -> ClientConnection:
    """Open, and agreed on one of `protocols` (see its `subprotocol`); the caller closes it.

    Raises ForbiddenError, KubeError (NotFound, BadRequest, …) or UnreachableError.
    """
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI
    from websockets.typing import Subprotocol

    credentials = client.credentials
    for last in (False, True):
        tls = await credentials.tls()
        more: dict[str, Any] = {"ssl": tls} if tls is not None else {}
        if tls is not None and credentials.server_name:
            more["server_hostname"] = credentials.server_name
        client.requests += 1
        try:
            opened = await connect(
                _address(credentials.server + path, params),
                subprotocols=[Subprotocol(name) for name in protocols],
                additional_headers=await credentials.headers(),
                user_agent_header="cockpit",
                proxy=credentials.proxy or None,
                compression=None,
                open_timeout=OPEN_TIMEOUT_S,
                close_timeout=CLOSE_TIMEOUT_S,
                ping_interval=PING_S,
                # A pong waits behind output that is not read (ctrl+s in a shell), so a missing
                # pong proves nothing; the kernel's acknowledgement does.
                ping_timeout=None,
                max_size=MESSAGE_BYTES,
                **more,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            if status == 401 and credentials.can_change and not last:
                credentials.forget()
                continue
            body = bytes(error.response.body or b"")
            if status == 403 and not body:
                # A missing permission has a message; this is a failed handshake.
                raise _no_websocket(protocols, status) from error
            raise refusal(credentials, "GET", path, status, body) from error
        except (OSError, InvalidHandshake, InvalidURI, EOFError, ImportError) as error:
            raise unreachable(credentials, str(error) or type(error).__name__) from error
        _notice_dead_peers(opened)
        if opened.subprotocol is None:
            await opened.close()
            raise _no_websocket(protocols, 101)
        return opened
    raise AssertionError("unreachable: the second try returns or raises")


async def messages(opened: ClientConnection) -> AsyncGenerator[tuple[int, bytes], None]:
    """The channel and content of each, until the server closes.

    A connection that breaks ends it too: the missing part then shows it.
    """
    from websockets.exceptions import ConnectionClosed

    while True:
        try:
            message = await opened.recv(decode=False)
        except ConnectionClosed:
            return
        if message:
            yield message[0], message[1:]


def _no_websocket(protocols: Sequence[str], status: int) -> KubeError:
    return KubeError(
        "The API server cannot do this over a WebSocket.",
        f"It agreed to none of {', '.join(protocols)}.",
        "It needs Kubernetes 1.30 or newer, and proxies that forward WebSockets.",
        status=status,
    )


def _address(url: str, params: Sequence[tuple[str, str]]) -> str:
    parts = urlsplit(url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    return urlunsplit((scheme, parts.netloc, parts.path, urlencode(params), ""))


def _notice_dead_peers(opened: ClientConnection) -> None:
    under = opened.transport.get_extra_info("socket")
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux only
    if under is not None and option is not None:
        under.setsockopt(socket.IPPROTO_TCP, option, DEAD_PEER_S * 1000)
