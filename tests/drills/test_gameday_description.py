"""The description of a drill or a game day before it begins, and of a refused one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from cockpit.cli.drill import result, run
from cockpit.cli.drill.progress import Lines
from cockpit.cli.main import main
from cockpit.cli.options import connect
from cockpit.drills.faults.catalog import fault
from cockpit.drills.faults.fault import Order
from cockpit.drills.faults.fault import parameter_values as values
from cockpit.drills.gamedays.description import Here, here, step_lines
from cockpit.drills.gamedays.file import game_day, parsed
from cockpit.drills.gamedays.gameday import GameDay
from cockpit.drills.plan.plan import TargetSpec
from cockpit.drills.plan.target import choose
from cockpit.model.cluster import Capability
from cockpit.model.drill import Stage, Verdict
from cockpit.model.event import DrillInjected, DrillStaged, SourceHealth
from cockpit.model.run import Job, JobStatus
from cockpit.recorder.drills import DrillHistory
from tests.drills.simulated_context import Obedient, ScriptedContext, experiment, trained
from tests.events import the_recovery
from tests.recorder.test_drills import kept, record
from tests.simulated_backend import ScriptedBackend

Capture = pytest.CaptureFixture[str]
LOCAL = Here("local", {})
KUBERAY = Here("kuberay", {})


def day_of(text: str) -> GameDay:
    return parsed(text, "day.toml", "day")


def after(lines: list[str], step: str) -> str:
    """The line below that of the step."""
    at = next(at for at, line in enumerate(lines) if line.lstrip().partition(" ")[2] == step)
    return lines[at + 1].strip()


def test_a_step_whose_fault_is_not_there_reports_it_and_that_it_is_left_out() -> None:
    text = step_lines(game_day("crash"), LOCAL)
    message = "Left out: there is no container-kill here: pods have no containers"
    assert after(text, "a container crashes (container-kill)").startswith(message)
    assert after(text, "memory runs out on one pod (memory-hog)").startswith("Left out: ")
    assert sum(line.startswith("     ") for line in text) == 2
    assert not [line for line in step_lines(game_day("crash"), KUBERAY) if line[:5] == "     "]


def test_a_step_that_is_not_optional_or_not_allowed_cannot_be_done() -> None:
    day = day_of("[[step]]\ndrill = 'container-kill'\n")
    text = "This step cannot run, so the game day will fail: there is no container-kill here"
    assert after(step_lines(day, LOCAL), "container-kill").startswith(text)
    at = replace(KUBERAY, rights={"delete_pod": Capability(False, "they are not yours")})
    day = day_of("[[step]]\ndrill = 'pod-kill'\noptional = true\n")
    assert after(step_lines(day, at), "pod-kill").endswith(
        "pod-kill needs the permission to delete pods: they are not yours."
    )


def test_a_run_that_continues_is_what_the_drills_hit_and_nothing_is_launched() -> None:
    at = here(ScriptedContext(trained()).store, "local", {})
    assert after(step_lines(game_day("smoke"), at), "launch checkpointed") == (
        f"Nothing is launched: run {at.run} continues, and the drills hit that one."
    )
    assert at.run


def test_a_job_that_runs_and_is_no_run_may_keep_the_days_own_waiting() -> None:
    at = replace(LOCAL, jobs=(Job("job-1", "python x.py", JobStatus.RUNNING),))
    text = step_lines(game_day("smoke"), at)
    assert after(text, "launch checkpointed").startswith(
        "Note: job-1 is also running on this cluster: a rank waits until"
    )
    always = day_of("[[step]]\nlaunch = 'checkpointed'\nalways = true\nwithin_s = 60\n")
    text = step_lines(always, replace(at, run="other"))
    assert text[-1].strip() == "The day ends if it has no checkpoint within 60 s."


def test_a_plan_on_a_cluster_is_headed_and_knows_what_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    spoken = [SourceHealth(at_s=1.0, source=name, ok=True) for name in run.SOURCES]
    backend = ScriptedBackend([*trained(), *spoken])
    monkeypatch.setattr(connect, "backend", lambda *_: backend)
    assert main(["drill", "plan", "crash"]) == 0
    reported = capsys.readouterr().err.splitlines()
    assert after(reported, "launch checkpointed").startswith("Nothing is launched: run ")
    assert after(reported, "a container crashes (container-kill)").startswith("Left out: ")
    assert main(["drill", "plan", "pod-kill"]) == 0
    reported = capsys.readouterr().err.splitlines()
    assert reported[:2] == ["Cluster: local cluster scripted.", "The plan:"]
    assert reported[2].startswith("  Delete ")
    assert reported[-1] == "Dry run: nothing was changed."
    assert {asked for asked, *_ in backend.asked} == {"aclose"}, "it changes nothing"


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.usefixtures("no_cluster")
def test_the_steps_of_a_day_are_reported_without_a_cluster_too(capsys: Capture) -> None:
    for argv in (["plan", "smoke"], ["run", "preemption", "--dry-run"]):
        assert main(["drill", *argv]) == 0
        reported = capsys.readouterr().err
        assert "Which faults are available is therefore unknown." in reported
        assert "  1. launch checkpointed" in reported
        assert "Dry run: nothing was changed." in reported
    assert main(["drill", "run", "smoke", "--yes"]) == 3
    assert main(["drill", "plan", "smoke", "--local"]) == 3
    assert main(["drill", "plan", "pod-kill"]) == 3, "whom it hits is the cluster's to say"


def test_a_drill_that_was_refused_reports_that_nothing_was_done(capsys: Capture) -> None:
    refused = replace(record(verdict=Verdict.REFUSED), drills=(), recoveries=())
    result.print_record(refused)
    assert "REFUSED, nothing was done: why" in capsys.readouterr().out
    result.print_record(kept().record)
    assert "PASSED: why" in capsys.readouterr().out


def test_the_first_line_of_a_drill_reports_that_nothing_is_done_yet(capsys: Capture) -> None:
    context = ScriptedContext(trained())
    refused = experiment(context, Obedient(missing="no right to it"))
    asyncio.run(refused.conduct())
    Lines(refused).print_new(context.store)
    assert capsys.readouterr().err.splitlines() == ["    0.0 s  preparing: nothing is done yet"]


def test_stage_reports_what_it_waits_for_and_a_step_before_the_fault(capsys: Capture) -> None:
    context = ScriptedContext(trained())
    drill = experiment(context, Obedient())
    lines = Lines(drill)
    for message in ("", "no steady state yet", "no steady state yet"):
        context.dispatch(
            DrillStaged(
                at_s=99.5,
                source="user",
                drill_id=drill.id,
                name="test",
                stage=Stage.BEFORE,
                message=message,
            )
        )
        lines.print_new(context.store)
    for event in the_recovery():
        if isinstance(event, DrillInjected):  # a second later than the last step
            later = replace(event.drill, id=f"{drill.id}.1", injected_s=101.5)
            event = replace(event, at_s=101.5, drill=later)
        context.dispatch(event)
    lines.print_new(context.store)
    parts = capsys.readouterr().err.splitlines()
    assert parts[:2] == [
        "    0.0 s  checking before", "    0.0 s  checking before: no steady state yet",
    ]  # fmt: skip
    assert "    1.0 s  -1.0 s training stopped (telemetry: ranks)" in parts


@pytest.mark.parametrize(("what", "whom"), [("pod-kill", "worker pod"), ("rank-kill", "rank")])
def test_random_kills_list_all_possible_targets(what: str, whom: str) -> None:
    context = ScriptedContext(trained())
    kills = fault("random-kills")
    order = Order("d.1", values(kills, {"fault": what}), Random(1))
    victims = choose(context.store, kills, TargetSpec(), order.random)
    prepared = asyncio.run(kills.prepare(context, victims, order))
    assert prepared.lines[1] == (
        f"Each kill selects a new random target: any {whom} there may be hit more than once."
    )


def test_a_record_of_the_fault_that_was_called_preemption_is_still_read(capsys: Capture) -> None:
    old = kept(fault="preemption")
    DrillHistory().keep(replace(old, record=replace(old.record, asked=("preemption",))))
    assert main(["drill", "history", "preemption"]) == 0
    assert "drill-a1" in capsys.readouterr().out
    assert main(["drill", "show", "last"]) == 0
    assert "preemption of" in capsys.readouterr().out


DAY = """
[defaults]
probes = ["command: curl -fsS http://model.example/before"]
[[step]]
expect = ["command: sh -c 'rm -rf /tmp/x'", "replicas-ready"]
[[step]]
drill = "pod-kill"
during = ["command: curl -fsS http://model.example/during"]
abort_unless = ["command: true %s"]
"""


def test_every_command_that_runs_on_this_machine_is_in_the_plan_whole() -> None:
    long = "x" * 3000
    text = step_lines(parsed(DAY % long, "day.toml", "day"), None)
    runs = "     Runs on this machine: "
    assert [line.removeprefix(runs) for line in text if line.startswith(runs)] == [
        "sh -c 'rm -rf /tmp/x'",
        "curl -fsS http://model.example/before",
        "curl -fsS http://model.example/during",
        f"true {long}",
    ]


def test_game_day_without_commands_has_no_line_of_them() -> None:
    assert not [line for line in step_lines(game_day("smoke"), LOCAL) if "Runs on" in line]
