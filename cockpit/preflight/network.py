"""Measure all-reduce between the pods of each pair, with torch in the pods."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Struct, field

from cockpit.backends.protocol import Backend
from cockpit.drills.engine import pod_script
from cockpit.format import in_seconds
from cockpit.model.cluster import Pod
from cockpit.model.decoding import limited_json
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line
from cockpit.preflight.facts import Facts

AT_ONCE = 32
"""Pods that are measured at the same time: each is a connection to the API server."""
LIMIT_S = 120.0
"""For all pairs of these pods, with the imports of torch."""
WAIT_S = 30.0
"""For a peer, which may still import torch."""
MOST_ROUNDS = 15
"""The maximum number of other pods that each pod is measured with."""
FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Above the ports of Ray's workers, and below those that the kernel gives to connections."""
Number = Annotated[float, msgspec.Meta(ge=0)]


class Pair(Struct, frozen=True):
    """All-reduce between two pods."""

    one: str
    two: str
    bytes_per_s: float = 0.0
    latency_s: float = 0.0
    """Of an all-reduce of one number."""
    error: str = ""


class _Measured(Struct, frozen=True):
    latency_s: Number
    bytes_per_s: Number
    error: str = ""


class _Output(Struct, frozen=True):
    pairs: Mapping[str, _Measured] = field(default_factory=dict)


async def measure(
    backend: Backend, pods: Sequence[Pod], facts: Mapping[str, Facts], *, limit_s: float = LIMIT_S
) -> list[Pair]:
    """Measure each pair of pods, pairs without a common pod at the same time.

    With NCCL if every pod has a GPU, else with gloo on the CPU. More than AT_ONCE pods are measured
    in groups, one after the other, for `limit_s` each. If all pairs of the first group fail, the
    others are not measured.
    """
    kind = "nccl" if all(facts[pod.name].gpus for pod in pods) else "gloo"
    count = math.ceil(len(pods) / AT_ONCE)
    found: list[Pair] = []
    for first in range(count):
        # Not pods in sequence: the last group might be a single one.
        found += await _measure_group(backend, pods[first::count], kind, limit_s)
        if all(pair.error for pair in found):
            break  # the others would wait as long
    return found


async def _measure_group(
    backend: Backend, pods: Sequence[Pod], kind: str, limit_s: float
) -> list[Pair]:
    meetings: dict[str, list[dict[str, Any]]] = {pod.name: [] for pod in pods}
    planned: list[tuple[str, str]] = []
    port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT - len(pods) * MOST_ROUNDS)
    for one, two in (pair for pairs in rounds(len(pods)) for pair in pairs):
        first, second = pods[one], pods[two]
        planned.append((first.name, second.name))
        common = {"master": first.ip, "port": port + len(planned)}
        meetings[first.name].append({"peer": second.name, "rank": 0, **common})
        meetings[second.name].append({"peer": first.name, "rank": 1, **common})

    async def ask(pod: Pod) -> Mapping[str, _Measured] | str:
        request = {
            "address": pod.ip,
            "backend": kind,
            "wait_s": WAIT_S,
            "meetings": meetings[pod.name],
        }
        argv = pod_script.argv("bandwidth", json.dumps(request), package="preflight")
        try:
            async with asyncio.timeout(limit_s):
                done = await backend.exec(pod.name, argv, uid=pod.uid)
            return pod_script.last_line(done) if done.exit_code else decoded(done.stdout)
        except TimeoutError:
            return f"no answer within {in_seconds(limit_s)}"
        except (CockpitError, ValueError) as error:
            return one_line(str(error).splitlines()[0])

    found = dict(zip(meetings, await asyncio.gather(*(ask(pod) for pod in pods)), strict=True))
    return [_pair(one, two, found) for one, two in planned]


def rounds(count: int) -> Iterator[list[tuple[int, int]]]:
    """Pairs of `count` pods by round: no pod is in two pairs of a round, each pair is in one.

    The round-robin tournament: one place is fixed, and the others rotate.
    """
    places: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    for _ in range(min(len(places) - 1, MOST_ROUNDS)):
        half = len(places) // 2
        sides = zip(places[:half], reversed(places[half:]), strict=True)
        yield [(one, two) for one, two in sides if one is not None and two is not None]
        places = [places[0], places[-1], *places[1:-1]]


def decoded(output: str) -> Mapping[str, _Measured]:
    """The results of one pod by peer. Raises ValueError, in one line."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    try:
        raw = limited_json.loads(lines[-1] if lines else "", max_bytes=1 << 20)
        return msgspec.convert(raw, _Output).pairs
    except ValueError as error:
        why = one_line(str(error))
        raise ValueError(f"the result of the measurement is not understood: {why}") from error


def _pair(one: str, two: str, found: Mapping[str, Mapping[str, _Measured] | str]) -> Pair:
    """The lesser of what both pods measured; the error of either."""
    sides: list[_Measured] = []
    for pod, peer in ((one, two), (two, one)):
        answer = found[pod]
        if isinstance(answer, str):
            return Pair(one, two, error=f"{pod}: {one_line(answer)}")
        measured = answer.get(peer)
        if measured is None or not math.isfinite(measured.bytes_per_s + measured.latency_s):
            return Pair(one, two, error=f"{pod} has not measured it")
        if measured.error:
            return Pair(one, two, error=f"{pod}: {one_line(measured.error)}")
        sides.append(measured)
    return Pair(
        one,
        two,
        min(side.bytes_per_s for side in sides),
        max(side.latency_s for side in sides),
    )
