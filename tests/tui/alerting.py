"""The simulated digits run with alerts: active, acknowledged, snoozed and cleared."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.event import AlertCleared, AlertHandled, AlertRaised, Event
from tests.tui.simulated import RUN, START_S, Simulation, digits

STRAGGLER = "straggler/rank 1"
NAN = f"loss-nan/run {RUN}"
HUNG = f"hung-run/run {RUN}"
INPUT = f"input-bound/run {RUN}"


def troubled() -> Simulation:
    """Two ranks, a kill at 80 s; four alerts by 140 s, one of them over by then."""
    return Simulation(chain(iter(digits()._script), _alerts()))


def _alerts() -> Iterator[Event]:
    yield _raised(
        82,
        HUNG,
        Finding(
            "hung-run",
            f"run {RUN}",
            Severity.CRITICAL,
            "No rank has made a step for 125 s, though the run is RUNNING",
            run_id=RUN,
        ),
    )
    yield AlertCleared(at_s=START_S + 99, source="insight", alert_id=HUNG)
    yield _raised(
        120,
        STRAGGLER,
        Finding(
            "straggler",
            "rank 1",
            Severity.WARNING,
            "Rank 1 on 10.0.0.13 takes 81 ms per step, the others 41 ms: 45 % of each step is "
            "lost waiting for it",
            "Score 11.2 (threshold 5, and 20 % of a step); 2.0x its earlier time",
            "Look at its stack and its node: throttling, a noisy neighbor, a slow disk, uneven "
            "input",
            RUN,
        ),
    )
    yield _raised(
        130,
        INPUT,
        Finding(
            "input-bound",
            f"run {RUN}",
            Severity.INFO,
            "31 % of the time is spent waiting for data",
            "The last 120 s, steps of 0.05 s, mean over ranks; threshold 25 %",
            "More data-loader workers, prefetching, or packed files on local storage",
            RUN,
        ),
    )
    yield AlertHandled(at_s=START_S + 135, source="user", alert_id=INPUT)
    yield _raised(
        140,
        NAN,
        Finding(
            "loss-nan",
            f"run {RUN}",
            Severity.CRITICAL,
            "NaN or infinite loss on rank 1 at step 2,380",
            "NaN and infinity spread to the weights: training from this step on is lost",
            "Stop the job, resume from an earlier checkpoint, lower the learning rate, check the "
            "data",
            RUN,
        ),
    )


def _raised(at_s: float, alert_id: str, finding: Finding) -> Event:
    at_s += START_S
    return AlertRaised(at_s=at_s, source="insight", alert=Alert(alert_id, finding, at_s))
