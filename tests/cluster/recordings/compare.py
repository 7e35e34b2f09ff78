"""Compare an operator in a replay with the recorded one, action by action.

Compared exactly: the created pods, their order and labels; the phases of each pod; the services
created and deleted; every value of each field of the status in its order; the kinds of emitted
events; the first head, worker and service, field by field.

Not compared, since they depend on time or chance: steps of a count between its turning points (two
pods that become ready within a few milliseconds make one step or two), the number of events of a
kind, the names of pods and replicas, the selection among equal pods, and the moment between a
head's deletion and the kubelet's first update on the next (HeadPodReady is `HeadPodNotFound` or
`Unknown` then, with or without the head's name, depending on the operator's cache). And the real
operator may observe the deletion of a service before that of the whole cluster, and create it again
for a moment: objects that are created for a deleted cluster do not count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster.recordings.facts import Fact, State
from tests.cluster.recordings.manifests import Manifest
from tests.cluster.recordings.recording import Recording
from tests.cluster.recordings.replay import Seen

_COUNT = re.compile(r"(ready|available|desired|min|max)WorkerReplicas")
_TOO_EARLY = ("False Unknown", "False HeadPodNotFound")
_GIVEN = ("is", "groups", "suspend", "observed")
"""What the replay does itself, or what is only reported along with another change."""
_NAME = re.compile(r"\bdemo-[a-z0-9-]+-[a-z0-9]{5}\b")
_DETAIL = re.compile(r"; Ray container terminated status: .*$")


def disagreements(
    recording: Recording, made: Mapping[str, Manifest], seen: Sequence[Seen]
) -> list[str]:
    """One line for each; none if the operator is as good as the recorded one."""
    found = [
        f"{what}: {difference}"
        for what, manifest in recording.made.items()
        for difference in _unlike(manifest, made.get(what), "")
    ]
    their_counts: dict[str, int] = {}
    our_counts: dict[str, int] = {}
    for action, done in zip(recording.actions, seen, strict=True):
        theirs, ours = _Summary(action.facts, their_counts), _Summary(done.facts, our_counts)
        for what in sorted({*theirs.parts, *ours.parts}):
            recorded, live = theirs.parts.get(what), ours.parts.get(what)
            if recorded != live:
                found.append(f"{action.name}: {what}: {live}, recorded {recorded}")
    return found


class _Summary:
    """The facts of one action, by what they are about."""

    def __init__(self, facts: Sequence[Fact], counts: dict[str, int]) -> None:
        """`counts` are those of the action before, and are brought up to date."""
        self.parts: dict[str, Any] = {}
        self._pods: dict[str, list[State]] = {}
        self._gone = False
        for fact in facts:
            if fact.of == "cluster" and fact.change.get("is") == "deleted":
                self._gone = True
            if self._gone and _made(fact):
                continue
            if fact.of == "cluster":
                self._status(fact.change)
            elif fact.of == "event":
                self._event(fact.change)
            elif fact.of.startswith("pod "):
                self._pod(fact.of.removeprefix("pod "), fact.change)
            else:
                self.parts.setdefault("services", set()).add((fact.of, fact.change["is"]))
        for what, values in self.parts.items():
            if _COUNT.search(what):
                path = [counts.get(what, 0), *(value or 0 for value in values)]
                self.parts[what] = _turning_points(path)
                counts[what] = path[-1]
        streams = [json.dumps(stream, sort_keys=True) for stream in self._pods.values()]
        self.parts["pods"] = sorted(streams)

    def _status(self, change: State) -> None:
        for name, value in change.items():
            between = name == "HeadPodReady" and value in _TOO_EARLY
            if name in _GIVEN or between or name == "head.podName":
                continue
            values = self.parts.setdefault(f"status {name}", [])
            if not values or values[-1] != value:
                values.append(value)

    def _event(self, change: State) -> None:
        message = _DETAIL.sub("", _NAME.sub("POD", change["message"]))
        message = re.sub(r"\b[a-z0-9-]+/", "NAMESPACE/", message)
        lines = (change["reason"], change["type"], change["action"], message)
        self.parts.setdefault("events", set()).add(lines)

    def _pod(self, name: str, change: State) -> None:
        if change.get("is") == "added":
            labels = {k: v for k, v in change.items() if k not in ("is", "phase")}
            self.parts.setdefault("pods made", []).append(labels)
        self._pods.setdefault(name, []).append(change)


def _made(fact: Fact) -> bool:
    return fact.change.get("is") == "added" or fact.change.get("action") == "Create"


def _turning_points(path: Sequence[int]) -> list[int]:
    """`[1, 2, 3, 1]` becomes `[3, 1]`: turning points and the last value."""
    steps = [value for at, value in enumerate(path) if at == 0 or value != path[at - 1]]
    return [
        value
        for at, value in enumerate(steps[1:], 1)
        if at + 1 == len(steps) or (value > steps[at - 1]) != (steps[at + 1] > value)
    ]


def _unlike(recorded: Any, live: Any, path: str) -> list[str]:
    """The differences of two manifests. Generated names of replicas are ignored."""
    if path.endswith("ray.io/worker-group-replica-name"):
        return [] if isinstance(live, str) else [f"{path} is {live}"]
    if isinstance(recorded, dict) and isinstance(live, dict):
        return [
            line
            for name in sorted({*recorded, *live})
            for line in _unlike(recorded.get(name), live.get(name), f"{path}.{name}")
        ]
    if isinstance(recorded, list) and isinstance(live, list) and len(recorded) == len(live):
        return [
            line
            for at, (mine, other) in enumerate(zip(recorded, live, strict=True))
            for line in _unlike(mine, other, f"{path}[{at}]")
        ]
    return [] if recorded == live else [f"{path} is {live!r}, recorded {recorded!r}"]
