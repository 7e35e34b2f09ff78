"""The server's messages for a command that was not started."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cockpit.backends.kuberay.api import exec as module
from cockpit.model.error import UnreachableError, UsageError


class Opened:
    async def close(self) -> None:
        """There is nothing to close."""


async def test_a_container_that_is_not_running_is_reported_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message of a kubelet 1.34 while a container waited for its restart."""
    why = 'unable to upgrade connection: container not found ("ray-worker")'
    status = {"status": "Failure", "message": f"Internal error occurred: {why}", "code": 500}

    async def opened(*asked: Any) -> Opened:
        return Opened()

    async def said(opened: Opened) -> AsyncIterator[tuple[int, bytes]]:
        yield module.STATUS, json.dumps(status).encode()

    monkeypatch.setattr(module, "open_websocket", opened)
    monkeypatch.setattr(module, "messages", said)
    client: Any = None
    with pytest.raises(UsageError, match="The container of pod gpu-a is not running"):
        await module.run(client, "ml", "gpu-a", "ray-worker", ["true"])


async def test_a_status_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0

    async def opened(*asked: Any) -> Opened:
        return Opened()

    async def said(opened: Opened) -> AsyncIterator[tuple[int, bytes]]:
        nonlocal sent
        while sent < 100:
            sent += 1
            yield module.STATUS, b"[" * 32_000

    monkeypatch.setattr(module, "open_websocket", opened)
    monkeypatch.setattr(module, "messages", said)
    client: Any = None
    with pytest.raises(UnreachableError, match="Status has more than 64 KiB"):
        await module.run(client, "ml", "gpu-a", "ray-worker", ["true"])
    assert sent == 3
