"""Watch the queues of Kueue and Volcano where they are installed, for one RayCluster.

Two small requests find out whether their API groups exist. Without them nothing more is requested
for RECHECK_S. What may not be listed is reported as a missing permission, and the rest is shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.fields import checked, is_label, items, mapping, text
from cockpit.backends.kuberay.api.reflector import Health, Reflector, Snapshot
from cockpit.backends.kuberay.waiting import kueue, volcano
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.model.text import one_line
from cockpit.model.waiting import ClaimState, QueueEntry, QueueState
from cockpit.sources.polling.pause import pause

RECHECK_S = 600.0
"""How often it checks whether Kueue or Volcano was installed."""
RETRY_S = 30.0
POSITIONS_S = 10.0
"""The shortest time between two queries of Kueue's positions."""
KUEUE_VERSIONS = ("v1beta2", "v1beta1")
CLAIMS_S = 15.0


class Kind(Struct, frozen=True):
    """One kind of object to watch. `parse` returns None for objects to skip."""

    name: str
    group: str
    parse: Callable[[Any], Any]
    namespaced: bool = True

    def path(self, version: str, namespace: str) -> str:
        scope = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"/apis/{self.group}/{version}{scope}/{self.name}"


KINDS = (
    Kind("workloads", kueue.GROUP, kueue.workload),
    Kind("localqueues", kueue.GROUP, kueue.local_queue),
    Kind("clusterqueues", kueue.GROUP, kueue.cluster_queue, namespaced=False),
    Kind("podgroups", volcano.GROUP, volcano.pod_group),
    Kind("queues", volcano.GROUP, volcano.queue, namespaced=False),
)


class Queues(Struct, frozen=True):
    """The workloads of the namespace in their queues, and the permissions that are missing."""

    entries: tuple[QueueEntry, ...] = ()
    missing: tuple[str, ...] = ()


class _Known(Struct):
    """The objects of one kind. None: not listed yet, or not allowed."""

    objects: Mapping[str, Any] | None = None
    missing: str = ""

    @property
    def reported(self) -> bool:
        return self.objects is not None or bool(self.missing)


class QueueWatch:
    """`run` lists and watches until it is cancelled; `on_change` is called for each change."""

    def __init__(
        self, client: KubeClient, ref: ClusterRef, on_change: Callable[[Queues], None]
    ) -> None:
        self._client, self._ref, self._on_change = client, ref, on_change
        self._known: dict[str, _Known] = {}
        self._visibility = False
        self._reported: dict[str, tuple[int, int]] = {}
        self._positions_known = False
        self._changed = asyncio.Event()

    async def run(self) -> None:
        while True:
            found = await self._discovered()
            if found:
                break
            await pause(RECHECK_S)
        async with asyncio.TaskGroup() as tasks:
            for kind in KINDS:
                if kind.group in found:
                    self._known[kind.name] = _Known()
            for kind in KINDS:
                if kind.group in found:
                    tasks.create_task(self._follow(kind, found[kind.group]))
            if self._visibility:
                tasks.create_task(self._positions())

    async def _discovered(self) -> dict[str, str]:
        """Empty if neither is installed; tried again while the API server does not answer."""
        while True:
            try:
                found = await self._versions()
            except NotAllowedError as error:
                self._on_change(Queues(missing=(_right(error, "the API groups"),)))
                return {}
            except CockpitError:
                await pause(RETRY_S)  # the watch of the cluster reports the reason
                continue
            if not found:
                self._on_change(Queues())
            return found

    async def _versions(self) -> dict[str, str]:
        """By API group that is served, the version to use. Also looks for Kueue's positions."""
        groups = (kueue.GROUP, volcano.GROUP)
        answers = [await version_of(self._client, group) for group in groups]
        found = {group: version for group, version in zip(groups, answers, strict=True) if version}
        if kueue.GROUP in found:
            self._visibility = bool(await version_of(self._client, kueue.VISIBILITY))
        return found

    async def _follow(self, kind: Kind, version: str) -> None:
        state = self._known[kind.name]
        path = kind.path(version, self._ref.namespace)
        async for update in Reflector(self._client, path, kind.parse).updates():
            match update:
                case Snapshot(objects=objects, complete=True):
                    state.objects, state.missing = objects, ""
                case Health(ok=False, error=NotAllowedError() as error):
                    state.objects, state.missing = None, _right(error, f"{kind.name}.{kind.group}")
                case _:
                    continue
            self._changed.set()
            self._compose()

    async def _positions(self) -> None:
        """Kueue's own order, of the LocalQueues in which a workload waits."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while waiting := self._waiting():
                reported = await read_positions(self._client, self._ref.namespace, waiting)
                if reported != self._reported or not self._positions_known:
                    self._reported, self._positions_known = reported, True
                    self._compose()
                # Others move ahead without a change of what is watched here.
                await pause(POSITIONS_S)

    def _waiting(self) -> set[str]:
        """The queues in which a workload waits."""
        return {each.queue for each in self._entries() if each.state is QueueState.PENDING}

    def _compose(self) -> None:
        if not all(each.reported for each in self._known.values()):
            return
        if self._visibility and not self._positions_known and self._waiting():
            return  # `_positions` reports them soon
        missing = tuple(each.missing for each in self._known.values() if each.missing)
        self._on_change(Queues(self._entries(), missing))

    def _entries(self) -> tuple[QueueEntry, ...]:
        return entries({name: each.objects for name, each in self._known.items()}, self._reported)


def entries(
    objects: Mapping[str, Mapping[str, Any] | None],
    reported: Mapping[str, tuple[int, int]] | None = None,
) -> tuple[QueueEntry, ...]:
    """All workloads, from the parsed objects by kind; None for those that may not be listed."""

    def by_name(kind: str) -> dict[str, Any] | None:
        found = objects.get(kind)
        return None if found is None else {each.name: each for each in found.values()}

    return (
        *kueue.entries(
            (objects.get("workloads") or {}).values(),
            by_name("localqueues"),
            by_name("clusterqueues"),
            reported,
        ),
        *volcano.entries((objects.get("podgroups") or {}).values(), by_name("queues")),
    )


async def version_of(client: KubeClient, group: str) -> str:
    """The version of an API group to use; empty if it is not served."""
    answer = await client.find(f"/apis/{group}")
    served = [text(each, "version") for each in items(answer, "versions")]
    preferred = text(mapping(answer, "preferredVersion"), "version")
    wanted = KUEUE_VERSIONS if group == kueue.GROUP else (preferred,)
    return next((version for version in wanted if version in served), preferred)


async def read_positions(
    client: KubeClient, namespace: str, queues: Iterable[str]
) -> dict[str, tuple[int, int]]:
    """By Workload. Empty where Kueue's visibility API is refused: positions are computed then."""
    found: dict[str, tuple[int, int]] = {}
    for queue in sorted(filter(is_label, queues)):
        path = (
            f"/apis/{kueue.VISIBILITY}/v1beta1/namespaces/{namespace}"
            f"/localqueues/{queue}/pendingworkloads"
        )
        try:
            found.update(kueue.positions(await client.get(path)))
        except CockpitError:
            continue  # not served for this queue, or not allowed: computed, and marked so
    return found


class Claims:
    """The volume claims of pods that wait for them; each is read every CLAIMS_S at most."""

    def __init__(self, client: KubeClient, namespace: str, on_change: Callable[[], None]) -> None:
        self._client, self._namespace, self._on_change = client, namespace, on_change
        self._known: dict[str, ClaimState] = {}
        self._read_s: dict[str, float] = {}
        self._reading: asyncio.Task[None] | None = None

    def of(self, names: Iterable[str]) -> tuple[ClaimState, ...]:
        """What is known of the claims. Reads those that are new or old, and then reports it."""
        wanted = sorted(set(names))
        due = [
            name
            for name in wanted
            if time.monotonic() - self._read_s.get(name, -CLAIMS_S) >= CLAIMS_S
        ]
        if due and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read(due))
        return tuple(self._known[name] for name in wanted if name in self._known)

    async def aclose(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, names: Iterable[str]) -> None:
        changed = False
        for name in names:
            state = await claim(self._client, self._namespace, name)
            self._read_s[name] = time.monotonic()
            changed |= self._known.get(name) != state
            self._known[name] = state
        if changed:
            self._on_change()


async def claim(client: KubeClient, namespace: str, name: str) -> ClaimState:
    """The claim, with its latest event while it is not bound."""
    base = f"/api/v1/namespaces/{namespace}"
    try:
        found = await client.get(f"{base}/persistentvolumeclaims/{checked('claim', name)}")
        phase = text(mapping(found, "status"), "phase")
        if phase == "Bound":
            return ClaimState(name, phase)
        about = f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={name}"
        listed = await client.get(f"{base}/events", {"fieldSelector": about})
    except NotAllowedError as error:
        return ClaimState(name, "", _right(error, "persistentvolumeclaims"))
    except CockpitError as error:
        return ClaimState(name, "", one_line(error.why or error.what))
    events = sorted(items(listed, "items"), key=lambda event: text(event, "lastTimestamp"))
    return ClaimState(name, phase, text(events[-1], "message", 300) if events else "")


def _right(error: CockpitError, what: str) -> str:
    return one_line(f"you may not read {what}: {error.why or error.what}", 300)
