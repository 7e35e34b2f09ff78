"""Many ranks in few bytes: nothing that matters is left out, and no rank starves."""

from __future__ import annotations

import math
from dataclasses import replace

from training.telemetry.head.quantiles import spreads
from training.telemetry.head.world import World
from training.telemetry.wire import Record, Steps, Tick, encode

RANKS = 1000


class Clock:
    s = 100.0

    def __call__(self) -> float:
        return self.s


def steps(rank: int, step: int = 1, attempt: int = 1) -> Steps:
    return Steps(
        rank=rank,
        attempt=attempt,
        t=0.0,
        step=step,
        first_step=step,
        steps_total=step,
        loss=1.0 + rank / RANKS,
        step_time_s=0.1,
        gpu_ecc_errors=0,
    )


def world(clock: Clock, ranks: int = RANKS) -> World:
    made = World("r", clock, full_ranks=256, turn_ranks=64, large_tick_s=1.0, silent_after_s=5.0)
    made.begins(1, range(ranks))
    return made


def ticked(made: World) -> Tick:
    tick = made.tick()
    assert tick is not None
    return tick


def test_a_small_world_is_reported_in_full_at_once() -> None:
    made = world(Clock(), 256)
    made.take([steps(rank) for rank in range(256)])
    tick = ticked(made)
    assert [item.rank for item in tick.ranks] == list(range(256))
    assert tick.spreads == ()
    assert made.tick() is None


def test_a_large_world_is_reported_once_a_second_by_its_spreads() -> None:
    clock = Clock()
    made = world(clock)
    made.take([steps(rank) for rank in range(RANKS)])
    tick = ticked(made)
    loss = next(item for item in tick.spreads if item.name == "loss")
    assert (loss.count, loss.low, loss.high) == (RANKS, 1.0, 1.999)
    assert (loss.low_rank, loss.high_rank) == (0, 999)
    assert abs(loss.mean - 1.4995) < 1e-9
    assert (loss.p10, loss.p50, loss.p90) == (1.1, 1.5, 1.899)
    assert (tick.attempt, tick.reporting, tick.silent) == (1, RANKS, ())
    made.take([steps(0, 2)])
    clock.s += 0.5
    assert made.tick() is None, "not so soon again"
    clock.s += 0.5
    assert ticked(made).reporting == 1


def test_every_rank_has_its_turn() -> None:
    clock = Clock()
    made = world(clock)
    seen: set[int] = set()
    for second in range(math.ceil(RANKS / 64)):
        made.take([steps(rank, second) for rank in range(RANKS)])
        seen.update(item.rank for item in ticked(made).ranks)
        clock.s += 1
    assert seen == set(range(RANKS))


def test_those_that_are_outliers_are_reported_in_full_whose_turn_ever_it_is() -> None:
    clock = Clock()
    made = world(clock)
    made.take([steps(rank) for rank in range(RANKS)])
    ticked(made)
    clock.s += 1
    records = [steps(rank, 2) for rank in range(RANKS)]
    records[500] = replace(records[500], step_time_s=9.0)
    records[600] = replace(records[600], loss=math.nan)
    records[700] = replace(records[700], gpu_ecc_errors=3)
    records[800] = replace(records[800], gpu_xid=79)
    made.take(records)
    reported = {item.rank for item in ticked(made).ranks}
    assert {0, 999, 500, 600, 700, 800} <= reported
    assert len(reported) <= 64 + 6


def test_an_alarming_record_is_not_replaced_by_a_later_one() -> None:
    clock = Clock()
    made = world(clock)
    made.take([steps(rank) for rank in range(RANKS)])
    ticked(made)
    made.take([replace(steps(600, 2), loss=math.nan)])
    made.take([steps(600, 3)])
    clock.s += 1
    (reported,) = [item for item in ticked(made).ranks if item.rank == 600]
    assert reported.loss is not None
    assert math.isnan(reported.loss)


def test_stopped_ranks_are_stale_the_longest_first_and_leave_the_spreads() -> None:
    clock = Clock()
    made = world(clock)
    for second in range(10):
        quiet = {7} if second < 2 else {7, 8}
        made.take([steps(rank, second) for rank in range(RANKS) if rank not in quiet])
        tick = ticked(made)
        clock.s += 1
    assert tick.silent == (7, 8)
    assert tick.reporting == RANKS - 2
    assert {item.count for item in tick.spreads} == {RANKS - 2}


def test_ticks_without_any_rank_are_reported_too() -> None:
    clock = Clock()
    made = world(clock)
    made.take([steps(rank) for rank in range(RANKS)])
    ticked(made)
    clock.s += 6
    tick = ticked(made)
    assert (tick.reporting, len(tick.silent)) == (0, 256)
    clock.s += 6
    assert made.tick() is None, "once"


def test_an_attempt_of_another_size_begins_again() -> None:
    clock = Clock()
    made = world(clock)
    made.take([steps(rank) for rank in range(RANKS)])
    ticked(made)
    made.begins(2, range(100))
    made.take([steps(999, 5)])  # a last record of the previous attempt
    made.take([steps(rank, 6, attempt=2) for rank in range(100)])
    tick = ticked(made)
    assert tick.spreads == ()
    assert [(item.rank, item.attempt) for item in tick.ranks[:2]] == [(999, 1), (0, 2)]
    assert len(tick.ranks) == 101


def test_line_and_memory_do_not_grow_with_stale_ranks() -> None:
    clock = Clock()
    made = world(clock)
    for second in range(50):
        made.take([steps(rank, second) for rank in range(RANKS)])
        made.take([steps(rank, second) for rank in range(RANKS)])
        clock.s += 1
    line = encode(Record(1, 0.0, ticked(made)))
    assert len(line) < 64 * 1024
    assert len(made.newest) == RANKS


def test_a_number_that_is_not_finite_is_counted_and_makes_the_mean_nan() -> None:
    found = {
        item.name: item for item in spreads([steps(0), replace(steps(1), loss=math.inf), steps(2)])
    }
    assert found["loss"].count == 3
    assert math.isnan(found["loss"].mean)
    assert found["loss"].high == 1.002
    assert found["step_time_s"].p50 == 0.1
    assert "grad_norm" not in found
    lost = spreads([replace(steps(0), loss=math.nan)])
    assert "loss" not in [item.name for item in lost]
