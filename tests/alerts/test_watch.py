from __future__ import annotations

import json
import math
import sys
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.alerts.bell import loud, new_or_worse
from cockpit.alerts.monitor import AlertMonitor
from cockpit.alerts.settings import AlertSettings, Hook, parse
from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.error import UsageError
from cockpit.model.event import AlertCleared, AlertHandled, AlertRaised, Event
from cockpit.model.run import RunState, RunSummary
from cockpit.store.run import RunView
from cockpit.store.store import Store
from tests.insight.training_run import Training

HOOKS_S = 60.0
"""Enough for the processes of hooks to start and end; `AlertMonitor.close` waits less."""


def test_a_watch_raises_and_clears_through_the_store(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"
    hook = Hook(command=(sys.executable, "-c", code, str(out)))
    training = Training(change=lambda s, t: replace(s, loss=math.nan) if 30 < t < 60 else s)
    watch = AlertMonitor(training.tell, lambda: training.store, AlertSettings(hooks=(hook,)))
    training.start()
    raised_at = cleared_at = None
    for second in training.go(120):
        watch.check(training.clock)
        if "loss-nan/run run-1" in training.store.alerts:
            raised_at = raised_at or second
        elif raised_at is not None:
            cleared_at = cleared_at or second
    watch._hooks.close(HOOKS_S)
    watch.close()
    assert raised_at == 31.0
    assert cleared_at == 79.0
    assert [view.alert.id for view in training.store.alerts_past] == ["loss-nan/run run-1"]
    states = [json.loads(line)["state"] for line in out.read_text().splitlines()]
    assert states == ["raised", "cleared"]


def test_hook_that_was_told_of_the_worst_is_told_of_the_end(tmp_path: Path) -> None:
    """The alert is less severe before it ends."""
    out = tmp_path / "out"
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"
    hook = Hook(command=(sys.executable, "-c", code, str(out)), severity=Severity.CRITICAL)
    store = Store()
    watch = AlertMonitor(store.apply, lambda: store, AlertSettings(hooks=(hook,)))
    for severity in (Severity.WARNING, Severity.CRITICAL, Severity.WARNING):
        finding = Finding("node-disk", "node 10.0.0.1", severity, "full")
        raised = AlertRaised(at_s=1.0, source="insight", alert=Alert("disk", finding, 1.0))
        watch._call_hooks(store, raised)
    watch._call_hooks(store, AlertCleared(at_s=2.0, source="insight", alert_id="disk"))
    watch._hooks.close(HOOKS_S)
    watch.close()
    states = [json.loads(line)["state"] for line in out.read_text().splitlines()]
    assert states == ["raised", "cleared"]


def test_a_second_check_within_a_second_does_nothing() -> None:
    training = Training(change=lambda s, t: replace(s, loss=math.nan))
    events: list[Event] = []
    watch = AlertMonitor(events.append, lambda: training.store)
    training.start()
    for _ in training.go(3):
        watch.check(training.clock)
        watch.check(training.clock + 0.1)
    assert [type(event) for event in events] == [AlertRaised]


def test_the_alerts_of_a_run_are_cleared_when_it_is_over() -> None:
    training = Training(change=lambda s, t: replace(s, loss=math.nan))
    watch = AlertMonitor(training.tell, lambda: training.store)
    training.start()
    for _ in training.go(10):
        watch.check(training.clock)
    assert training.store.alerts
    training.state(RunState.ERRORED)
    training.now_s += 1
    watch.check(training.clock)
    assert not training.store.alerts


def test_recorded_runs_are_read_aside_and_compared_with() -> None:
    training = Training(saves=1e9)
    old = [
        RunSummary(f"old-{n}", "r", "r", RunState.FINISHED, 2, samples_per_s=900.0 + n)
        for n in range(3)
    ]
    asked, go_on = threading.Event(), threading.Event()

    def recorded() -> list[RunSummary]:
        asked.set()
        assert go_on.wait(10)
        return old

    watch = AlertMonitor(training.tell, lambda: training.store, past=recorded)
    training.start()
    for second in training.go(400):
        watch.check(training.clock)
        if second == 100:
            assert asked.wait(10)
            go_on.set()
            reader = next((t for t in threading.enumerate() if t.name == "cockpit-past"), None)
            if reader is not None:
                reader.join(10)
    assert set(training.store.alerts) == {"slower-than-recorded/run run-1"}


def test_runs_that_change_faster_than_recordings_are_read_have_one_reader() -> None:
    go_on, reads = threading.Event(), list[threading.Thread]()

    def recorded() -> list[RunSummary]:
        reads.append(threading.current_thread())
        assert go_on.wait(10)
        return []

    watch = AlertMonitor(lambda event: None, Store, past=recorded)
    before = set(threading.enumerate())
    for number in range(20):
        watch.past_of(RunView(f"run-{number}"))
    assert len(set(threading.enumerate()) - before) == 1
    go_on.set()
    assert watch._reader is not None
    watch._reader.join(10)
    watch.past_of(RunView("run-20"))
    watch._reader.join(10)
    assert len(reads) == 2


def test_recorded_runs_that_cannot_be_read_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> list[RunSummary]:
        raise OSError("no such disk")

    training = Training(saves=1e9)
    watch = AlertMonitor(training.tell, lambda: training.store, past=broken)
    training.start()
    for _ in training.go(5):
        watch.check(training.clock)
    for thread in threading.enumerate():
        if thread.name == "cockpit-past":
            thread.join(10)
    assert "recorded runs could not be read" in caplog.text


def test_a_new_watch_takes_over_what_was_raised_before() -> None:
    training = Training(change=lambda s, t: replace(s, loss=math.nan) if t < 40 else s)
    training.start()
    first = AlertMonitor(training.tell, lambda: training.store)
    for _ in training.go(20):
        first.check(training.clock)
    events: list[Event] = []
    second = AlertMonitor(events.append, lambda: training.store)
    for _ in training.go(60):
        second.check(training.clock)
        for event in events:
            training.tell(event)
    assert {type(event) for event in events} == {AlertCleared}


def raise_(store: Store, severity: Severity, at_s: float = 1.0) -> None:
    finding = Finding("straggler", "rank 3", severity, "slow")
    alert = Alert("straggler/rank 3", finding, at_s)
    store.apply(AlertRaised(at_s=at_s, source="insight", alert=alert))


def test_bell_rings_for_new_or_worse_alerts_and_not_for_acknowledged_ones() -> None:
    store = Store()
    nothing = loud(store.alerts, 0.0)
    raise_(store, Severity.INFO)
    assert loud(store.alerts, 2.0) == {}
    raise_(store, Severity.WARNING)
    warning = loud(store.alerts, 3.0)
    assert new_or_worse(nothing, warning)
    assert not new_or_worse(warning, warning)
    raise_(store, Severity.CRITICAL)
    assert new_or_worse(warning, loud(store.alerts, 4.0))
    assert not new_or_worse(loud(store.alerts, 4.0), warning)
    store.apply(AlertHandled(at_s=5.0, source="user", alert_id="straggler/rank 3"))
    assert loud(store.alerts, 6.0) == {}


def test_acknowledged_alert_rings_again_when_it_gets_worse() -> None:
    store = Store()
    raise_(store, Severity.WARNING)
    store.apply(AlertHandled(at_s=5.0, source="user", alert_id="straggler/rank 3"))
    seen = loud(store.alerts, 6.0)
    raise_(store, Severity.CRITICAL, at_s=9.0)
    assert new_or_worse(seen, loud(store.alerts, 9.0))


def test_a_snooze_is_quiet_until_it_ends() -> None:
    store = Store()
    raise_(store, Severity.WARNING)
    handled = AlertHandled(
        at_s=5.0, source="user", alert_id="straggler/rank 3", snoozed_until_s=900.0
    )
    store.apply(handled)
    assert loud(store.alerts, 899.0) == {}
    assert new_or_worse({}, loud(store.alerts, 900.0))


def test_settings_are_read_from_the_configuration() -> None:
    settings = parse(
        {"straggler_percent": 30, "frozen_records": 10},
        [
            {"command": ["notify-send", "x"], "severity": "critical"},
            {"url": "https://host/T0/secret", "headers": {"A": "b"}, "cleared": False},
        ],
    )
    assert settings.limits.straggler_percent == 30.0
    assert settings.limits.frozen_records == 10
    assert [hook.label for hook in settings.hooks] == ["command notify-send", "webhook host"]
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("alerts", "hooks", "says"),
    [
        ({"stragler": 3}, [], "alerts.stragler is no setting"),
        ({"hung_s": "60"}, [], "alerts.hung_s is not understood"),
        ({"hung_s": -1}, [], "alerts.hung_s"),
        ({"hung_s": True}, [], "alerts.hung_s"),
        ({"hung_s": float("nan")}, [], "alerts.hung_s"),
        ({"frozen_records": 1.5}, [], "whole number"),
        ({}, [{}], "either a command or a url"),
        ({}, [{"command": ["a"], "url": "http://a"}], "either a command or a url"),
        ({}, [{"command": "a b"}], "list of strings"),
        ({}, [{"command": ["a"], "shell": True}], "one string"),
        ({}, [{"url": "ftp://host/secret"}], "http://"),
        ({}, [{"url": "http://a", "headers": {"A": "secret\nB: c"}}], "one line"),
        ({}, [{"command": ["a"], "severity": "loud"}], "severity"),
        ({}, [{"command": ["a"], "timeout_s": 0}], "timeout_s"),
        ({}, [{"command": ["a"], "when": "now"}], "hooks[1].when"),
        ({}, ["a"], "[[hooks]]"),
    ],
)
def test_settings_that_are_wrong_are_reported_without_secrets(
    alerts: dict[str, object], hooks: list[object], says: str
) -> None:
    with pytest.raises(UsageError) as error:
        parse(alerts, hooks)
    assert says in str(error.value)
    assert "secret" not in str(error.value)
