"""The reports of a driver on a run whose ranks are not its child processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from training.telemetry.ray_train.end_reason import DIED
from training.telemetry.wire import AttemptEnd, Body, Run, Worker
from training.telemetry.worker.relay import AttemptStarted, Ended, RankEvent

ray = pytest.importorskip("ray")

from training.telemetry.ray_train import own_driver  # noqa: E402


class ListOutbox:
    aggregator = None

    def __init__(self) -> None:
        self.message: list[Body] = []

    def send(self, t: float, body: Body) -> None:
        self.message.append(body)


def test_a_rank_that_falls_later_than_the_first_does_not_end_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outbox = ListOutbox()
    monkeypatch.setattr(own_driver, "ActorOutbox", lambda job: outbox)
    monkeypatch.setattr(own_driver, "submission", lambda: "")
    context = SimpleNamespace(get_job_id=lambda: "01000000")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    reported = own_driver.DriverTelemetry("digits", LocalFileSystem(), str(tmp_path), 3)
    workers = (Worker(rank=0), Worker(rank=1))
    on_events: list[RankEvent] = [
        AttemptStarted(workers, 1),
        Ended(0, "ValueError: no"),
        Ended(1, DIED),
        AttemptStarted(workers, 2),
    ]
    for t, message in enumerate(on_events):
        reported.on_events([(float(t), message)])
    ends = [body for body in outbox.message if isinstance(body, AttemptEnd)]
    assert [(end.attempt, end.reason) for end in ends] == [(1, "rank 0: ValueError: no")]
    states = [body.state for body in outbox.message if isinstance(body, Run)]
    assert states == ["INITIALIZING", "RUNNING", "RESTARTING", "RUNNING"]
