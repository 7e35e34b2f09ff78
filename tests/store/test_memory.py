"""What a store keeps of the past stays small, however many runs end and attempts fail."""

from __future__ import annotations

import math
import sys

import pytest
from msgspec.structs import replace

from cockpit.model.event import DrillInjected, LogExcerpted, MetricsReported, RunSeen
from cockpit.model.run import Checkpoint, RunState
from cockpit.store import run as run_module
from cockpit.store.excerpt import Excerpt
from cockpit.store.run import OLD_CHECKPOINTS, OLD_RANK_POINTS, PLACED_ATTEMPTS
from cockpit.store.series import Series
from cockpit.store.store import RUNS_IN_DETAIL, Store
from tests.events import DRILL, ONE, RUN, TWO, run_seen, started, tick

TICKS = 400


def a_run(store: Store, number: int) -> str:
    """Apply the events of a run that ends."""
    run_id, begin_s = f"{RUN}-{number}", number * 1_000.0
    seen = replace(run_seen(begin_s, RunState.RUNNING), run_id=run_id)
    store.apply(seen)
    for second in range(TICKS):
        at_s = begin_s + second
        store.apply(replace(tick(1, at_s, second, second + 1), run_id=run_id))
        saved = Checkpoint(second, f"/mnt/runs/{run_id}/checkpoint_{second}")
        store.apply(
            MetricsReported(
                at_s=at_s, source="telemetry", run_id=run_id, attempt=1, metrics={"loss": 0.5},
                checkpoint=saved,
            )
        )  # fmt: skip
    store.apply(replace(seen, at_s=begin_s + TICKS, state=RunState.FINISHED))
    return run_id


def test_runs_that_ended_before_others_keep_fewer_points_and_checkpoints() -> None:
    store = Store()
    ended = [a_run(store, number) for number in range(RUNS_IN_DETAIL + 2)]
    points = [len(store.runs[run_id].ranks[1].curves["loss"]) for run_id in ended]
    assert all(count < OLD_RANK_POINTS for count in points[:2])
    assert points[2:] == [TICKS] * RUNS_IN_DETAIL
    kept = [len(store.runs[run_id].checkpoints) for run_id in ended]
    assert kept == [OLD_CHECKPOINTS] * 2 + [TICKS] * RUNS_IN_DETAIL
    assert {store.runs[run_id].checkpoint_count for run_id in ended} == {TICKS}


def test_a_run_that_ends_again_downsamples_no_other() -> None:
    store = Store()
    ended = [a_run(store, number) for number in range(RUNS_IN_DETAIL)]
    last = store.runs[ended[-1]]
    again: RunSeen = replace(run_seen(9e6, RunState.RUNNING), run_id=last.id)
    store.apply(again)
    store.apply(replace(again, at_s=9e6 + 1, state=RunState.FINISHED))
    assert {len(store.runs[run_id].ranks[1].curves["loss"]) for run_id in ended} == {TICKS}


def test_old_attempts_of_a_crash_loop_share_placements_without_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_module, "PLACES_KEPT", 0)
    store, count = Store(), 2 * PLACED_ATTEMPTS
    store.apply(DrillInjected(at_s=1.0, source="user", drill=replace(DRILL, attempt=7)))
    for number in range(1, count + 1):
        store.apply(started(10.0 * number, number, ONE, TWO))
    run = store.runs[RUN]
    assert [*run.attempts] == [*range(1, count + 1)]
    assert {tuple(p.rank for p in view.placements) for view in run.attempts.values()} == {(0, 1)}
    placed = [number for number, view in run.attempts.items() if view.placements[0].node_id]
    assert placed == [7, 8, *range(count - PLACED_ATTEMPTS + 1, count + 1)]
    # Attempts 1 to 6 share one tuple, and those after the drill another one.
    old = [view.placements for number, view in run.attempts.items() if number not in placed]
    assert len({id(placements) for placements in old}) == 2


def test_a_limited_series_keeps_its_newest_points_and_its_range() -> None:
    series = Series(1_000)
    for second in range(900):
        series.append(float(second), float(second))
    series.limit(120)
    assert len(series) < 120
    assert list(series)[-30:] == [(float(second), float(second)) for second in range(870, 900)]
    assert series.times[0] < 60
    assert list(series.times) == sorted(series.times)
    series.append(900.0, math.nan)
    assert series.times[-1] == 900.0


def test_a_limit_does_not_change_a_series_that_shares_its_times() -> None:
    first, second = Series(1_000), Series(1_000)
    for at_s in range(500):
        first.append(float(at_s), 1.0)
        second.append(float(at_s), 2.0)
    second.share_with(first)
    first.limit(100)
    assert list(second) == [(float(at_s), 2.0) for at_s in range(500)]


@pytest.mark.parametrize(
    "lines", [(), ("one",), ("Traceback (most recent call last):", "  caf\u00e9 \udc80")]
)
def test_excerpt_of_a_log_has_the_lines_of_its_event(lines: tuple[str, ...]) -> None:
    assert Excerpt.of(excerpted(lines)).lines == lines


def test_excerpt_of_a_log_takes_a_fraction_of_its_lines() -> None:
    lines = tuple(
        f"2026-11-25 10:00:{number:02d},123 ERROR worker.py:{number} -- rank 1 lost its node"
        for number in range(60)
    )
    kept = Excerpt.of(excerpted(lines))
    assert sys.getsizeof(kept.packed) < sum(map(sys.getsizeof, lines)) / 5


def excerpted(lines: tuple[str, ...]) -> LogExcerpted:
    return LogExcerpted(
        at_s=1.0, source="failures", job_id="job", log="log of rank 1", lines=lines, run_id=RUN,
        attempt=1, rank=1,
    )  # fmt: skip
