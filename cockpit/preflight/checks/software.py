"""Whether every pod has the driver's versions and the job's modules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from cockpit.format import plural
from cockpit.preflight.demand import Demand
from cockpit.preflight.facts import Facts
from cockpit.preflight.finding import Finding, State, listed

WHY = {
    "python": "Ray ends processes with another Python version.",
    "ray": "Ray ends processes with another Ray version.",
    "torch": "Ranks with different versions of torch may fail when they connect.",
}
"""Ray compares the complete versions: `check_version_info` in ray/_private/utils.py (2.60)."""
SAME_IMAGE = "Use the same image in all groups."


def versions(facts: Mapping[str, Facts], head: str) -> Iterator[Finding]:
    """Compare with the head, where the driver runs; without its answer, with the most pods."""
    for package, why in WHY.items():
        found = {pod: _version(of, package) for pod, of in facts.items()}
        if not any(found.values()):
            continue
        expected = found.get(head) or Counter(filter(None, found.values())).most_common(1)[0][0]
        others: dict[str, list[str]] = defaultdict(list)
        for pod, version in found.items():
            if version != expected:
                others[version].append(pod)
        if not others:
            pods = "all pods" if len(found) > 1 else "the pod"
            yield Finding(package, State.OK, f"{expected} in {pods}")
            continue
        parts = [f"{of or 'not installed'} in {listed(pods)}" for of, pods in others.items()]
        where = "the head" if found.get(head) else "the other pods"
        yield Finding(
            package,
            State.FAILED,
            f"{'; '.join(parts)}; {where} {'has' if found.get(head) else 'have'} {expected}.",
            f"{why} {SAME_IMAGE}",
            tuple(pod for pods in others.values() for pod in pods),
        )


def _version(facts: Facts, package: str) -> str:
    return facts.python if package == "python" else facts.versions.get(package, "")


def modules(facts: Mapping[str, Facts], demand: Demand) -> Iterator[Finding]:
    """Missing modules of the job. Packages that Ray installs may supply them: then a warning."""
    if not facts or not (demand.modules or demand.optional):
        return
    missing: dict[str, list[str]] = defaultdict(list)
    for pod, of in facts.items():
        for name in of.missing:
            missing[name].append(pod)
    required = [name for name in missing if name in demand.modules]
    for name in required:
        yield Finding(
            "module",
            State.WARNING if demand.installs else State.FAILED,
            f"{name} is missing in {listed(missing[name])}.",
            f"Not in the image; it has to come from {demand.installs}."
            if demand.installs
            else f"Install it in the image, or launch with --pip {name}.",
            tuple(missing[name]),
        )
    if optional := [name for name in missing if name not in demand.modules]:
        pods = tuple(dict.fromkeys(pod for name in optional for pod in missing[name]))
        yield Finding(
            "module",
            State.WARNING,
            f"{listed(optional)} missing in {listed(pods)}; the job imports it late or handles it.",
            pods=pods,
        )
    if not missing:
        count = len(demand.modules) + len(demand.optional)
        yield Finding("modules", State.OK, f"{plural(count, 'module')} found")
