"""`cockpit record` over many runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.cli.recordings import report
from cockpit.cli.recordings.record import Watch
from cockpit.model.error import CockpitError
from cockpit.model.event import RunSeen, SourceHealth
from cockpit.model.run import RunState
from cockpit.recorder.file import Lock
from cockpit.recorder.reading.library import Library
from cockpit.recorder.writing import run_recorders
from cockpit.recorder.writing.run_recorders import RunRecorders
from cockpit.session.monitored import MonitoredSession
from cockpit.session.session import Source
from tests.recorder.test_recorder import StoppedThread
from tests.simulated_backend import ScriptedBackend


def test_a_run_that_is_recorded_to_its_end_leaves_no_recorder_and_no_followed_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    thread, followed = StoppedThread(), set[str]()
    monkeypatch.setattr(run_recorders, "RecorderThread", lambda: thread)
    monkeypatch.setattr(run_recorders, "LINGER_S", 0.0)
    session = MonitoredSession(ScriptedBackend(), recording=RunRecorders(Library(tmp_path)))

    def add(source: Source) -> None:
        followed.add(source.name)

    monkeypatch.setattr(session, "add", add)
    monkeypatch.setattr(session, "remove", followed.discard)

    def added_to_mlflow(path: str) -> str:
        assert Path(path).exists()
        if path.endswith("run-1.cockpit"):
            raise CockpitError("MLflow is away.", "It has no run for-1.")
        return f"Added report.html of {Path(path).stem}"

    monkeypatch.setattr(report, "added_to_mlflow", added_to_mlflow)
    watch = Watch(session, "", to_mlflow=True)
    health = SourceHealth(at_s=1.0, source="telemetry", ok=True)
    session.dispatch(health)
    for number in range(20):
        run = RunSeen(
            at_s=2.0,
            source="telemetry",
            run_id=f"run-{number}",
            name=f"run-{number}",
            state=RunState.RUNNING,
            submission_id=f"job-{number}",
        )
        session.dispatch(run)
        session.drain()
        watch._poll()
        assert followed == {f"job:job-{number}"}
        session.dispatch(replace(run, at_s=3.0, state=RunState.FINISHED))
        session.dispatch(health)
        session.drain()
        thread.turn()
        watch._poll()
        assert not watch._begun
        assert not followed
    log = capsys.readouterr().err
    assert log.count("Done: ") == 20
    assert log.count("Added report.html of run-") == 19
    assert "The report was not added to MLflow: MLflow is away." in log
    session.close()


def test_a_recording_that_failed_is_not_reported_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    thread, library = StoppedThread(), Library(tmp_path)
    monkeypatch.setattr(run_recorders, "RecorderThread", lambda: thread)
    monkeypatch.setattr(run_recorders, "LINGER_S", 0.0)
    session = MonitoredSession(ScriptedBackend(), recording=RunRecorders(library))
    library.directory.mkdir()
    lock = Lock(library.path_of("run-1"))
    lock.take()
    watch = Watch(session, "")
    health = SourceHealth(at_s=1.0, source="telemetry", ok=True)
    run = RunSeen(at_s=2.0, source="telemetry", run_id="run-1", name="n", state=RunState.RUNNING)
    for event in (health, run, replace(run, at_s=3.0, state=RunState.FINISHED), health):
        session.dispatch(event)
        session.drain()
        thread.turn()
        watch._poll()
    assert not watch._begun
    assert watch.has_failed
    log = capsys.readouterr().err
    assert "Not recorded to its end: another cockpit is recording it already" in log
    assert "Done: " not in log
    lock.release()
    session.close()
