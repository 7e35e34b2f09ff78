"""The network between pods: measured here for real, and judged."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.model.cluster import Pod
from cockpit.preflight.checks.network import network
from cockpit.preflight.finding import Finding, State
from cockpit.preflight.network import MOST_ROUNDS, Pair, _pair, decoded, measure, rounds
from tests.fuzz.cases import assert_clean, broken, examine, quick_and_slow
from tests.preflight.pods import FACTS, HEAD, ONE, TWO, PodsHere, target

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
    assert "head and two are slow: 586 KiB/s" in one.found
    assert "head and one have 1.1 GiB/s" in one.found
    assert "All pairs of two are slow." in one.found
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
    assert (one.state, "head and two are late" in one.found) == (State.WARNING, True)


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


@quick_and_slow(500)
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
