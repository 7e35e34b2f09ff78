"""A search over learning rates and depths, as Ray Tune reports it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cockpit.model.event import Event, TrialsListed
from cockpit.model.run import Trial, TrialStatus
from tests.tui.simulated import START_S, Simulation, digits

EXPERIMENT = "lr-search"


def tuned(trials: int = 8, until_s: float = 60.0) -> Simulation:
    """The digits run, and a search with that many trials: one fails, some wait."""
    simulation = digits(kill_s=None)
    simulation._script = sorted(
        [*simulation._script, *_told(trials, int(until_s))], key=lambda event: event.at_s
    )
    return simulation


def _told(trials: int, until_s: int) -> Iterator[Event]:
    for second in range(20, until_s + 1, 4):
        yield TrialsListed(
            at_s=START_S + second,
            source="telemetry",
            experiment=EXPERIMENT,
            trials=tuple(_trial(number, second) for number in range(trials)),
            metric="val_loss",
            mode="min",
        )


def _trial(number: int, second: int) -> Trial:
    rate = 10 ** -(1 + number % 4)
    iteration = (second - 20) // 4
    waits = number % 8 in (6, 7)
    failed = number % 8 == 3 and second > 40
    status = TrialStatus.RUNNING
    if waits:
        status, iteration = TrialStatus.PENDING, 0
    elif failed:
        status, iteration = TrialStatus.ERROR, 5
    elif number % 8 == 5 and second > 44:
        status, iteration = TrialStatus.TERMINATED, 6
    loss = 0.2 + abs(math.log10(rate) + 3) * 0.4 + 2 * math.exp(-iteration / 3) + number * 0.01
    return Trial(
        id=f"train_{number:05d}",
        experiment=EXPERIMENT,
        status=status,
        config={"lr": str(rate), "depth": str(2 + number // 4), "data": "digits"},
        metrics={"val_loss": loss, "accuracy": 1 - loss / 4} if iteration else {},
        iteration=iteration,
        started_s=None if waits else START_S + 20,
        updated_s=None if waits else START_S + min(second, 48 if failed else second),
        node_ip="" if waits else f"10.0.0.{11 + number % 2}",
        pid=0 if waits else 4000 + number,
        error="RuntimeError: CUDA error: \x1b[31mdevice-side assert" if failed else "",
    )
