"""Curves with the same times share the array of them, and do not notice it."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from cockpit.model.event import RankSampled, RunSeen
from cockpit.model.run import RankSample, RunState
from cockpit.store.series import Curves, Series
from cockpit.store.store import Store


def series(times: list[float], value: float) -> Series:
    made = Series(100)
    for at_s in times:
        made.append(at_s, value)
    return made


def test_series_of_the_same_times_have_one_array_until_one_grows() -> None:
    first, second, other = (
        series([1.0, 2.0], 5.0),
        series([1.0, 2.0], 6.0),
        series([1.0, 3.0], 7.0),
    )
    known: dict[bytes, Series] = {}
    for one in (first, second, other):
        one.share_times(known)
    assert first.times is second.times
    assert list(other) == [(1.0, 7.0), (3.0, 7.0)]
    second.append(4.0, 8.0)
    first.append(9.0, 9.0)
    assert list(first) == [(1.0, 5.0), (2.0, 5.0), (9.0, 9.0)]
    assert list(second) == [(1.0, 6.0), (2.0, 6.0), (4.0, 8.0)]


def test_a_shared_series_that_is_full_is_downsampled_alone() -> None:
    full = [float(n) for n in range(100)]
    first, second = series(full, 1.0), series(full, 2.0)
    known: dict[bytes, Series] = {}
    first.share_times(known)
    second.share_times(known)
    second.append(100.0, 3.0)
    assert list(first) == [(at_s, 1.0) for at_s in full]
    assert len(second) < 100
    assert all(earlier < later for earlier, later in pairwise(second.times))


def test_the_curves_of_a_run_share_their_times_when_it_ends() -> None:
    store = Store()

    def seen(state: RunState, at_s: float) -> RunSeen:
        return RunSeen(at_s=at_s, source="t", run_id="r", name="r", state=state)

    store.apply(seen(RunState.RUNNING, 0.0))
    for n in range(1, 20):
        sample = RankSample(
            0,
            attempt=1,
            at_s=float(n),
            step=n,
            first_step=n,
            steps_total=n,
            loss=1.0 / n,
            step_time_s=0.5,
        )
        store.apply(RankSampled(at_s=float(n), source="t", run_id="r", samples=(sample,)))
    of_rank, of_run = store.runs["r"].ranks[0].curves, store.runs["r"].curves
    assert of_rank["loss"].times is of_rank["step_time_s"].times
    assert of_rank["loss"].times is not of_run["loss"].times
    before = list(of_rank["loss"])
    store.apply(seen(RunState.FINISHED, 20.0))
    assert of_rank["loss"].times is of_run["loss"].times
    assert list(of_rank["loss"]) == before


@pytest.mark.parametrize("seed", range(20))
def test_curves_that_share_their_times_are_as_those_that_do_not(seed: int) -> None:
    chance = random.Random(seed)
    curves, alone = Curves(40), {name: Series(40) for name in "abcd"}
    at_s = 0.0
    for _ in range(400):
        at_s += chance.choice((1.0, 1.0, 1.0, 0.0, -1.5, 300.0, -200.0))
        for name, one in alone.items():
            if chance.random() < 0.97:
                late_s = chance.choice((0.0,) * 30 + (0.5,))
                curves.append(name, at_s - late_s, chance.random())
                one.append(at_s - late_s, curves[name].values[-1])
            if chance.random() < 0.05:
                assert list(curves[name]) == list(one)
        if chance.random() < 0.02:
            curves = Curves.at(curves.bookmarks())
    assert {name: list(curves[name]) for name in alone} == {n: list(s) for n, s in alone.items()}


def test_curves_of_the_same_times_have_one_array_also_when_they_are_full() -> None:
    curves = Curves(64)
    for at_s in range(1_000):
        for name in ("loss", "step_time_s", "samples_per_s"):
            curves.append(name, float(at_s), 1.0)
    assert len({id(curves[name].times) for name in curves}) == 1
