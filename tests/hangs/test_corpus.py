"""Hangs and healthy runs of real gloo processes, from the watchdog to the verdict."""

from __future__ import annotations

import pytest

from tests.hangs.corpus import Watched, played
from tests.hangs.scenarios import HANGS, HEALTHY

QUICK_HANGS = ("sleep", "frozen", "barrier-on-rank-0", "groups-in-other-order", "fifo")
QUICK_HEALTHY = ("evaluation", "slow-start")
VERDICT_WITHIN_S = 30.0
SLOW = frozenset({"endless-loop", "everyone-sleeps"})
"""Hangs that look like work: the bound is the longer one."""
AT_ONCE = 8
"""Scenarios that run together."""


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Watched]:
    return played([*QUICK_HANGS, *QUICK_HEALTHY], tmp_path_factory.mktemp("quick"))


@pytest.mark.parametrize("name", QUICK_HANGS)
def test_hang_is_explained_within_30_s(name: str, quick: dict[str, Watched]) -> None:
    explained(quick[name])


@pytest.mark.parametrize("name", QUICK_HEALTHY)
def test_healthy_run_gets_no_verdict(name: str, quick: dict[str, Watched]) -> None:
    assert quick[name].verdict is None
    assert quick[name].ended == quick[name].world


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Watched]:
    names = [name for name in (*HANGS, *HEALTHY) if name not in (*QUICK_HANGS, *QUICK_HEALTHY)]
    found: dict[str, Watched] = {}
    for start in range(0, len(names), AT_ONCE):
        found |= played(names[start : start + AT_ONCE], tmp_path_factory.mktemp("rest"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in HANGS if name not in QUICK_HANGS])
def test_every_hang_is_explained(name: str, rest: dict[str, Watched]) -> None:
    explained(rest[name], None if name in SLOW else VERDICT_WITHIN_S)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in HEALTHY if name not in QUICK_HEALTHY])
def test_no_healthy_run_gets_a_verdict(name: str, rest: dict[str, Watched]) -> None:
    assert rest[name].verdict is None
    assert rest[name].ended == rest[name].world


def explained(watched: Watched, within_s: float | None = VERDICT_WITHIN_S) -> None:
    _, kind, ranks = HANGS[watched.name]
    found = watched.verdict
    assert found is not None
    assert (found.kind, found.ranks) == (kind, ranks), found.sentence
    assert within_s is None or watched.took_s <= within_s
