"""The lifecycle of a run on the stream: states and phases, attempts and why they ended, reports.

Does not need Ray, so that the order of records can be tested without a cluster; `callback.py`
connects the two.
"""

from __future__ import annotations

import math
import numbers
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from training.telemetry.settings import REPORT_RANKS, REPORT_RANKS_FEW
from training.telemetry.wire import (
    AttemptEnd,
    AttemptStart,
    Body,
    Heal,
    Notice,
    Phase,
    Quorum,
    RankMetrics,
    RanksReplaced,
    Report,
    Run,
    Worker,
)

PHASE_OF_STATE = {
    "SCHEDULING": "scheduling",
    "RESCHEDULING": "scheduling",
    "PREEMPTING": "preempting",
    "RESTARTING": "restarting",
    "RESIZING": "resizing",
    "SHUTTING_DOWN": "shutting down",
}
"""The phase for a state of Ray Train's controller; RUNNING has none, since the ranks are then still
starting, reading a checkpoint or executing their first step.
"""


class Outbox(Protocol):
    def send(self, t: float, body: Body) -> None: ...


class Lifecycle:
    """Attempts are counted from 1: each worker group that started is one.

    A run that another driver started continues the count after `attempts`. May be called from
    several threads: the size of a checkpoint is read on a separate one.
    """

    def __init__(
        self,
        run: str,
        name: str,
        job: str,
        submission: str,
        outbox: Outbox,
        wall: Callable[[], float] = time.time,
        attempts: int = 0,
        trial: str = "",
        max_failures: int | None = None,
        max_preemption_failures: int | None = None,
    ) -> None:
        self.run, self.job = run, job
        self._name, self._submission = name, submission
        self._outbox, self._wall = outbox, wall
        self._trial = trial
        self._max_failures = max_failures
        self._max_preemption_failures = max_preemption_failures
        self._attempt = attempts
        self._is_up = False
        self._world_size: int | None = None
        self._last_state = ("", "")
        self._phase: tuple[int, str] = (0, "")
        self._lock = threading.RLock()

    @property
    def attempt(self) -> int:
        """The newest attempt; 0 before the first."""
        return self._attempt

    @property
    def is_up(self) -> bool:
        """Whether an attempt has started and not ended."""
        return self._is_up

    @property
    def world_size(self) -> int:
        """Of the newest attempt; 0 before the first."""
        return self._world_size or 0

    def state(self, state: str, message: str = "") -> None:
        """The controller is in `state`, which it reports at each poll: recorded once."""
        with self._lock:
            if (state, message) == self._last_state:
                return
            self._last_state = (state, message)
            self._emit(
                Run(
                    run=self.run,
                    name=self._name,
                    state=state,
                    job=self.job,
                    submission=self._submission,
                    world_size=self._world_size,
                    message=message,
                    trial=self._trial,
                    max_failures=self._max_failures,
                    max_preemption_failures=self._max_preemption_failures,
                )
            )
            if state in PHASE_OF_STATE:
                self.phase(PHASE_OF_STATE[state])

    def phase(self, phase: str) -> None:
        """The current attempt, or the next one; shutting down belongs to the last one."""
        with self._lock:
            goes_down = phase == "shutting down" and self._attempt > 0
            attempt = self._attempt if self._is_up or goes_down else self._attempt + 1
            if (attempt, phase) == self._phase:
                return
            self._phase = (attempt, phase)
            self._emit(Phase(run=self.run, attempt=attempt, phase=phase))

    def attempt_starts(self, workers: Sequence[Worker], number: int = 0) -> int:
        """Returns the attempt's number, which is the next one unless another is given."""
        with self._lock:
            self._attempt = number or self._attempt + 1
            self._is_up = True
            self._world_size = len(workers)
            self._emit(AttemptStart(run=self.run, attempt=self._attempt, workers=tuple(workers)))
            return self._attempt

    def replaced(self, workers: Sequence[Worker]) -> None:
        """Ranks of the attempt have new processes, and the others continue."""
        with self._lock:
            self._emit(RanksReplaced(run=self.run, attempt=self._attempt, workers=tuple(workers)))

    def notice(self, rank: int, reason: str, message: str) -> None:
        with self._lock:
            self._emit(
                Notice(
                    run=self.run, attempt=self._attempt, rank=rank, reason=reason, message=message
                )
            )

    def quorum(
        self,
        number: int,
        replicas: int,
        members: tuple[int, ...],
        step: int,
        heals: tuple[Heal, ...],
    ) -> None:
        with self._lock:
            self._emit(
                Quorum(
                    run=self.run,
                    attempt=self._attempt,
                    number=number,
                    replicas=replicas,
                    members=members,
                    step=step,
                    heals=heals,
                )
            )

    def attempt_ends(self, reason: str, budget: str = "") -> None:
        with self._lock:
            if self._is_up:
                self._is_up = False
                self._emit(
                    AttemptEnd(run=self.run, attempt=self._attempt, reason=reason, budget=budget)
                )

    def cut_off(self, attempt: int) -> None:
        """The attempt of an earlier driver, which could not report its end."""
        self._emit(AttemptEnd(run=self.run, attempt=attempt, reason="its driver went away"))

    def reported(self, metrics: Sequence[Mapping[str, Any]]) -> Report:
        """The record of a report of the current attempt, not sent yet."""
        whole = len(metrics) == self._world_size
        return Report(
            run=self.run,
            attempt=self._attempt,
            metrics=mean_over_ranks(metrics),
            # While ranks are being preempted, Ray reports the metrics of the others without their
            # ranks.
            by_rank=by_rank(metrics) if whole else (),
        )

    def send(self, t: float, body: Body) -> None:
        with self._lock:
            self._outbox.send(t, body)

    def now(self) -> float:
        """Unix seconds."""
        return self._wall()

    def _emit(self, body: Body) -> None:
        self._outbox.send(self._wall(), body)


def mean_over_ranks(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of each number, over the ranks that reported it; other values are omitted.

    NaN and the infinities are numbers.
    """
    found: dict[str, list[float]] = {}
    for of_rank in metrics:
        for name, value in _numbers(of_rank).items():
            found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def by_rank(metrics: Sequence[Mapping[str, Any]]) -> tuple[RankMetrics, ...]:
    """The metrics of each rank, by rank from 0: of all ranks up to REPORT_RANKS.

    Of a larger world REPORT_RANKS_FEW: first those with a value that is not finite, then those with
    the minimum and the maximum of each number, then the lowest ranks.
    """
    numbers_of = [_numbers(of_rank) for of_rank in metrics]
    chosen = set(range(len(numbers_of)))
    if len(numbers_of) > REPORT_RANKS:
        chosen = set()
        for rank in _telling(numbers_of):
            chosen.add(rank)
            if len(chosen) == REPORT_RANKS_FEW:
                break
    return tuple(RankMetrics(rank=rank, metrics=numbers_of[rank]) for rank in sorted(chosen))


def _telling(numbers_of: Sequence[Mapping[str, float]]) -> list[int]:
    """Ranks, the most informative first; some more than once."""
    order = [
        rank for rank, found in enumerate(numbers_of) if not all(map(math.isfinite, found.values()))
    ]
    for name in sorted({name for found in numbers_of for name in found}):
        values = [
            (found[name], rank)
            for rank, found in enumerate(numbers_of)
            if name in found and math.isfinite(found[name])
        ]
        if values:
            order += [min(values)[1], max(values)[1]]
    return [*order, *range(len(numbers_of))]


def _numbers(of_rank: Mapping[str, Any]) -> dict[str, float]:
    return {
        str(name): float(value)
        for name, value in of_rank.items()
        if isinstance(value, numbers.Real) and not isinstance(value, bool)
    }
