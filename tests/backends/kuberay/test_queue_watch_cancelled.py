"""The watch of queues ends when it is cancelled, even if a request reports another error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.waiting.watch import QueueWatch
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import UnreachableError


class HidingClient(KubeClient):
    """A request of it that is cancelled fails with an error of its own."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise UnreachableError(f"{path} was interrupted") from error


async def test_request_that_hides_its_cancellation_does_not_keep_the_watch_alive() -> None:
    client = HidingClient()
    ref = ClusterRef("kuberay", "demo", "ml", "admin")
    watch = QueueWatch(client, ref, lambda _: None)
    task = asyncio.create_task(watch.run())
    await client.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10.0)
