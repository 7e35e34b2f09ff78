"""`cockpit watch --plain`: one sentence for each change."""

from __future__ import annotations

from cockpit.cli.read.sentences import Sentences
from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.event import AlertCleared, AlertRaised, Notice
from cockpit.store.store import Store
from tests.tui.simulated import START_S, Simulation, digits


def lines_at(sentences: Sentences, simulation: Simulation, at_s: float) -> list[str]:
    simulation.advance(at_s)
    simulation.session.drain()
    return list(sentences.new(simulation.session.store, START_S + at_s))


def test_training_run_is_reported_once_and_then_at_intervals() -> None:
    simulation, sentences = digits(), Sentences(30.0)
    first = lines_at(sentences, simulation, 40.0)
    assert first[0] == "Cluster demo is ready."
    assert first[1].startswith("Run digits. Training: epoch")
    assert lines_at(sentences, simulation, 45.0) == []
    [progress] = lines_at(sentences, simulation, 71.0)
    assert progress.startswith("Run digits. Training: epoch")
    assert progress != first[1]


def test_kill_and_recovery_are_sentences() -> None:
    simulation, sentences = digits(), Sentences(600.0)
    lines_at(sentences, simulation, 79.0)
    lines = lines_at(sentences, simulation, 81.0)
    assert "Cluster demo is degraded: 1 of 2 workers ready." in lines
    assert "Pod demo-workers-2: Killed. exit code -9 (SIGKILL)." in lines
    assert any("Rescheduling" in line for line in
               lines_at(sentences, simulation, 84.0))  # fmt: skip
    after = lines_at(sentences, simulation, 110.0)
    assert "Cluster demo is ready." in after
    assert any(line.startswith("Run digits. Training") for line in after)


def test_stale_source_is_reported_and_its_return() -> None:
    simulation, sentences = digits(kill_s=None), Sentences(600.0)
    lines_at(sentences, simulation, 60.0)
    simulation.mute.add("ray")
    assert any(line.startswith("Source ray has no new data") for line in
               lines_at(sentences, simulation, 100.0))  # fmt: skip
    simulation.mute.clear()
    assert "Source ray has new data." in lines_at(sentences, simulation, 104.0)


def test_alert_has_severity_and_action_as_text() -> None:
    sentences = Sentences(60.0)
    finding = Finding("loss-nan", "run a", Severity.CRITICAL, "The loss is NaN", "", "Stop it")
    raised = AlertRaised(at_s=1.0, source="insight", alert=Alert("x", finding, 1.0))
    assert sentences.alert(raised) == "Alert, critical: The loss is NaN. To do: Stop it."
    cleared = AlertCleared(at_s=2.0, source="insight", alert_id="loss-nan/run a")
    assert sentences.alert(cleared) == "Alert cleared: loss-nan/run a."


def test_each_warning_is_reported_though_it_is_late_or_of_the_same_second() -> None:
    store, sentences = Store(), Sentences(60.0)
    lines = list[str]()
    for name, at_s in (("a", 10.0), ("b", 10.0), ("c", 9.0)):
        warning = Notice(
            at_s=at_s,
            source="backend",
            kind="Pod",
            name=name,
            reason="Failed",
            message="no node",
            warning=True,
        )
        store.apply(warning)
        lines += sentences.new(store, 11.0)
    assert lines == [f"Pod {name}: Failed. no node." for name in "abc"]
    assert list(sentences.new(store, 12.0)) == []
