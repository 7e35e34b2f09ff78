"""A session that records and looks for alerts while it is drained."""

from __future__ import annotations

import math
from pathlib import Path

from msgspec.structs import replace

from cockpit.model.event import RankSampled, SourceHealth
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.recording import Recording
from cockpit.recorder.writing.run_recorders import RunRecorders
from cockpit.session.monitored import MonitoredSession
from tests.events import RUN, before_the_kill, tick
from tests.simulated_backend import ScriptedBackend


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def healthy(at_s: float, name: str = "telemetry") -> SourceHealth:
    return SourceHealth(at_s=at_s, source=name, ok=True)


def nan(at_s: float, step: int) -> RankSampled:
    event = tick(1, at_s, step, step + 9)
    return replace(event, samples=tuple(replace(s, loss=math.nan) for s in event.samples))


def test_a_loss_that_turns_nan_is_an_alert_and_lies_in_the_recording(tmp_path: Path) -> None:
    clock = Clock()
    library = Library(tmp_path)
    session = MonitoredSession(
        ScriptedBackend(), recording=RunRecorders(library, clock=clock), clock=clock
    )
    with session:
        for event in before_the_kill():
            session.dispatch(event)
        session.drain()
        assert not session.store.alerts
        for second in range(101, 161):
            clock.now_s = float(second)
            session.dispatch(healthy(clock.now_s))
            session.dispatch(nan(clock.now_s, 51 + 10 * (second - 101)))
            session.drain()
        raised = {view.alert.finding.kind for view in session.store.alerts.values()}
        assert "loss-nan" in raised
    [path] = [one.path for one in library.list()]
    with Recording.open(path) as recording:
        store = recording.store()
        assert recording.run.run_id == RUN
        assert recording.run.steps == store.runs[RUN].step == 650
    assert "loss-nan" in {view.alert.finding.kind for view in store.alerts.values()}


def test_without_a_recorder_nothing_is_written(tmp_path: Path) -> None:
    with MonitoredSession(ScriptedBackend(), clock=lambda: 100.0) as session:
        for event in before_the_kill():
            session.dispatch(event)
        session.drain()
        assert session.store.runs[RUN].step == 50
    assert not list(tmp_path.iterdir())


def test_a_recording_keeps_its_summary_fresh_after_the_clock_was_set_back(tmp_path: Path) -> None:
    clock, library = Clock(), Library(tmp_path)
    clock.now_s = 10_000.0
    session = MonitoredSession(
        ScriptedBackend(), recording=RunRecorders(library, clock=clock), clock=clock
    )
    assert session.recording is not None
    asked: list[float] = []
    session.recording.summarise = lambda store: asked.append(clock.now_s)  # type: ignore[method-assign]
    for step_s in (0.0, 11.0, -3_600.0, 5.0, 11.0):
        clock.now_s += step_s
        session.drain()
    assert asked == [10_011.0, 6_411.0, 6_427.0]
