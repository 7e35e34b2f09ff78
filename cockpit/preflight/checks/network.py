"""Whether each pair of pods reduces fast enough, and which pod or node is slow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from cockpit.format import bytes_text, duration
from cockpit.model.cluster import Pod
from cockpit.preflight.finding import Finding, State, listed
from cockpit.preflight.network import Pair
from cockpit.preflight.target import Target

NAME = "network"
LEAST_BYTES_PER_S = 12.5e6
"""100 Mbit/s: gradients of 25 MB take 2 s."""
SLOW_SHARE = 0.5
"""Of the bandwidth of the faster pairs."""
LATE_TIMES, LATE_S = 5.0, 0.01
"""A pair is late at that many times the median latency of the pairs, and above 10 ms."""


def network(pairs: Sequence[Pair], target: Target) -> Iterator[Finding]:
    broken = [pair for pair in pairs if pair.error]
    if broken:
        first = broken[0]
        yield Finding(
            NAME,
            State.FAILED,
            f"{first.one} and {first.two} could not be measured: {first.error}"
            + (f" ({len(broken)} pairs)" if len(broken) > 1 else ""),
            "Allow all ports between the pods of the cluster (NetworkPolicy).",
            tuple(dict.fromkeys(pod for pair in broken for pod in (pair.one, pair.two))),
        )
    measured = [pair for pair in pairs if not pair.error]
    if not measured:
        return
    pods = {pod.name: pod for pod in target.pods}
    slow = _slow(measured, pods)
    slow_to_answer = _late(measured)
    if slow:
        yield _finding(
            slow,
            measured,
            pods,
            "low bandwidth",
            State.FAILED if slow[0].bytes_per_s < LEAST_BYTES_PER_S else State.WARNING,
        )
    if slow_to_answer := [pair for pair in slow_to_answer if pair not in slow]:
        yield _finding(slow_to_answer, measured, pods, "high latency", State.WARNING)
    if not slow and not slow_to_answer and not broken:
        least = min(measured, key=lambda pair: pair.bytes_per_s)
        yield Finding(NAME, State.OK, f"at least {_numbers(least)} ({least.one} and {least.two})")


def _slow(pairs: Sequence[Pair], pods: Mapping[str, Pod]) -> list[Pair]:
    """The slowest first. Pairs on one node and pairs of two nodes are compared separately."""
    found = []
    for same in (True, False):
        of = [pair for pair in pairs if _on_one_node(pair, pods) is same]
        if not of:
            continue
        # A slow pod of three is in two of the three pairs: the median would be slow.
        sizes = sorted(pair.bytes_per_s for pair in of)
        usual = sizes[math.ceil(0.75 * len(sizes)) - 1]
        least = max(LEAST_BYTES_PER_S, SLOW_SHARE * usual)
        found += [pair for pair in of if pair.bytes_per_s < least]
    return sorted(found, key=lambda pair: pair.bytes_per_s)


def _late(pairs: Sequence[Pair]) -> list[Pair]:
    usual = median(pair.latency_s for pair in pairs)
    found = [pair for pair in pairs if pair.latency_s > max(LATE_S, LATE_TIMES * usual)]
    return sorted(found, key=lambda pair: -pair.latency_s)


def _on_one_node(pair: Pair, pods: Mapping[str, Pod]) -> bool:
    hosts = {pods[name].host for name in (pair.one, pair.two) if name in pods}
    return len(hosts) == 1


def _finding(
    bad: Sequence[Pair],
    pairs: Sequence[Pair],
    pods: Mapping[str, Pod],
    what: str,
    state: State,
) -> Finding:
    """Name the pod that all of its pairs have in common, else the worst pair."""
    worst = bad[0]
    names = list(dict.fromkeys(name for pair in bad for name in (pair.one, pair.two)))
    common = [
        name for name in names if all(pair in bad for pair in pairs if name in (pair.one, pair.two))
    ]
    others = [pair for pair in pairs if pair not in bad]
    found = f"{what.capitalize()} between {worst.one} and {worst.two}: {_numbers(worst)}"
    if others:
        best = max(others, key=lambda pair: pair.bytes_per_s)
        found += f"; between {best.one} and {best.two}: {_numbers(best)}"
    blamed = common if len(common) == 1 and others else [worst.one, worst.two]
    hosts = [pods[name].host for name in blamed if name in pods and pods[name].host]
    if len(blamed) == 1:
        found += f". All pairs with {blamed[0]} have {what}"
    node = f" (node {listed(hosts)})" if hosts else ""
    return Finding(
        NAME,
        state,
        f"{found}.",
        f"Check the network of {listed(blamed)}{node}.",
        tuple(blamed),
    )


def _numbers(pair: Pair) -> str:
    return f"{bytes_text(pair.bytes_per_s)}/s, {duration(pair.latency_s)}"
