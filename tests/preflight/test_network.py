"""The network between pods: measured here for real, and judged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.backends.protocol import ExecResult
from cockpit.drills.engine import pod_script
from cockpit.model.cluster import Pod
from cockpit.preflight.checks.network import network
from cockpit.preflight.finding import Finding, State
from cockpit.preflight.network import (
    AT_ONCE,
    FIRST_PORT,
    LAST_PORT,
    MOST_ROUNDS,
    Pair,
    _pair,
    decoded,
    measure,
    rounds,
)
from tests.fuzz.cases import assert_clean, broken, examine, quick_and_nightly
from tests.preflight.pods import FACTS, HEAD, ONE, TWO, PodsHere, pod, target
from tests.simulated_backend import ScriptedBackend

FAST, SLOW = 1.2e9, 0.6e6
THREE = ("head", "one", "two")


def pairs(*slow: str, names: tuple[str, ...] = THREE) -> list[Pair]:
    """All pairs; those with one of the slow pods have little bandwidth."""
    return [
        Pair(one, two, SLOW if {one, two} & set(slow) else FAST, 0.0002)
        for one, two in combinations(names, 2)
    ]


def judged(measured: list[Pair]) -> list[Finding]:
    return list(network(measured, target()))


def test_pairs_that_are_alike_are_ok_with_the_least_of_them() -> None:
    [one] = judged(pairs())
    assert (one.state, one.found) == (State.OK, "at least 1.1 GiB/s, 200 µs (head and one)")


def test_pod_of_all_slow_pairs_is_named_with_its_node() -> None:
    [one] = judged(pairs("two"))
    assert (one.state, one.pods) == (State.FAILED, ("two",))
    assert "Low bandwidth between head and two: 586 KiB/s" in one.found
    assert "between head and one: 1.1 GiB/s" in one.found
    assert "All pairs with two have low bandwidth." in one.found
    assert one.fix == "Check the network of two (node node-2)."


def test_one_slow_pair_names_both_pods() -> None:
    measured = pairs()
    measured[2] = replace(measured[2], bytes_per_s=FAST / 3)
    [one] = judged(measured)
    assert (one.state, one.pods) == (State.WARNING, ("one", "two"))
    assert "(node node-1 and node-2)" in one.fix


def test_two_pods_alone_are_judged_by_the_least_bandwidth() -> None:
    [one] = judged([Pair("head", "one", SLOW, 0.03)])
    assert (one.state, one.pods) == (State.FAILED, ("head", "one"))
    [one] = judged([Pair("head", "one", FAST, 0.0003)])
    assert one.state is State.OK


def test_pairs_on_one_node_are_not_compared_with_those_of_two() -> None:
    together = replace(target(), workers=(replace(ONE, host="n"), replace(TWO, host="n")))
    measured = [
        Pair("head", "one", FAST / 10, 0.0002),
        Pair("head", "two", FAST / 10, 0.0002),
        Pair("one", "two", FAST, 0.0001),
    ]
    assert [one.state for one in network(measured, together)] == [State.OK]


def test_late_pair_is_a_warning() -> None:
    measured = pairs()
    measured[1] = replace(measured[1], latency_s=0.15)
    [one] = judged(measured)
    words = "High latency between head and two:"
    assert (one.state, words in one.found) == (State.WARNING, True)


def test_pair_that_could_not_be_measured_fails_with_the_reason() -> None:
    measured = [*pairs()[:2], Pair("one", "two", error="one: Connection refused")]
    [one] = judged(measured)
    assert (one.state, one.pods) == (State.FAILED, ("one", "two"))
    assert "one and two could not be measured: one: Connection refused" in one.found


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8])
def test_each_pair_meets_once_and_no_pod_twice_in_a_round(count: int) -> None:
    played = list(rounds(count))
    for meetings in played:
        busy = [pod for pair in meetings for pod in pair]
        assert len(busy) == len(set(busy))
    met = sorted(tuple(sorted(pair)) for meetings in played for pair in meetings)
    assert met == list(combinations(range(count), 2))


def test_many_pods_are_measured_with_some_of_the_others() -> None:
    played = list(rounds(100))
    assert len(played) == MOST_ROUNDS
    assert {pod for pair in played[0] for pod in pair} == set(range(100))


@quick_and_nightly(500)
def test_result_of_a_measurement_is_an_error_or_clean(cases: int) -> None:
    document = {"torch": "2", "pairs": {"one": {"latency_s": 1, "bytes_per_s": 2, "error": ""}}}

    def examined(raw: Any) -> None:
        with suppress(ValueError):
            found = decoded(json.dumps(raw))
            answers: dict[str, Any] = {"head": found, "one": found, "two": "no answer"}
            for pair in combinations(answers, 2):
                measured = _pair(*pair, answers)
                assert_clean(measured.error)
                assert_clean(list(network([measured], target())))

    examine(broken(document), examined, cases)


def here(pod: Pod) -> Pod:
    return replace(pod, ip="127.0.0.1")


async def test_pods_are_measured_with_gloo(tmp_path: Path) -> None:
    facts = dict.fromkeys(("head", "one"), FACTS)
    backend = PodsHere(homes=tmp_path)
    [pair] = await measure(backend, [here(HEAD), here(ONE)], facts)
    assert (pair.one, pair.two, pair.error) == ("head", "one", "")
    assert pair.bytes_per_s > 1e6
    assert 0 < pair.latency_s < 1


@dataclass(slots=True)
class Measured(ScriptedBackend):
    """Each pod returns the same result, or `error`, for all that it was to meet."""

    error: str = ""
    running: int = 0
    most: int = 0

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        meetings = json.loads(argv[-1])["meetings"]
        assert all(FIRST_PORT <= meeting["port"] < LAST_PORT for meeting in meetings)
        result = {"latency_s": 0.001, "bytes_per_s": FAST, "error": self.error}
        pairs = dict.fromkeys((meeting["peer"] for meeting in meetings), result)
        return ExecResult(0, json.dumps({"pairs": pairs}), "")


@pytest.mark.parametrize("count", [AT_ONCE, AT_ONCE + 1, 1000])
async def test_no_more_pods_than_the_limit_are_measured_at_the_same_time(count: int) -> None:
    pods = [pod(f"pod-{number}", number) for number in range(count)]
    facts = dict.fromkeys((pod.name for pod in pods), FACTS)
    backend = Measured()
    found = await measure(backend, pods, facts)
    assert not any(pair.error for pair in found)
    assert {name for pair in found for name in (pair.one, pair.two)} == set(facts)
    assert backend.most <= AT_ONCE
    closed = Measured(error="Connection refused")
    assert 0 < len(await measure(closed, pods, facts)) <= AT_ONCE * MOST_ROUNDS // 2


@dataclass(slots=True)
class Device:
    """Simulated time of all-reduces of 1/16 s each: a GPU does them after the calls."""

    is_gpu: bool
    now_s: float = 0.0
    queued_s: float = 0.0

    def all_reduce(self, *_: object) -> None:
        self.queued_s += 1 / 16
        if not self.is_gpu:
            self.synchronize()

    def synchronize(self) -> None:
        self.now_s, self.queued_s = self.now_s + self.queued_s, 0.0


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_all_reduces_are_timed_without_the_first_and_up_to_64_mib(backend: str) -> None:
    device = Device(backend == "nccl")
    modules = {
        "torch": SimpleNamespace(
            device=lambda kind, _=0: SimpleNamespace(type=kind),
            ones=lambda count, **_: count,
            tensor=lambda values, **_: values[0],
            cuda=device,
        ),
        "torch.distributed": SimpleNamespace(
            TCPStore=lambda *_: None,
            init_process_group=lambda *_, **__: None,
            destroy_process_group=lambda: None,
            all_reduce=device.all_reduce,
            ReduceOp=SimpleNamespace(MAX=0),
        ),
    }
    script: dict[str, Any] = {"__name__": "bandwidth"}
    text = pod_script.source("bandwidth", "preflight")
    exec(text.removesuffix("sys.exit(ended(main))\n"), script)
    script["import_module"] = modules.__getitem__
    script["time"] = SimpleNamespace(monotonic=lambda: device.now_s)
    found = script["measure"]({"master": "", "port": 1, "rank": 0}, backend, 1.0)
    assert found == {"latency_s": 1 / 16, "bytes_per_s": 16 * (64 << 20), "error": ""}
