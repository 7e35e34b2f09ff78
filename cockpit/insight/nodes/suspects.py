"""Nodes that are likely bad: by the incidents of recorded runs, and by what Kubernetes reports now.

A node is suspect with one of these:

- a condition or a taint that reports a problem, a GPU that was withdrawn, or it is not ready
- a GPU error (an Xid, or an uncorrected memory error)
- at least 2 failures, and more than chance explains: with the failure rate of the other nodes,
  that number would happen with a probability below 5 % (the tail of a Poisson distribution)
- slow ranks or throttled GPUs in at least 2 runs
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from cockpit import format
from cockpit.insight.nodes.incident import FAILURES, Incident, Kind, RunIncidents
from cockpit.model.cluster import CONNECTING, KubernetesNode

WEIGHTS = {
    Kind.GPU_ERROR: 5,
    Kind.NODE_DIED: 3,
    Kind.RANK_DIED: 2,
    Kind.POD_FAILED: 2,
    Kind.HANG: 2,
    Kind.SLOW: 1,
    Kind.THROTTLED: 1,
}
NOT_READY_WEIGHT, CONDITION_WEIGHT = 5, 4
FEWEST_FAILURES = 2
FEWEST_SLOW_RUNS = 2
CHANCE = 0.05
PRIOR_HOURS = 1.0
"""Added to the hours of the other nodes, with half a failure: their failure rate is never exactly 0
(a Gamma prior for a Poisson rate)."""


class Suspect(Struct, frozen=True):
    node: str
    score: int
    """The sum of the weights of its incidents; the list is in this order."""
    evidence: tuple[str, ...]
    """A line each, the heaviest first."""
    last_s: float | None
    """The newest incident; None when all of the evidence is of now."""
    cordoned: bool = False


def suspects(
    history: Iterable[RunIncidents], nodes: Sequence[KubernetesNode] = ()
) -> list[Suspect]:
    """Return the suspect nodes, the highest score first.

    With `nodes`, the current K8s nodes, deleted nodes are left out.
    """
    by_node: dict[str, list[Incident]] = defaultdict(list)
    hours: dict[str, float] = defaultdict(float)
    for run in history:
        for incident in run.incidents:
            by_node[incident.node].append(incident)
        for node, of_run in run.node_hours.items():
            hours[node] += of_run
    present = {node.name: node for node in nodes}
    failures = {
        node: sum(one.kind in FAILURES for one in incidents) for node, incidents in by_node.items()
    }
    found = []
    for node in present or by_node:
        incidents, current = by_node.get(node, []), present.get(node)
        evidence = [
            *_now(current),
            *_gpu_errors(incidents),
            *_failures(node, failures, hours, incidents),
            *_slow(incidents),
        ]
        if evidence:
            score = sum(weight for weight, _ in evidence)
            lines = tuple(line for _, line in sorted(evidence, key=lambda each: -each[0]))
            last_s = max((one.at_s for one in incidents), default=None)
            cordoned = current is not None and current.cordoned
            found.append(Suspect(node, score, lines, last_s, cordoned))
    return sorted(found, key=lambda one: (-one.score, one.node))


def chance(count: int, expected: float) -> float:
    """Return the probability of at least `count` events where `expected` are expected (Poisson)."""
    below = sum(
        math.exp(k * math.log(expected) - expected - math.lgamma(k + 1)) for k in range(count)
    )
    return max(0.0, 1.0 - below)


_Evidence = tuple[int, str]
"""Its weight, and one line."""


def _now(node: KubernetesNode | None) -> list[_Evidence]:
    if node is None:
        return []
    found = []
    if not node.ready and node.reason != CONNECTING:
        found.append((NOT_READY_WEIGHT, f"now: not ready: {node.reason or 'no reason given'}"))
    for problem in node.problems:
        kind = "" if problem.startswith("taint ") else "condition "
        found.append((CONDITION_WEIGHT, f"now: {kind}{problem}"))
    if node.gpus_withdrawn:
        found.append((CONDITION_WEIGHT, f"now: {node.withdrawn} by their device plugin"))
    return found


def _gpu_errors(incidents: Sequence[Incident]) -> list[_Evidence]:
    errors = [one for one in incidents if one.kind is Kind.GPU_ERROR]
    if not errors:
        return []
    newest = max(errors, key=lambda one: one.at_s)
    counted = format.plural(len(errors), "GPU error")
    return [(WEIGHTS[Kind.GPU_ERROR] * len(errors), f"{counted}, the newest: {newest.what}")]


def _failures(
    node: str, failures: dict[str, int], hours: dict[str, float], incidents: Sequence[Incident]
) -> list[_Evidence]:
    here = [one for one in incidents if one.kind in FAILURES]
    if len(here) < FEWEST_FAILURES:
        return []
    others = sum(failures.values()) - len(here)
    other_hours = sum(hours.values()) - hours[node]
    expected = (others + 0.5) / (other_hours + PRIOR_HOURS) * max(hours[node], 1 / 60)
    probability = chance(len(here), expected)
    if probability >= CHANCE:
        return []
    kinds = Counter(one.kind for one in here)
    named = ", ".join(f"{kind.value} × {kinds[kind]}" for kind in FAILURES if kinds[kind])
    here_for, others_for = (format.in_hours(3600 * h, 1) for h in (hours[node], other_hours))
    line = (
        f"{len(here)} failures in {here_for} with ranks ({named}); "
        f"other nodes: {others} in {others_for}"
    )
    return [(sum(WEIGHTS[one.kind] for one in here), line)]


def _slow(incidents: Sequence[Incident]) -> list[_Evidence]:
    found = []
    for kind in (Kind.SLOW, Kind.THROTTLED):
        runs = {one.run_id for one in incidents if one.kind is kind}
        if len(runs) >= FEWEST_SLOW_RUNS:
            found.append((WEIGHTS[kind] * len(runs), f"{kind.value} in {len(runs)} runs"))
    return found
