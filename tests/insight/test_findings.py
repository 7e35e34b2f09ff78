"""No false alarm on healthy noise; each trouble is found, within the delay that the docs state."""

from __future__ import annotations

import math
import random

import pytest
from msgspec.structs import replace

from cockpit.insight.detectors.straggler import scores
from cockpit.model.event import RankSampled
from cockpit.model.run import RankSample, RunState, Spread
from tests.insight.training_run import GIB, RUN, Change, Training, Watcher

SICK_AT_S = 400.0


def watched(training: Training, *, healthy_s: float = SICK_AT_S) -> Watcher:
    training.start()
    watcher = Watcher(training)
    watcher.watch(healthy_s - training.now_s)
    assert watcher.found == {}
    return watcher


# -- healthy runs


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.nightly) for s in (1, 2))])
@pytest.mark.parametrize("ranks", [1, 2, 16])
def test_a_healthy_run_raises_nothing_in_a_quarter_of_an_hour(ranks: int, seed: int) -> None:
    training = Training(ranks=ranks, gpus=ranks > 2, seed=seed)
    watched(training, healthy_s=1_000.0 if ranks < 16 else 450.0)


def test_noise_of_a_quarter_of_the_step_raises_nothing() -> None:
    watched(Training(ranks=4, noise=0.25), healthy_s=900.0)


def test_clocks_that_are_minutes_off_raise_nothing() -> None:
    training = Training(ranks=4, skew_s={1: -240.0, 3: 180.0})
    training.start()
    watcher = Watcher(training)
    watcher.watch(600)
    assert watcher.raised == {}
    assert set(scores(training.run)) == {0, 1, 2, 3}


def test_evaluation_pauses_and_checkpoint_stalls_raise_nothing() -> None:
    """A pause of 50 s each five minutes; checkpoints of 15 s each ten."""
    pauses = tuple((at, at + 50.0) for at in range(300, 3_000, 300))
    watched(Training(ranks=2, pauses=pauses, saves=600.0, save_s=15.0), healthy_s=1_300.0)


def test_long_evaluations_are_learned_from_the_first() -> None:
    pauses = ((200.0, 310.0), (500.0, 700.0), (1_000.0, 1_200.0))
    watched(Training(ranks=2, pauses=pauses), healthy_s=1_500.0)


def test_an_elastic_resize_raises_nothing() -> None:
    training = Training(ranks=4)
    watcher = watched(training, healthy_s=400.0)
    training.state(RunState.RESIZING)
    watcher.idle(3)
    training.end("resized")
    training.ranks = 2
    training.start()
    watcher.watch(600)
    training.end("resized")
    watcher.idle(3)
    training.ranks = 4
    training.start()
    watcher.watch(600)
    assert watcher.raised == {}


def test_a_restart_raises_nothing_but_what_is_true() -> None:
    training = Training()
    watcher = watched(training)
    training.end("rank 1 died", back_by=60)
    watcher.idle(25)
    training.start()
    watcher.watch(500)
    assert watcher.raised == {}


def test_the_skewed_noise_of_a_loss_near_its_end_raises_nothing() -> None:
    """As of a small overfitted model: 0.001, and sometimes thirty times that."""
    noise = random.Random(5)

    def learned(sample: RankSample, at_s: float) -> RankSample:
        level = 2.3 * math.exp(-at_s / 12) + 0.001 * math.exp(noise.gauss(0, 1.6))
        return replace(sample, loss=level)

    training = Training(change=learned)
    training.start()
    watcher = Watcher(training)
    watcher.watch(900)
    assert watcher.raised == {}


def test_a_loop_that_gives_its_loss_once_a_minute_is_not_frozen() -> None:
    now_and_then: Change = lambda s, t: replace(s, loss=2.0 - 0.001 * (t // 60))  # noqa: E731
    training = Training(change=now_and_then)
    training.start()
    watcher = Watcher(training)
    watcher.watch(600)
    assert watcher.raised == {}


def wide(training: Training, reported: int = 16) -> Training:
    """That many of its ranks are reported in rotation each second; spreads are of all ranks."""
    training.start()
    every = training.ranks
    names = ("step", "loss", "step_time_s", "comm_s", "data_wait_s", "samples_per_s")

    def tick(*, saving: bool) -> None:
        first = training.step
        training.step += 10
        samples = [
            training.change(training._sample(rank, int(first) + 1, 1.0, 0.0), training.now_s)
            for rank in range(every)
        ]
        last_updates = [sample for sample in samples if sample is not None]
        second = int(training.now_s)
        in_turn = [(second * reported + n) % every for n in range(reported)]
        stale = tuple(n for n, sample in enumerate(samples) if sample is None)
        training.tell(
            RankSampled(
                at_s=training.clock, source="telemetry", run_id=RUN, attempt=1,
                samples=tuple(sample for sample in last_updates if sample.rank in in_turn),
                spreads=tuple(spread_of(name, last_updates) for name in names),
                reporting=len(last_updates), silent=stale,
            )
        )  # fmt: skip

    training.tick = tick
    return training


def spread_of(name: str, samples: list[RankSample]) -> Spread:
    known = sorted((float(getattr(sample, name)), sample.rank) for sample in samples)
    at = [known[round(share * (len(known) - 1))] for share in (0, 0.1, 0.5, 0.9, 1)]
    mean = sum(value for value, _ in known) / len(known)
    (low, low_rank), (p10, _), (p50, _), (p90, _), (high, high_rank) = at
    return Spread(name, len(known), mean, low, p10, p50, p90, high, low_rank, high_rank)


def test_a_wide_world_whose_ranks_are_reported_in_turn_raises_nothing_when_healthy() -> None:
    training = wide(Training(ranks=200, gpus=True))
    watcher = Watcher(training)
    watcher.watch(300)
    assert watcher.raised == {}


def test_a_wide_worlds_straggler_and_stale_ranks_are_found() -> None:
    def sick(sample: RankSample, at_s: float) -> RankSample | None:
        if at_s > 200 and sample.rank == 150:
            return None
        if at_s > 200:
            step = 0.16
            own = 0.155 if sample.rank == 77 else 0.07
            return replace(sample, step_time_s=step, comm_s=step - own)
        return sample

    training = wide(Training(ranks=200, change=sick))
    watcher = Watcher(training)
    watcher.watch(280)
    assert watcher.found["silent-rank"][1].subject == "rank 150"
    assert "straggler/rank 77" in training.store.alerts
    assert watcher.raised["straggler"] - 200 <= 30
    assert set(watcher.raised) <= {"straggler", "silent-rank", "comm-bound", "regression"}


def test_a_run_that_is_over_has_no_findings() -> None:
    training = Training(change=lambda sample, at_s: replace(sample, loss=math.nan))
    training.start()
    watcher = Watcher(training)
    watcher.watch(30)
    assert set(watcher.raised) == {"loss-nan"}
    training.state(RunState.ERRORED)
    watcher.idle(60)
    assert set(watcher.raised) == {"loss-nan"}
    assert set(watcher.cleared) == {"loss-nan"}


# -- runs with a problem: what, from when, reported how soon


def of_rank(number: int, change: Change) -> Change:
    return lambda sample, at_s: change(sample, at_s) if sample.rank == number else sample


def later(change: Change) -> Change:
    return lambda sample, at_s: change(sample, at_s) if at_s > SICK_AT_S else sample


def slow_rank(sample: RankSample, at_s: float) -> RankSample:
    """The step of every rank takes 60 % longer; this rank does not wait."""
    step = 1.6 * (sample.step_time_s or 0)
    return replace(sample, step_time_s=step, comm_s=0.01 if sample.rank == 1 else 0.93 * step / 1.6)


def growing(sample: RankSample, at_s: float) -> RankSample:
    grown = int((at_s - SICK_AT_S) * 0.02 * GIB)
    used = 100 * GIB + grown
    return replace(sample, gpu_memory_bytes=min(used, 139 * GIB))


SICK: dict[str, tuple[Training, float]] = {
    "loss-nan": (Training(change=later(lambda s, t: replace(s, loss=math.nan))), 1),
    "loss-spike": (
        Training(change=lambda s, t: replace(s, loss=(s.loss or 0) * (3 if 400 < t < 420 else 1))),
        5,
    ),
    "loss-divergence": (
        Training(
            change=later(lambda s, t: replace(s, loss=(s.loss or 0) + min(2.0, (t - 400) / 20)))
        ),
        120,
    ),
    "loss-frozen": (Training(change=later(lambda s, t: replace(s, loss=2.302585))), 46),
    "straggler": (Training(change=later(slow_rank)), 30),
    "silent-rank": (Training(change=later(of_rank(1, lambda s, t: None))), 30),
    "hung-run": (Training(change=later(lambda s, t: None)), 125),
    "idle-gpu": (
        Training(
            gpus=True,
            change=later(of_rank(1, lambda s, t: replace(s, gpu_utilization_percent=0.0))),
        ),
        135,
    ),
    "gpu-throttled": (
        Training(
            gpus=True, change=later(of_rank(0, lambda s, t: replace(s, gpu_throttle="hw thermal")))
        ),
        31,
    ),
    "gpu-xid": (
        Training(gpus=True, change=later(of_rank(1, lambda s, t: replace(s, gpu_xid=79)))),
        1,
    ),
    "gpu-ecc": (
        Training(gpus=True, change=later(of_rank(1, lambda s, t: replace(s, gpu_ecc_errors=2)))),
        1,
    ),
    "gpu-memory": (Training(gpus=True, change=later(of_rank(0, growing))), 600),
    "input-bound": (
        Training(
            change=later(
                lambda s, t: replace(s, data_wait_s=0.06, comm_s=0.01, step_time_s=0.13)
            )
        ),
        130,
    ),
    "comm-bound": (
        Training(change=later(lambda s, t: replace(s, comm_s=0.2, step_time_s=0.28))),
        130,
    ),
    "regression": (
        Training(
            change=later(
                lambda s, t: replace(
                    s, samples_per_s=(s.samples_per_s or 0) * 0.75, step_time_s=0.133
                )
            )
        ),
        150,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SICK)
def test_each_trouble_is_raised_within_its_delay(kind: str) -> None:
    training, within_s = SICK[kind]
    watcher = watched(training)
    watcher.watch(within_s + 30)
    assert kind in watcher.raised, watcher.found
    assert watcher.raised[kind] - SICK_AT_S <= within_s
    text = watcher.found[kind][1]
    assert all((text.what, text.why, text.todo))
    assert "\n" not in text.what + text.why + text.todo
    others = set(watcher.raised) - {kind}
    assert others <= {"loss-divergence", "regression"}, others


def test_a_straggler_of_two_is_the_one_that_waits_less() -> None:
    training = Training(change=later(slow_rank))
    watcher = watched(training)
    watcher.watch(60)
    assert watcher.found["straggler"][1].subject == "rank 1"
    assert "its earlier time" in training.store.alerts["straggler/rank 1"].alert.finding.why


def test_a_checkpoint_that_is_old_reports_what_would_be_lost() -> None:
    training = Training(saves=1e9, gpus=True)
    training.start()
    for _ in training.go(1_760):
        pass
    watcher = Watcher(training)
    watcher.watch(140)
    what = watcher.found["no-checkpoint"][1].what
    assert "steps, 30 min, 1.0 GPU-hours would be lost if the run were killed now" in what


def test_stale_telemetry_raises_and_clears_nothing() -> None:
    training = Training(change=later(of_rank(1, lambda s, t: None)))
    watcher = watched(training)
    watcher.watch(60)
    assert set(watcher.raised) == {"silent-rank"}
    watcher.idle(300, telemetry=False)
    assert set(watcher.raised) == {"silent-rank"}
    assert watcher.cleared == {}
    training.change = lambda sample, at_s: sample
    watcher.watch(30)
    assert set(watcher.raised) == {"silent-rank"}
    assert set(watcher.cleared) == {"silent-rank"}


def test_trouble_on_many_ranks_is_one_finding() -> None:
    training = Training(ranks=24, gpus=True, change=lambda s, t: replace(s, gpu_xid=31))
    training.start()
    watcher = Watcher(training)
    watcher.watch(5)
    alerts = [view.alert for view in training.store.alerts.values()]
    assert [alert.finding.subject for alert in alerts] == ["ranks"]
    assert alerts[0].finding.what.startswith("24 of 24 ranks: ")


def test_script_with_steps_of_the_first_rank_only_has_no_stale_ranks() -> None:
    only_first: Change = lambda s, t: s if s.rank == 0 else None  # noqa: E731
    watched(Training(ranks=4, change=only_first), healthy_s=400.0)
