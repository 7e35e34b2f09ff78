"""A session's runs are recorded, each in a separate file, from first sight to their end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.event import (
    AlertRaised,
    ClusterSeen,
    Event,
    JobsListed,
    Notice,
    PodsListed,
    RankSampled,
    RunSeen,
    SourceHealth,
    TrialsListed,
)
from cockpit.model.run import Job, JobStatus, RunState, Trial, TrialStatus
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.recording import Recording
from cockpit.recorder.writing import run_recorders as module
from cockpit.recorder.writing.run_recorders import RunRecorders
from cockpit.session.session import Session
from cockpit.store.store import Store
from tests.recorder.test_recorder import record, script
from tests.simulated_backend import ScriptedBackend
from tests.tui.simulated import RUN, START_S


def play(recorders: RunRecorders, events: list[Event]) -> None:
    for event in events:
        recorders.on_event(event)


PAST_READ = SourceHealth(at_s=START_S, source="telemetry", ok=True)
"""The report of telemetry when it has read its history."""


def recorders_on(tmp_path: Path, *, only: str = "") -> RunRecorders:
    """Of a cluster that had no run yet."""
    made = RunRecorders(Library(tmp_path), only=only, clock=lambda: START_S + 1_000)
    made.on_event(PAST_READ)
    return made


def seen(run_id: str, state: RunState = RunState.RUNNING, at_s: float = 0.0) -> RunSeen:
    return RunSeen(
        at_s=START_S + at_s, source="telemetry", run_id=run_id, name=f"name-{run_id}", state=state
    )


def test_a_recording_begins_with_what_the_cluster_was(tmp_path: Path) -> None:
    recorders, events = recorders_on(tmp_path), script(60, None)
    alert = Alert("a/b", Finding("a", "b", Severity.INFO, "what"), START_S)
    trial = Trial("t1", "sweep", TrialStatus.RUNNING)
    recorders.on_event(AlertRaised(at_s=START_S, source="insight", alert=alert))
    recorders.on_event(
        TrialsListed(at_s=START_S, source="telemetry", experiment="sweep", trials=(trial,))
    )
    play(recorders, events)
    recorders.close()
    with Recording.open(Library(tmp_path).find(RUN)) as found:
        kinds = {type(event) for event in found.events()}
        assert {ClusterSeen, PodsListed, Notice, RunSeen, RankSampled} <= kinds
        store = found.store()
    assert len(store.pods) == 3
    assert store.alerts.keys() == {"a/b"}
    assert store.experiments["sweep"].trials == {"t1": trial}


def test_each_run_has_its_own_file(tmp_path: Path) -> None:
    recorders = recorders_on(tmp_path)
    play(recorders, [seen("a"), seen("b")])
    recorders.close()
    assert sorted(one.summary.run_id for one in Library(tmp_path).list()) == ["a", "b"]


def test_only_the_run_that_is_asked_for(tmp_path: Path) -> None:
    recorders = recorders_on(tmp_path, only="name-b")
    play(recorders, [seen("a"), seen("b")])
    recorders.close()
    assert [one.summary.run_id for one in Library(tmp_path).list()] == ["b"]


def test_a_run_that_was_over_when_it_was_first_seen_is_not_recorded(tmp_path: Path) -> None:
    recorders = recorders_on(tmp_path)
    recorders.on_event(seen("a", RunState.FINISHED))
    recorders.close()
    assert not Library(tmp_path).list()


def test_a_run_is_recorded_until_shortly_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINGER_S", 0.0)
    recorders = recorders_on(tmp_path)
    recorders.on_event(seen("a"))
    assert recorders.recorders().keys() == {"a"}
    recorders.on_event(seen("a", RunState.FINISHED, 10))
    recorders.on_event(seen("b", at_s=11))
    assert recorders.recorders().keys() == {"b"}
    recorders.on_event(seen("a", at_s=5))  # its stream is read again
    assert recorders.recorders().keys() == {"b"}
    recorders.on_event(seen("a", at_s=20))  # its driver was restarted
    assert recorders.recorders().keys() == {"a", "b"}
    recorders.close()


def test_a_run_whose_job_was_stopped_ends_though_it_never_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINGER_S", 0.0)
    recorders, store = recorders_on(tmp_path), Store()
    job = Job("job-1", "python train.py", JobStatus.STOPPED, ended_s=START_S + 9)
    running = replace(seen("a"), submission_id=job.id)
    stopped = JobsListed(at_s=START_S + 10, source="ray", jobs=(job,))
    for event in (running, stopped):
        recorders.on_event(event)
        store.apply(event)
    assert set(recorders.recorders()) == {"a"}
    recorders.summarise(store)
    assert not recorders.recorders()
    recorders.close(store)
    with Recording.open(Library(tmp_path).find("a")) as found:
        assert found.run.state is RunState.ABORTED


def test_a_session_is_recorded_by_listening_to_it(tmp_path: Path) -> None:
    events = script(40, None)
    recorders = recorders_on(tmp_path)
    with Session(ScriptedBackend(events=events), listeners=[recorders.on_event]) as session:
        session.wait(lambda store: store.version >= len(events), 10)
    recorders.close()
    with Recording.open(Library(tmp_path).find(RUN)) as found:
        assert found.store().runs[RUN].samples_seen == session.store.runs[RUN].samples_seen


def test_hearing_costs_little(tmp_path: Path) -> None:
    recorders = recorders_on(tmp_path)
    events = [event for event in script(100, None) if isinstance(event, RankSampled)]
    recorders.on_event(seen(RUN))
    times_s = []
    for _ in range(20):
        began = time.perf_counter()
        play(recorders, [replace(event, at_s=event.at_s) for event in events])
        times_s.append(time.perf_counter() - began)
    recorders.close()
    assert min(times_s) / len(events) < 0.001


def test_a_name_cannot_lead_out_of_the_directory(tmp_path: Path) -> None:
    library = Library(tmp_path)
    for run_id in ("../../x", "/etc/x", "a/b", "..", ""):
        assert library.path_of(run_id).parent == library.directory


def test_a_cluster_whose_clock_is_years_ahead_makes_no_recording_old(tmp_path: Path) -> None:
    path, at_s = Library(tmp_path).path_of("a"), time.time() - 86_400
    record(path, [seen("a")])
    os.utime(path, (at_s, at_s))
    RunRecorders(Library(tmp_path), clock=lambda: time.time() + 1e8)._prune()
    assert path.exists()
