"""With any number of runs in a session: one thread, few descriptors, and none for finished runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cockpit.model.event import (
    Event,
    JobsListed,
    Marked,
    MetricsReported,
    PodsListed,
    RunSeen,
    SourceHealth,
    TrialsListed,
)
from cockpit.model.run import Job, JobStatus, RunState, Trial, TrialStatus
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.recording import Recording
from cockpit.recorder.writing import recorder_thread
from cockpit.recorder.writing.recorder import Recorder
from cockpit.recorder.writing.run_recorders import (
    LINGER_S,
    PAST_TIMEOUT_S,
    Past,
    RunRecorders,
)
from tests.recorder.test_recorder import StoppedThread, record

START_S = 1_763_712_000.0
PAST_READ = SourceHealth(at_s=START_S, source="telemetry", ok=True)


class Session:
    """Recorders whose thread writes on request, with a simulated clock."""

    def __init__(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, *, only: str = "", read: bool = True
    ) -> None:
        self.thread, self.now_s, self.told = StoppedThread(), 0.0, list[str]()
        monkeypatch.setattr(
            "cockpit.recorder.writing.run_recorders.RecorderThread", lambda: self.thread
        )
        self.library = Library(path)
        self.recorders = RunRecorders(
            self.library,
            only=only,
            clock=lambda: START_S + 10_000,
            monotonic=lambda: self.now_s,
            on_message=self.told.append,
        )
        if read:
            self.recorders.on_event(PAST_READ)

    def hear(self, *events: Event) -> None:
        for event in events:
            self.recorders.on_event(event)

    def names(self) -> list[str]:
        return sorted(one.name for one in self.library.list())


@pytest.fixture
def session_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Session]]:
    """Sessions of one state directory, which are closed when the test is over."""
    made: list[Session] = []

    def make(**named: object) -> Session:
        made.append(Session(tmp_path, monkeypatch, **named))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for session in made:
        for recorder in session.recorders.recorders().values():
            recorder.finish()
        session.thread.turn()


def seen(
    run_id: str,
    state: RunState = RunState.RUNNING,
    at_s: float = 0.0,
    *,
    job_id: str = "",
    submission_id: str = "",
) -> RunSeen:
    return RunSeen(
        at_s=START_S + at_s,
        source="telemetry",
        run_id=run_id,
        name=run_id,
        state=state,
        job_id=job_id,
        submission_id=submission_id,
    )


def reported(run_id: str, at_s: float) -> MetricsReported:
    return MetricsReported(
        at_s=START_S + at_s, source="telemetry", run_id=run_id, attempt=1, metrics={"loss": at_s}
    )


def whole_run(run_id: str, at_s: float) -> list[Event]:
    return [
        seen(run_id, at_s=at_s),
        *(reported(run_id, at_s + step) for step in range(1, 4)),
        seen(run_id, RunState.FINISHED, at_s + 5),
    ]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def losses(path: Path) -> list[float]:
    with Recording.open(path) as found:
        assert not found.damage
        return [e.metrics["loss"] for e in found.events() if isinstance(e, MetricsReported)]


def test_400_runs_that_were_over_before_cost_no_thread_no_descriptor_and_no_file(
    session_on: Callable[..., Session],
) -> None:
    session, before = session_on(read=False), descriptors()
    threads = set(threading.enumerate())
    for number in range(400):
        session.hear(*whole_run(f"run-{number}", number * 10.0))
    session.hear(seen("goes-on", at_s=5_000), reported("goes-on", 5_001.0), PAST_READ)
    assert session.recorders.recorders().keys() == {"goes-on"}
    session.thread.turn()
    assert descriptors() - before <= 4
    assert not set(threading.enumerate()) - threads
    assert session.names() == ["goes-on"]
    assert losses(session.library.path_of("goes-on")) == [5_001.0]


def test_400_recorders_share_one_thread(tmp_path: Path) -> None:
    before, recorders = set(threading.enumerate()), RunRecorders(Library(tmp_path))
    recorders.on_event(PAST_READ)
    for number in range(400):
        recorders.on_event(seen(f"run-{number}"))
    assert len(recorders.recorders()) == 400
    assert len(set(threading.enumerate()) - before) == 1
    recorders.close()
    assert len(Library(tmp_path).list()) == 400


def test_more_runs_than_open_files_are_all_recorded_whole(
    session_on: Callable[..., Session],
) -> None:
    session, runs, before = session_on(), 50, descriptors()
    session.hear(*(seen(f"run-{number:02d}") for number in range(runs)))
    most = 0
    for second in range(1, 31):
        session.hear(*(reported(f"run-{number:02d}", float(second)) for number in range(runs)))
        session.thread.turn()
        most = max(most, descriptors() - before)
    assert most <= 4 * recorder_thread.OPEN_FILES
    for recorder in session.recorders.recorders().values():
        recorder.finish()
    session.thread.turn()
    assert descriptors() == before
    assert len(session.names()) == runs
    for name in session.names():
        assert losses(session.library.path_of(name)) == [float(second) for second in range(1, 31)]
        with Recording.open(session.library.path_of(name)) as found:
            assert found.closed
            assert found.run.state is RunState.RUNNING


def test_no_run_waits_longer_for_a_file_than_a_round_of_all(
    session_on: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_thread, "OPEN_FILES", 2)
    monkeypatch.setattr(recorder_thread, "OPENED_IN_A_TURN", 1)
    session = session_on()
    session.hear(*(seen(f"run-{number}") for number in range(6)))
    for _ in range(6):
        session.hear(Marked(at_s=START_S, source="user", text="x"))
        session.thread.turn()
    assert len(session.names()) == 6


def test_a_recording_that_another_cockpit_continued_is_read_again_when_it_is_reopened(
    tmp_path: Path,
) -> None:
    path, thread = tmp_path / "a.cockpit", StoppedThread()
    mine = Recorder(path, thread=thread, clock=lambda: START_S + 10_000)
    for event in (seen("a"), reported("a", 1.0)):
        mine.take(event)
    thread.turn()
    mine.suspend()
    record(path, [seen("a"), reported("a", 1.0), reported("a", 2.0)])
    mine.take(reported("a", 2.0))
    mine.take(reported("a", 3.0))
    mine.finish()
    thread.turn()
    assert not mine.trouble
    assert losses(path) == [1.0, 2.0, 3.0]


def test_a_recording_that_was_deleted_while_it_was_closed_begins_again(tmp_path: Path) -> None:
    path, thread = tmp_path / "a.cockpit", StoppedThread()
    recorder = Recorder(path, thread=thread, clock=lambda: START_S + 10_000)
    recorder.take(reported("a", 1.0))
    thread.turn()
    recorder.suspend()
    path.unlink()
    recorder.take(reported("a", 2.0))
    recorder.finish()
    thread.turn()
    assert losses(path) == [2.0]


def test_a_recording_that_was_cut_short_is_completed_from_the_past(
    session_on: Callable[..., Session],
) -> None:
    session = session_on(read=False)
    path = session.library.path_of("a")
    record(path, [seen("a"), reported("a", 1.0)])
    session.hear(*whole_run("a", 0.0), *whole_run("b", 0.0), PAST_READ)
    assert not session.recorders.recorders()
    session.thread.turn()
    assert session.names() == ["a"]
    assert losses(path) == [1.0, 2.0, 3.0]
    with Recording.open(path) as found:
        assert found.run.state is RunState.FINISHED


def test_a_run_whose_job_is_over_is_over(session_on: Callable[..., Session]) -> None:
    """A driver that was killed never reports the end of its run."""
    session = session_on(read=False)
    job = Job("job-1", "python train.py", JobStatus.FAILED, ended_s=START_S + 9)
    session.hear(
        seen("a", submission_id="job-1"),
        JobsListed(at_s=START_S + 100, source="ray", jobs=(job,)),
        PAST_READ,
    )
    assert not session.recorders.recorders()


def test_a_run_that_a_second_driver_continued_is_not_over(
    session_on: Callable[..., Session],
) -> None:
    session = session_on(read=False)
    session.hear(
        seen("a", RunState.ABORTED, 50, job_id="1"), seen("a", at_s=60, job_id="2"), PAST_READ
    )
    assert session.recorders.recorders().keys() == {"a"}


def test_the_run_that_is_named_is_recorded_though_it_is_over(
    session_on: Callable[..., Session],
) -> None:
    session = session_on(only="b", read=False)
    session.hear(*whole_run("a", 0.0), *whole_run("b", 0.0), PAST_READ)
    session.thread.turn()
    assert session.names() == ["b"]


def test_without_a_report_from_telemetry_the_past_is_over_after_some_seconds(
    session_on: Callable[..., Session],
) -> None:
    session = session_on(read=False)
    session.now_s = 100.0
    pods = PodsListed(at_s=START_S, source="backend", pods=())
    session.hear(pods, seen("a"), reported("a", 1.0))
    assert not session.recorders.recorders()
    session.now_s += PAST_TIMEOUT_S
    session.hear(reported("a", 2.0))
    assert session.recorders.recorders().keys() == {"a"}
    session.thread.turn()
    assert losses(session.library.path_of("a")) == [1.0, 2.0]


def test_buffered_events_of_finished_runs_are_limited(
    session_on: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cockpit.recorder.writing.run_recorders.PAST_WEIGHT", 50)
    session = session_on(read=False)
    for number in range(100):
        session.hear(*whole_run(f"run-{number}", number * 10.0))
    past = session.recorders._past
    assert past is not None
    assert len(past.events) <= 50
    session.hear(seen("a", at_s=5_000), PAST_READ)
    assert session.recorders.recorders().keys() == {"a"}


def test_ended_runs_leave_nothing_open_after_a_while(session_on: Callable[..., Session]) -> None:
    session, before = session_on(), descriptors()
    for number in range(100):
        session.now_s += 10.0
        session.hear(*whole_run(f"run-{number}", number * 10.0))
        session.thread.turn()
        assert len(session.recorders.recorders()) <= LINGER_S / 10.0 + 1
    session.now_s += LINGER_S
    session.hear(PAST_READ)
    session.thread.turn()
    assert descriptors() == before
    assert len(session.names()) == 100


def test_the_recording_of_one_trial_of_a_sweep_does_not_hold_all_trials(
    session_on: Callable[..., Session],
) -> None:
    session = session_on()
    trials = [
        Trial(
            f"t{number:04d}",
            "sweep",
            TrialStatus.TERMINATED if number < 1_990 else TrialStatus.RUNNING,
        )
        for number in range(2_000)
    ]
    for trial in trials:
        session.hear(
            TrialsListed(at_s=START_S, source="telemetry", experiment="sweep", trials=(trial,))
        )
    session.hear(seen("a"))
    session.thread.turn()
    with Recording.open(session.library.path_of("a")) as found:
        listed = found.store().experiments["sweep"].trials
    assert len(listed) == 110
    assert {trial.id for trial in trials[1_990:]} <= listed.keys()


def test_a_fault_in_one_recorder_does_not_end_the_others(
    session_on: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_on()
    session.hear(seen("a"), seen("b"))
    broken = session.recorders.recorders()["a"]
    monkeypatch.setattr(broken._filter, "kept", lambda *args: 1 / 0)
    session.thread.turn()
    assert not broken.going
    assert "a fault in cockpit itself" in broken.trouble
    assert session.recorders.recorders()["b"].going
    assert "b" in session.names()


def test_a_long_past_is_searched_once_for_the_runs_that_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    past, ended, asked = Past(), Past.ended, list[int]()

    def counted(of: Past) -> dict[str, float]:
        asked.append(len(of.events))
        return ended(of)

    monkeypatch.setattr(Past, "ended", counted)
    monkeypatch.setattr("cockpit.recorder.writing.run_recorders.PAST_WEIGHT", 4)
    for event in whole_run("a", 0.0):
        past.take(event, 0.0)
    assert past.events == []
    assert asked == [5]
