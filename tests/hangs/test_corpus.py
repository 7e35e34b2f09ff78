"""Hangs and healthy runs of real gloo processes, from the watchdog to the verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hangs.corpus import Watched, played
from tests.hangs.scenarios import HANGS, HEALTHY, variants
from tests.lanes import is_again

QUICK_HANGS = ("sleep:2", "frozen:2", "barrier-on-rank-0:3", "groups-in-other-order:2", "fifo:2")
QUICK_HEALTHY = ("evaluation:2", "slow-start:2")
REST_HANGS = [name for name in variants(HANGS) if name not in QUICK_HANGS]
REST_HEALTHY = [name for name in variants(HEALTHY) if name not in QUICK_HEALTHY]


def scenario(name: str) -> str:
    return name.partition(":")[0]


def once(names: list[str], known: tuple[str, ...]) -> list[str]:
    """Return the first variant of each scenario that has none in `known`."""
    first = {scenario(name): name for name in reversed(names)}
    wanted = first.keys() - set(map(scenario, known))
    return [name for name in names if name in first.values() and scenario(name) in wanted]


NIGHTLY_HEALTHY = ("slow-steps:2",)
"""A variant of `uneven`."""
SLOW_HANGS = once(REST_HANGS, QUICK_HANGS)
SLOW_HEALTHY = once(REST_HEALTHY, (*QUICK_HEALTHY, *NIGHTLY_HEALTHY))
VERDICT_WITHIN_S = 30.0
SLOW = frozenset({"endless-loop", "everyone-sleeps"})
"""Hangs that look like work: the bound is the longer one."""


@pytest.fixture(scope="module")
def hangs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Watched]:
    return played(QUICK_HANGS, True, tmp_path_factory.mktemp("hangs"))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Watched]:
    return played(QUICK_HEALTHY, False, tmp_path_factory.mktemp("healthy"))


@pytest.mark.timed
@pytest.mark.parametrize("name", QUICK_HANGS)
def test_hang_is_explained_within_30_s(
    name: str, hangs: dict[str, Watched], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    again = is_again(request.node)
    explained((played([name], True, tmp_path) if again else hangs)[name])


@pytest.mark.timed
@pytest.mark.parametrize("name", QUICK_HEALTHY)
def test_healthy_run_gets_no_verdict(
    name: str, healthy: dict[str, Watched], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    again = is_again(request.node)
    unsuspected((played([name], False, tmp_path) if again else healthy)[name])


@pytest.mark.slow
@pytest.mark.timed
def test_every_hang_is_explained(tmp_path: Path) -> None:
    assert wrong(played(SLOW_HANGS, True, tmp_path), explained) == []


@pytest.mark.slow
@pytest.mark.timed
def test_no_healthy_run_gets_a_verdict(tmp_path: Path) -> None:
    assert wrong(played(SLOW_HEALTHY, False, tmp_path), unsuspected) == []


@pytest.mark.nightly
@pytest.mark.timed
def test_every_hang_is_explained_with_any_number_of_ranks(tmp_path: Path) -> None:
    rest = [name for name in REST_HANGS if name not in SLOW_HANGS]
    assert wrong(played(rest, True, tmp_path), explained) == []


@pytest.mark.nightly
@pytest.mark.timed
def test_no_healthy_run_gets_a_verdict_with_any_number_of_ranks(tmp_path: Path) -> None:
    rest = [name for name in REST_HEALTHY if name not in SLOW_HEALTHY]
    assert wrong(played(rest, False, tmp_path), unsuspected) == []


def wrong(found: dict[str, Watched], check: Callable[[Watched], None]) -> list[str]:
    """Return a line for each run that the check fails: a run a test would wait for a turn alone."""
    lines = []
    for name, watched in found.items():
        try:
            check(watched)
        except AssertionError as error:
            lines.append(f"{name}: {error}")
    return lines


def explained(watched: Watched) -> None:
    hang = scenario(watched.name)
    _, kind, ranks = HANGS[hang]
    found = watched.verdict
    assert found is not None
    assert found.kind is kind, found.sentence
    assert ranks is None or found.ranks == ranks, found.sentence
    assert hang in SLOW or watched.took_s <= VERDICT_WITHIN_S


def unsuspected(watched: Watched) -> None:
    assert watched.verdict is None, watched.verdict.sentence
    assert watched.ended == watched.world
