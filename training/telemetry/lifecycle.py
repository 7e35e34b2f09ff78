"""A run's story for the stream: its states, its attempts and why they ended, its reports.

Free of Ray, so that the order of things can be tested without a cluster; `callback.py` is the glue.
"""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from training.telemetry.wire import AttemptEnd, AttemptStart, Body, Report, Run, Worker


class Outbox(Protocol):
    def send(self, t: float, body: Body) -> None: ...


class Lifecycle:
    """Attempts count from 1: each worker group that came up is one."""

    def __init__(
        self,
        run: str,
        name: str,
        job: str,
        submission: str,
        outbox: Outbox,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.run, self.job = run, job
        self._name, self._submission = name, submission
        self._outbox, self._wall = outbox, wall
        self._attempt = 0
        self._is_up = False
        self._world_size: int | None = None
        self._said = ("", "")

    @property
    def attempt(self) -> int:
        """The newest attempt; 0 before the first."""
        return self._attempt

    @property
    def is_up(self) -> bool:
        """An attempt has started and not ended."""
        return self._is_up

    def state(self, state: str, message: str = "") -> None:
        """The controller is in `state`, and says so every time it looks: told once."""
        if (state, message) == self._said:
            return
        self._said = (state, message)
        self._say(
            Run(
                run=self.run,
                name=self._name,
                state=state,
                job=self.job,
                submission=self._submission,
                world_size=self._world_size,
                message=message,
            )
        )

    def attempt_starts(self, workers: Sequence[Worker]) -> int:
        """The attempt's number."""
        self._attempt += 1
        self._is_up = True
        self._world_size = len(workers)
        self._say(AttemptStart(run=self.run, attempt=self._attempt, workers=tuple(workers)))
        return self._attempt

    def attempt_ends(self, reason: str) -> None:
        if self._is_up:
            self._is_up = False
            self._say(AttemptEnd(run=self.run, attempt=self._attempt, reason=reason))

    def report(self, metrics: Sequence[Mapping[str, Any]], checkpoint: str) -> None:
        self._say(
            Report(
                run=self.run,
                attempt=self._attempt,
                metrics=mean_over_ranks(metrics),
                checkpoint=checkpoint,
            )
        )

    def _say(self, body: Body) -> None:
        self._outbox.send(self._wall(), body)


def mean_over_ranks(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of each number, over the ranks that reported it; what is not a number is left out.

    NaN and the infinities are numbers.
    """
    found: dict[str, list[float]] = {}
    for of_rank in metrics:
        for name, value in of_rank.items():
            if isinstance(value, numbers.Real) and not isinstance(value, bool):
                found.setdefault(str(name), []).append(float(value))
    return {name: sum(values) / len(values) for name, values in found.items()}
