"""The operator's Kubernetes Events: written behind its back, and alike ones counted."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx

from tests.cluster.operator.api import Api, ApiError, Object

log = logging.getLogger(__name__)

LONGEST_NOTE = 1024
REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Occurrence:
    namespace: str
    about: tuple[str, str, str, str, str]
    """Kind, API version, name, uid and resource version of the object that it is about."""
    kind: str
    reason: str
    action: str


class Events:
    def __init__(self, api: Api, controller: str) -> None:
        self._api = api
        self._controller = controller
        self._queue: asyncio.Queue[tuple[Occurrence, str, str]] = asyncio.Queue()
        """With the note, and the time of the occurrence."""
        self._names: dict[Occurrence, str] = {}
        self._repeated: set[Occurrence] = set()

    def record(
        self, about: Object, reason: str, action: str, note: str, *, kind: str = "Normal"
    ) -> None:
        """`about` is the object as the API server has it."""
        meta = about["metadata"]
        reference = (
            about["kind"],
            about["apiVersion"],
            meta["name"],
            meta["uid"],
            meta["resourceVersion"],
        )
        occurrence = Occurrence(meta["namespace"], reference, kind, reason, action)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._queue.put_nowait((occurrence, note[:LONGEST_NOTE], now))

    async def run(self) -> None:
        while True:
            occurrence, note, at = await self._queue.get()
            try:
                await self._send(occurrence, note, at)
            except (ApiError, httpx.HTTPError) as error:
                log.debug("event %s: %s", occurrence.reason, error)

    async def _send(self, occurrence: Occurrence, note: str, at: str) -> None:
        """The first one creates an event, the second a series; further ones are not reported."""
        path = f"/apis/events.k8s.io/v1/namespaces/{occurrence.namespace}/events"
        if occurrence in self._repeated:
            return
        if name := self._names.get(occurrence):
            self._repeated.add(occurrence)
            series = {"count": 2, "lastObservedTime": at}
            await self._api.merge(f"{path}/{name}", {"series": series})
            return
        if len(self._names) >= REMEMBERED:
            self._names.clear()
            self._repeated.clear()
        kind, version, about, uid, resource_version = occurrence.about
        name = self._names[occurrence] = f"{about}.{time.time_ns():x}"
        regarding = {
            "kind": kind,
            "apiVersion": version,
            "namespace": occurrence.namespace,
            "name": about,
            "uid": uid,
            "resourceVersion": resource_version,
        }
        event = {
            "metadata": {"name": name, "namespace": occurrence.namespace},
            "eventTime": at,
            "reportingController": self._controller,
            "reportingInstance": self._controller,
            "action": occurrence.action,
            "reason": occurrence.reason,
            "regarding": regarding,
            "note": note,
            "type": occurrence.kind,
        }
        await self._api.create(path, event)
