"""No diagnosis fails on bad data: impossible numbers, clocks that jump, ranks that disappear."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.insight.metrics.diagnosis import diagnosis
from cockpit.insight.metrics.summary import summary
from cockpit.model.cluster import Gpu, Node
from cockpit.model.event import (
    AttemptEnded,
    JobsListed,
    MetricsReported,
    NodesListed,
    PhaseEntered,
    RankSampled,
)
from cockpit.model.run import Checkpoint, Job, JobStatus, Phase, RankSample, RunState, Spread
from tests.insight.training_run import RUN, Training, Watcher
from training.telemetry.metric_table import CURVES

VALUES = (None, 0.0, -1.0, math.nan, math.inf, -math.inf, 1e300, 1e-308, 5.0, 0.1)


def garbage(noise: random.Random, sample: RankSample) -> RankSample:
    made: dict[str, Any] = {n: noise.choice(VALUES) for n in CURVES if noise.random() < 0.5}
    made |= {"memory_bytes": noise.choice((None, 0, -5, 1 << 70))}
    made |= {"gpu_memory_bytes": noise.choice((None, 0, 1 << 40))}
    made |= {"gpu_memory_total_bytes": noise.choice((None, 0, 1, 1 << 37))}
    return replace(
        sample,
        at_s=sample.at_s + noise.choice((0, 0, 0, -3_600, 86_400, 1e9)),
        step=sample.step + noise.choice((0, 0, -500, 10**12)),
        epoch=noise.choice(VALUES),
        gpu_xid=noise.choice((None, 0, 79)),
        gpu_throttle=noise.choice((None, "", ",,", "sw power cap, hw slowdown")),
        **made,
    )


@pytest.mark.parametrize("seed", range(12))
def test_garbage_breaks_no_diagnosis(seed: int) -> None:
    noise = random.Random(seed)

    def change(sample: RankSample, at_s: float) -> RankSample | None:
        kind = noise.random()
        if kind < 0.1:
            return None
        return garbage(noise, sample) if kind < 0.1 * (1 + seed % 9) else sample

    training = Training(ranks=noise.choice((1, 2, 9)), gpus=True, seed=seed, change=change)
    training.start()
    watcher = Watcher(training)
    for _ in range(6):
        watcher.watch(40)
        unusual(noise, training)
        reported = diagnosis(training.store, training.run, training.clock)
        summary(training.store, training.run)
        if reported.goodput is not None:
            total = sum(reported.goodput.seconds.values())
            assert total == pytest.approx(reported.goodput.wall_s)
            assert min(reported.goodput.lost_s.values(), default=0.0) >= 0
        if reported.shares is not None:
            assert sum(share for _, share in reported.shares.parts) == pytest.approx(100, abs=0.01)
        for view in training.store.alerts.values():
            assert "\n" not in view.alert.finding.what


def unusual(noise: random.Random, training: Training) -> None:
    """Occasional reports of a cluster."""
    at_s = training.clock + noise.choice((0, -100, 1e6))
    common: dict[str, Any] = {"at_s": at_s, "source": "telemetry"}
    value = noise.choice((math.nan, math.inf, 0.0, 3.0, -2.0))
    spread = Spread("comm_s", 0, value, value, value, value, value, value, -1, 99)
    events = (
        RankSampled(
            **common, run_id=RUN, samples=(), spreads=(spread, replace(spread, name="step_time_s")),
            attempt=1, silent=(5, 7),
        ),
        PhaseEntered(**common, run_id=RUN, attempt=noise.randint(0, 9), phase=Phase.RESTORE),
        MetricsReported(
            **common, run_id=RUN, attempt=1, metrics={"epoch": value, "max_epochs": value},
            checkpoint=Checkpoint(noise.choice((None, -1, 10**9)), ""),
        ),
        NodesListed(
            at_s=at_s, source="ray",
            nodes=(
                Node("n", "10.0.0.0", "h", False, True, None, 5, 0, (Gpu(0, "g"),)),
                Node("m", "", "h", False, True, None, 5, 5, (), {"GPU": 1e9}),
            ),
        ),
        JobsListed(
            at_s=at_s, source="ray",
            jobs=(Job("j", "x --epochs 1e999 --max-steps=0 epochs=1..2", JobStatus.RUNNING),),
        ),
        AttemptEnded(**common, run_id=RUN, attempt=noise.randint(1, 3), reason="\n\x1b[31m"),
    )  # fmt: skip
    training.run.submission_id = "j"
    training.tell(noise.choice(events))
    if noise.random() < 0.3:
        training.state(noise.choice(list(RunState)))
    if noise.random() < 0.3:
        training.ranks = noise.choice((1, 3))
        training.start()
