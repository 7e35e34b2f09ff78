"""Replay a recording: apply its stimuli in order, and wait for the operator's responses.

Stimuli are the actions of the user, the patches of Ray's autoscaler and the updates of the kubelet.
At each quiet point of the recording, the operator must have reached the recorded state: the status,
the pods with their labels, the services. Names differ, so recorded pods are matched with live ones;
where the operator selects a pod at random, the selected one replaces the recorded one.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from tests.cluster.operator.api import Api, ApiError
from tests.cluster.recordings import manifests
from tests.cluster.recordings.facts import Fact, Reader, State, difference
from tests.cluster.recordings.kubelet import Kubelet
from tests.cluster.recordings.recording import Recording

CLUSTER = "demo"
QUIET_S = 0.3
"""A gap in the recording that long: everybody had the time to react."""
PATIENCE_S = 15.0
COLLECTION_S = 60.0
"""Kubernetes' garbage collector learns only every 30 s of kinds that are new."""
_IDENTITY = ("role", "group", "index", "host")
_BY_THE_USER = ("delete worker", "delete one host", "delete head")
_SCHEDULER = "replay"
"""No scheduler of that name exists: the kubelet of the replay takes the pods itself."""


class Disagreement(AssertionError):
    """The operator did not do what the recorded one did."""


@dataclass(slots=True)
class Seen:
    """The observations of the operator during one action."""

    action: str
    facts: list[Fact] = field(default_factory=list)
    begun_s: float = field(default_factory=time.time)
    """Unix seconds."""


class Replay:
    def __init__(self, api: Api, namespace: str, recording: Recording) -> None:
        self._api = api
        self._namespace = namespace
        self._recording = recording
        self._kubelet = Kubelet(api, f"replay-{namespace}")
        self._reader = Reader(CLUSTER)
        self._news = asyncio.Condition()
        self._live: dict[str, State] = {}
        self._items: dict[str, dict[str, Any]] = {}
        self._expected: dict[str, State] = {}
        self._patience_s = PATIENCE_S
        self._twins: dict[str, str] = {}
        """Live pods by the name of the recorded one."""
        self.made: dict[str, manifests.Manifest] = {}
        self.seen: list[Seen] = []

    async def run(self) -> None:
        """Raises Disagreement at the first quiet moment that is not as recorded."""
        core = f"/api/v1/namespaces/{self._namespace}"
        clusters = f"/apis/ray.io/v1/namespaces/{self._namespace}/rayclusters"
        tasks = [asyncio.create_task(self._kubelet.run())]
        play = asyncio.create_task(self._play())
        kinds = {"RayCluster": clusters, "Pod": f"{core}/pods"}
        kinds |= {"Service": f"{core}/services", "Event": f"{core}/events"}
        tasks += [asyncio.create_task(self._watch(kind, path)) for kind, path in kinds.items()]
        try:
            done, _ = await asyncio.wait([play, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (play, *tasks):
                task.cancel()
            await asyncio.gather(play, *tasks, return_exceptions=True)
            await self._tidy(core, f"{clusters}/{CLUSTER}")

    async def _tidy(self, core: str, cluster: str) -> None:
        """No kubelet is left that would remove its pods."""
        for path in (cluster, *(f"{core}/pods/{name}" for name in self._pods())):
            with contextlib.suppress(ApiError):
                await self._api.delete(path, grace_s=0)

    async def _play(self) -> None:
        before = 0.0
        for action in self._recording.actions:
            self.seen.append(Seen(action.name))
            by_user = action.name.startswith(_BY_THE_USER)
            for fact in action.facts:
                if fact.t - before >= QUIET_S:
                    await self._settled(fact)
                before = fact.t
                if fact.of == "cluster":
                    await self._cluster(fact)
                elif fact.of.startswith("pod "):
                    by_user = await self._pod(fact, by_user)
                elif fact.of.startswith("service "):
                    self._expect(fact)
            await self._settled(None)
            # Events have a watch of their own, which may be later than that of pods.
            recorded = _reasons(action.facts)
            await self._until(partial(self._has_seen, recorded), f"the events of {action.name!r}")

    def _has_seen(self, reasons: set[object]) -> str:
        """Return something when an event with each of the reasons was seen during this action."""
        return "yes" if reasons <= _reasons(self.seen[-1].facts) else ""

    def _during(self, event: dict[str, Any]) -> Seen:
        """Return the action during which an event occurred: events may arrive in the next one."""
        at = (event.get("series") or {}).get("lastObservedTime") or event.get("eventTime")
        if not at:
            return self.seen[-1]
        at_s = datetime.fromisoformat(at).timestamp()
        return next((done for done in reversed(self.seen) if done.begun_s <= at_s), self.seen[0])

    async def _cluster(self, fact: Fact) -> None:
        path = f"/apis/ray.io/v1/namespaces/{self._namespace}/rayclusters"
        change = dict(fact.change)
        if change.get("is") == "added":
            await self._api.create(path, self._manifest())
        elif change.get("is") == "deleted":
            await self._settled(fact)
            self._patience_s = COLLECTION_S
            await self._api.delete(f"{path}/{CLUSTER}")
        elif "groups" in change or "suspend" in change:
            await self._settled(fact)
            await self._edit(f"{path}/{CLUSTER}", change)
        self._expect(fact)

    def _manifest(self) -> manifests.Manifest:
        manifest = copy.deepcopy(self._recording.cluster)
        spec = manifest["spec"]
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            group["template"]["spec"]["schedulerName"] = _SCHEDULER
        return manifest

    async def _edit(self, path: str, change: State) -> None:
        """The recorded change of the spec, with the live names of the pods."""
        item = await self._api.get(path)
        for group in item["spec"]["workerGroupSpecs"]:
            wanted = change.get("groups", {}).get(group["groupName"], {})
            if "replicas" in wanted:
                group["replicas"] = wanted["replicas"]
            if wanted.get("workersToDelete") is not None:
                names = [self._twins.get(name, name) for name in wanted["workersToDelete"]]
                group["scaleStrategy"] = {"workersToDelete": names}
        spec: State = {"workerGroupSpecs": item["spec"]["workerGroupSpecs"]}
        if "suspend" in change:
            spec["suspend"] = change["suspend"]
        await self._api.merge(path, {"spec": spec})

    async def _pod(self, fact: Fact, by_user: bool) -> bool:
        """Whether a deletion that the user requests is still to come."""
        recorded = fact.of.removeprefix("pod ")
        change = fact.change
        if change.get("is") == "added":
            self._expect(fact)
            await self._twin(recorded)
            return by_user
        if change.get("is") == "deleted":
            self._expect(fact)
            return by_user
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        if "grace_s" in change:
            ended = "grace_s" in self._expected[fact.of]
            if ended:
                live = await self._one_that_goes(recorded)
                await self._api.delete(f"{path}/{live}", grace_s=0)
            elif by_user:
                await self._settled(fact)
                grace_s = 0 if change["grace_s"] == 0 else None
                await self._api.delete(f"{path}/{self._twins[recorded]}", grace_s=grace_s)
                by_user = False
            elif self._picked_at_random(recorded):
                await self._one_that_goes(recorded)
            self._expect(fact)
            return by_user
        if "grace_s" in self._expected[fact.of]:
            live = await self._one_that_goes(recorded)
        else:
            live = self._twins[recorded]
        self._expect(fact)
        await self._kubelet.tell(self._items[live], self._expected[fact.of])
        return by_user

    async def _twin(self, recorded: str) -> None:
        """Find the live pod that the operator made in the place of the recorded one."""
        wanted = self._expected[f"pod {recorded}"]

        def found() -> str:
            taken = set(self._twins.values())
            for name in self._pods():
                state = self._live[f"pod {name}"]
                if name not in taken and all(state.get(k) == wanted.get(k) for k in _IDENTITY):
                    return name
            return ""

        live = await self._until(found, f"a pod with {_identity(wanted)}")
        self._twins[recorded] = live
        await self._kubelet.take(self._namespace, live)

    def _picked_at_random(self, recorded: str) -> bool:
        """Without the autoscaler, a pod too many is any pod of the group."""
        if self._recording.cluster["spec"].get("enableInTreeAutoscaling"):
            return False
        groups = self._expected.get("cluster", {}).get("groups", {}).values()
        return bool(groups) and not any(
            recorded in (group["workersToDelete"] or ()) for group in groups
        )

    async def _one_that_goes(self, recorded: str) -> str:
        """The live pod once it is being deleted, or the pod that was selected instead."""

        def going(name: str) -> bool:
            return "grace_s" in self._live.get(f"pod {name}", {})

        def found() -> str:
            live = self._twins[recorded]
            if going(live):
                return live
            group = self._expected[f"pod {recorded}"].get("group")
            for other, name in self._twins.items():
                expected = self._expected.get(f"pod {other}", {"grace_s": 0})
                if expected.get("group") == group and going(name) and "grace_s" not in expected:
                    self._twins[recorded], self._twins[other] = name, live
                    return name
            return ""

        return await self._until(found, f"{recorded} being deleted")

    def _expect(self, fact: Fact) -> None:
        if fact.change.get("is") == "deleted":
            self._expected.pop(fact.of, None)
            return
        state = self._expected.setdefault(fact.of, {})
        for name, value in fact.change.items():
            if name == "is":
                continue
            if value is None:
                state.pop(name, None)
            else:
                state[name] = value

    async def _settled(self, before: Fact | None) -> None:
        """Everything as recorded so far."""
        where = f"{self.seen[-1].action!r}, before {before.t if before else 'the end'}"
        await self._until(lambda: "" if self._differences() else "yes", where)

    def _differences(self) -> list[str]:
        found = []
        names = {f"pod {recorded}": f"pod {live}" for recorded, live in self._twins.items()}
        for of, expected in self._expected.items():
            live = self._live.get(names.get(of, of))
            if live is None:
                found.append(f"{of} is not there")
                continue
            for name, value in difference(self._translated(expected), live).items():
                # A randomly selected pod replaces the recorded one; its index is its own.
                if name in ("observed", "index"):
                    continue
                found.append(f"{of}: {name} is {value}, recorded {expected.get(name)}")
        wanted = {names.get(of, of) for of in self._expected}
        found += [f"{of} is there" for of in self._live if of not in wanted]
        return found

    def _translated(self, expected: State) -> State:
        state = copy.deepcopy(expected)
        if "head.podName" in state:
            state["head.podName"] = self._twins.get(state["head.podName"], "?")
        for group in state.get("groups", {}).values():
            if group["workersToDelete"] is not None:
                group["workersToDelete"] = [
                    self._twins.get(name, name) for name in group["workersToDelete"]
                ]
        return state

    async def _until(self, found: Any, what: str) -> str:
        deadline = time.monotonic() + self._patience_s
        async with self._news:
            while not (answer := found()):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise Disagreement("\n  ".join([f"{what}:", *self._differences()]))
                try:
                    await asyncio.wait_for(self._news.wait(), left_s)
                except TimeoutError:
                    continue
        return str(answer)

    def _pods(self) -> list[str]:
        return [of.removeprefix("pod ") for of in self._live if of.startswith("pod ")]

    async def _watch(self, kind: str, path: str) -> None:
        answer = await self._api.get(path)
        version = answer["metadata"]["resourceVersion"]
        while True:
            try:
                async for change in self._api.watch(path, version):
                    version = change.item["metadata"]["resourceVersion"]
                    if change.kind != "BOOKMARK":
                        async with self._news:
                            self._note(change.kind, {**change.item, "kind": kind})
                            self._news.notify_all()
            except ApiError as error:
                if error.status != 410:
                    raise
                version = (await self._api.get(path))["metadata"]["resourceVersion"]

    def _note(self, change: str, item: dict[str, Any]) -> None:
        fact = self._reader.read(time.monotonic(), change, item)
        if fact is None:
            return
        if fact.of == "event":
            self._during(item).facts.append(fact)
            return
        if self.seen:
            self.seen[-1].facts.append(fact)
        if fact.change.get("is") == "deleted":
            self._live.pop(fact.of, None)
            return
        if fact.change.get("is") == "added":
            self._keep(fact, item)
        state = self._live.setdefault(fact.of, {})
        for name, value in fact.change.items():
            if value is None:
                state.pop(name, None)
            elif name != "is":
                state[name] = value
        self._items[item["metadata"]["name"]] = item

    def _keep(self, fact: Fact, item: dict[str, Any]) -> None:
        if fact.of.startswith("service "):
            self.made.setdefault(fact.of, manifests.service(item))
        elif fact.of.startswith("pod "):
            self.made.setdefault(fact.change.get("role", "worker"), manifests.pod(item))


def _reasons(facts: Iterable[Fact]) -> set[object]:
    return {fact.change.get("reason") for fact in facts if fact.of == "event"}


def _identity(state: State) -> str:
    return ", ".join(f"{name} {state[name]}" for name in _IDENTITY if name in state)
