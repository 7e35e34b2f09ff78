"""Requests to the operator: one JSON object each way over its Unix socket.

The socket is in a 0700 directory: only the cluster's user can connect.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from cockpit.model.error import (
    ChangedError,
    CockpitError,
    ReplacedError,
    UnreachableError,
    UsageError,
)

Answer: TypeAlias = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

TIMEOUT_S = 10.0
"""The operator answers when it has accepted a request, not when it is done: milliseconds."""


async def ask(name: str, socket: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The operator's answer. Raises its refusal, or UnreachableError when it is not there."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(socket)
            try:
                writer.write(json.dumps(request).encode() + b"\n")
                await writer.drain()
                line = await reader.readline()
            finally:
                writer.close()
        answer = json.loads(line)
    except (OSError, TimeoutError, ValueError) as error:
        raise UnreachableError(
            f"The operator of local cluster {name} does not answer.",
            f"{type(error).__name__}: {error}",
            f"Remove the cluster and create it again: cockpit local down {name}",
        ) from error
    if (refused := answer.get("error")) is not None:
        raise refusal(refused)
    return dict(answer)


def refusal(refused: dict[str, Any]) -> CockpitError:
    """The error that an operator or an agent has sent."""
    if (replaced := refused.get("replaced")) is not None:
        return ReplacedError(*replaced)
    if (changed := refused.get("changed")) is not None:
        return ChangedError(*changed)
    kind = UsageError if refused["usage"] else CockpitError
    return kind(refused["what"], refused["why"], refused["todo"])


async def serve(socket: Path, answer: Answer) -> asyncio.Server:
    """Answer requests until the server is closed. A CockpitError is sent to the client."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            writer.write(json.dumps(await _reply(line, answer)).encode() + b"\n")
            await writer.drain()
        except ConnectionError:
            return  # the client has disconnected; the request stays valid
        finally:
            writer.close()

    server = await asyncio.start_unix_server(converse, socket)
    await asyncio.to_thread(socket.chmod, 0o600)
    return server


async def _reply(line: bytes, answer: Answer) -> dict[str, Any]:
    try:
        return await answer(json.loads(line))
    except ReplacedError as error:
        return {"error": {"replaced": [error.kind, error.name]}}
    except ChangedError as error:
        return {"error": {"changed": [error.group, error.found, error.expected]}}
    except CockpitError as error:
        usage = isinstance(error, UsageError)
        return {"error": {"what": error.what, "why": error.why, "todo": error.todo, "usage": usage}}
    except (KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        return {"error": {"what": "Not a request.", "why": why, "todo": "", "usage": True}}
