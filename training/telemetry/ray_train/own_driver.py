"""A run that its own driver starts, without Ray Train: its states, attempts and reports."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from training.telemetry.failsafe import guarded
from training.telemetry.head.outbox import ActorOutbox
from training.telemetry.names import CALLBACK
from training.telemetry.ray_train import failure_budget, lineage
from training.telemetry.ray_train.end_reason import of_ranks
from training.telemetry.ray_train.lifecycle import Lifecycle
from training.telemetry.ray_train.lineage import Lineage
from training.telemetry.ray_train.submission import submission
from training.telemetry.settings import FINAL_FLUSH_TIMEOUT_S
from training.telemetry.wire import Report
from training.telemetry.worker.relay import AttemptStarted, Ended, RankEvent


def is_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether Ray Train's runs have the telemetry callback: then these have it too."""
    return CALLBACK in environment.get("RAY_TRAIN_CALLBACKS", "").split(",")


@dataclass(frozen=True, slots=True)
class Folder:
    """The storage of a run, as `lineage` uses it."""

    experiment_fs_path: str
    storage_filesystem: Any


class DriverTelemetry:
    def __init__(self, name: str, filesystem: Any, path: str, max_restarts: int) -> None:
        self._folder = Folder(path, filesystem)
        before = guarded(lineage.read)(self._folder)
        self.run = before.run if before else uuid.uuid4().hex
        self.attempts = before.attempts if before else 0
        """The attempts of earlier drivers."""
        self.job = ray.get_runtime_context().get_job_id()
        self._outbox = ActorOutbox(self.job)
        self._lifecycle = Lifecycle(
            run=self.run,
            name=name,
            job=self.job,
            submission=submission(),
            outbox=self._outbox,
            attempts=self.attempts,
            max_failures=max_restarts,
        )
        self._ended: dict[int, str] = {}
        """By rank of the current attempt: why it ended."""
        self._processes: frozenset[tuple[int, int]] = frozenset()
        """Rank and process id, of the newest attempt."""
        self._why = ""
        """Why the last attempt ended."""
        self._lifecycle.state("INITIALIZING")
        if before and before.is_up:
            self._lifecycle.cut_off(before.attempts)

    @property
    def aggregator(self) -> Any:
        return self._outbox.aggregator

    @guarded
    def places(self, lack: str = "") -> None:
        self._lifecycle.state("SCHEDULING", lack)
        self._lifecycle.phase("placement group")

    @guarded
    def starts(self) -> None:
        """The agents have their nodes."""
        self._lifecycle.phase("actor start")

    @guarded
    def on_events(self, events: Sequence[tuple[float, RankEvent]]) -> None:
        """Apply the events of all agents since the last call."""
        for t, one in sorted(events, key=lambda item: item[0]):
            match one:
                case Report():
                    self._lifecycle.send(t, one)
                case Ended():
                    # The clocks of the agents differ, and the events of one may be late.
                    if not self._lifecycle.is_up or (one.rank, one.pid) in self._processes:
                        self._ended[one.rank] = one.why
                case AttemptStarted():
                    self._attempt_ends("")
                    self._processes = frozenset((item.rank, item.pid) for item in one.workers)
                    self._lifecycle.attempt_starts(one.workers, one.attempt)
                    self._lifecycle.state("RUNNING")
                    self._remember()
        if any(self._ended.values()):
            self._attempt_ends("")
            self._lifecycle.state("RESTARTING", self._why)

    @guarded
    def lost(self, why: str) -> None:
        """A node was lost: the agents start again."""
        self._attempt_ends(why)
        self._lifecycle.state("RESTARTING", why)

    @guarded
    def ends(self, result: Mapping[str, Any]) -> None:
        failed = str(result.get("failed", ""))
        self._attempt_ends(failed)
        self._lifecycle.state("SHUTTING_DOWN")
        message = failed or str(result.get("stopped", ""))
        self._lifecycle.state("ERRORED" if failed else "FINISHED", message)
        self._outbox.drain(FINAL_FLUSH_TIMEOUT_S)

    def _attempt_ends(self, why: str) -> None:
        ended, self._ended = self._ended, {}
        if not self._lifecycle.is_up:
            return  # of the last one: ranks that died because of the first failure
        self._why = of_ranks(ended) or why
        charged = failure_budget.FAILURES if self._why else failure_budget.NOTHING
        self._lifecycle.attempt_ends(self._why or "finished", charged)
        self._remember()

    @guarded
    def _remember(self) -> None:
        latest = Lineage(self.run, self._lifecycle.attempt, self._lifecycle.is_up)
        lineage.write(self._folder, latest)
