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

    def drain(self, timeout_s: float) -> None:
        return


@pytest.fixture
def outbox(monkeypatch: pytest.MonkeyPatch) -> ListOutbox:
    outbox = ListOutbox()
    monkeypatch.setattr(own_driver, "ActorOutbox", lambda job: outbox)
    monkeypatch.setattr(own_driver, "submission", lambda: "")
    context = SimpleNamespace(get_job_id=lambda: "01000000")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    return outbox


def test_a_rank_that_falls_later_than_the_first_does_not_end_the_next_attempt(
    outbox: ListOutbox, tmp_path: Path
) -> None:
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


def test_an_end_that_arrives_after_the_next_attempt_has_started_does_not_end_it(
    outbox: ListOutbox, tmp_path: Path
) -> None:
    reported = own_driver.DriverTelemetry("digits", LocalFileSystem(), str(tmp_path), 3)
    first = (Worker(rank=0, pid=10), Worker(rank=1, pid=11))
    second = (Worker(rank=0, pid=20), Worker(rank=1, pid=21))
    events: list[RankEvent] = [
        AttemptStarted(first, 1),
        Ended(0, "ValueError: no", 10),
        AttemptStarted(second, 2),
        Ended(1, DIED, 11),
    ]
    reported.on_events(list(enumerate(events)))
    ends = [body for body in outbox.message if isinstance(body, AttemptEnd)]
    assert [(end.attempt, end.reason) for end in ends] == [(1, "rank 0: ValueError: no")]
    reported.on_events([(5.0, Ended(1, DIED, 21))])
    ends = [body for body in outbox.message if isinstance(body, AttemptEnd)]
    assert [end.attempt for end in ends] == [1, 2]


class NoFilesystem:
    """A storage whose credentials have expired."""

    def __getattr__(self, name: str) -> None:
        raise OSError("AWS Error ACCESS_DENIED")


def test_a_storage_that_fails_neither_stops_the_driver_nor_hides_how_the_run_ended(
    outbox: ListOutbox,
) -> None:
    reported = own_driver.DriverTelemetry("digits", NoFilesystem(), "runs/digits", 3)
    reported.on_events(
        [(1.0, AttemptStarted((Worker(rank=0),), 1)), (2.0, Ended(0, "OSError: no"))]
    )
    reported.ends({"failed": "rank 0 failed"})
    states = [body.state for body in outbox.message if isinstance(body, Run)]
    assert states == ["INITIALIZING", "RUNNING", "RESTARTING", "SHUTTING_DOWN", "ERRORED"]
