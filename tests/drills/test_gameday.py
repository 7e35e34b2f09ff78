"""Game days: the format of their files, and how their steps run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.backends.protocol import Scaled
from cockpit.drills.engine.drill import Experiment
from cockpit.drills.faults.catalog import NAMES, fault
from cockpit.drills.gamedays import file
from cockpit.drills.gamedays.file import game_day, parsed, shipped
from cockpit.drills.gamedays.gameday import GameDay, Inject, Launch, Step
from cockpit.drills.gamedays.runner import GameDayRun
from cockpit.drills.plan.plan import DrillPlan
from cockpit.drills.probes.external import ContextProber
from cockpit.launch.job import BundledJob, JobSetting
from cockpit.launch.submission import BUNDLED, LaunchSpec
from cockpit.model.drill import DrillRecord, Verdict
from cockpit.model.error import CockpitError, UnreachableError, UsageError
from cockpit.model.event import JobsListed, MetricsReported, RunSeen
from cockpit.model.run import Checkpoint, Job, JobStatus, RunState
from cockpit.model.scale import ScaleRequest
from cockpit.sources.ray.http import MissingError
from tests.drills.simulated_context import (
    QUICK,
    Obedient,
    ScriptedContext,
    experiment,
    recovering,
    trained,
)
from tests.local_cluster import until

WRITTEN = """
about = "All that a file may say."
seed = 7

[defaults]
probes = ["replicas-ready"]
recover_within_s = 60

[[step]]
launch = "checkpointed"
workers = 3
set = { epochs = 40, stop_on_nan = false }

[[step]]
name = "two at once"
faults = [
  { drill = "pod-delete", set = { grace_s = 5 }, target = "group:gpu" },
  { drill = "pod-kill", count = 2 },
]
during = ["throughput >= 20"]
abort_unless = ["checkpoint-age <= 900"]
recover_within_s = 90
max_time_lost_s = 120
timeout_s = 200

[[step]]
drill = "pod-kill"
optional = true
seed = 9

[[step]]
expect = ["replicas-ready", "checkpoint-age <= 60"]
within_s = 30

[[step]]
scale = "gpu"
to = 3

[[step]]
wait_s = 2.5
"""


def test_every_shipped_day_can_be_read_and_is_about_something() -> None:
    names = shipped()
    assert names == ("smoke", "crash", "hang", "preemption", "storage", "head-loss", "soak")
    for name in names:
        day = game_day(name)
        assert day.about
        assert any(isinstance(step.doing, Inject) for step in day.steps)


def test_no_shipped_day_has_the_name_of_a_fault() -> None:
    """The names are used in `drill run NAME`: a game day would hide a fault, or the reverse."""
    assert not set(shipped()) & set(NAMES)


def test_the_old_name_of_a_fault_is_refused_with_the_new_name() -> None:
    with pytest.raises(UsageError, match="did you mean spot-preemption"):
        day_of("[[step]]\ndrill = 'preemption'\n")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("pod-kil", ": did you mean pod-kill?"),
        ("isolate", ": did you mean network-isolate?"),
        ("kill", ": did you mean pod-kill or container-kill or head-kill?"),
        ("xyzzy", "."),
        ("", "."),
    ],
)
def test_an_unknown_fault_is_answered_with_those_that_are_like_it(typed: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        fault(typed)
    assert caught.value.what == f"There is no fault {typed!r}{said}"
    assert str(caught.value).endswith("cockpit drill list shows all.")
    assert len(str(caught.value)) < 200


def test_a_file_reports_all_of_a_day() -> None:
    day = parsed(WRITTEN, "day.toml", "day")
    launch, both, one, expect, scale, wait = (step.doing for step in day.steps)
    assert isinstance(launch, Launch)
    assert launch.settings == {"epochs": "40", "stop_on_nan": "false", "workers": "3"}
    assert isinstance(both, Inject)
    first, second = both.plan.faults
    assert (first.values, first.target.select) == ({"grace_s": "5"}, "group:gpu")
    assert second.target.count == 2
    assert [(probe.kind, probe.when) for probe in both.plan.hypothesis] == [
        ("replicas-ready", ("before", "after")),
        ("throughput", ("during",)),
    ]
    assert both.plan.recover_within_s == 90, "a step says it better than the defaults"
    assert (both.plan.max_time_lost_s, both.plan.timeouts.recover_s) == (120, 200)
    assert (both.plan.seed, both.plan.game_day) == (7, "day")
    assert isinstance(one, Inject)
    assert (one.plan.recover_within_s, one.plan.seed, one.optional) == (60, 9, True)
    assert [step.name for step in day.steps[3:]] == [
        "expect replicas-ready, checkpoint-age <= 60", "scale gpu to 3", "wait 2.5 s",
    ]  # fmt: skip
    assert (expect, scale, wait) == tuple(step.doing for step in day.steps[3:])


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("about = 3\n[[step]]\nwait_s = 1", "1:1", "It must be a string"),
        ("abuot = 'x'", "1:1", "did you mean about?"),
        ("", "1:1", "There is no step."),
        ("[[step]]\ndrill = ", "2:9", "it is not valid TOML"),
        ("[[step]]\nwait_s = 1\n[[step]]\nname = 'x'", "3:1", "Step 2 has no action."),
        ("[[step]]\nwait_s = 1\ndrill = 'pod-kill'", "1:1", "is two things: drill and wait_s"),
        ("[[step]]\n  drill = 'pod-kil'", "2:3", "There is no fault 'pod-kil'"),
        ("[[step]]\nwait_s = 1\n# drill = 3\n[[step]]\ndrill='pod-kill'\nmuch = 1", "6:1", "much"),
        ("[[step]]\ndrill = 'pod-delete'\nset = { grace_s = 'x' }", "3:9", "It has to be a number"),
        ("[[step]]\ndrill = 'pod-delete'\nset = { grac = 1 }", "3:9", "has no parameter 'grac'"),
        ("[[step]]\ndrill = 'pod-kill'\n[step.set]\ngrac = 1", "4:1", "has no parameter 'grac'"),
        ("[[step]]\ndrill = 'pod-kill'\ncount = 0", "3:1", "hits 1 or more"),
        ("[[step]]\ndrill = 'pod-kill'\ncount = 1.5", "3:1", "a whole number"),
        ("[[step]]\ndrill = 'pod-kill'\nprobes = ['quick']", "3:1", "'quick' is not a probe"),
        ("[defaults]\nduring = ['x']\n[[step]]\nwait_s=1", "2:1", "'x' is not a probe"),
        ("[defaults]\ndrill = 'x'\n[[step]]\nwait_s=1", "2:1", "[defaults] has no 'drill'"),
        ("defaults = 3\n[[step]]\nwait_s = 1", "1:1", "defaults is not a table"),
        ("[[step]]\nfaults = [{ drill = 'pod-kill' }, { drill = 'x' }]", "2:37", "no fault 'x'"),
        ("[[step]]\nfaults = []", "2:1", "There is no fault in faults."),
        ("[[step]]\nlaunch = 'x'", "2:1", "There is no job 'x'"),
        ("[[step]]\nlaunch = 'checkpointed'\nset = { epoch = 3 }", "3:9", "did you mean epochs?"),
        ("[[step]]\nlaunch = 'checkpointed'\nset = { gpu = 3 }", "3:9", "not one of its choices"),
        ("[[step]]\nscale = 'gpu'", "2:1", "scale has no size"),
        ("[[step]]\nwait_s = -1", "2:1", "from 0 to 1e12"),
        ("[[step]]\nwait_s = inf", "2:1", "from 0 to 1e12"),
        ("[[step]]\nexpect = 3", "2:1", "a list of strings"),
        ("step = 3", "1:1", "a list of tables"),
    ],
)
def test_an_error_names_line_and_column_and_what_is_wrong(text: str, place: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(text, "day.toml", "day")
    assert caught.value.what.startswith(f"day.toml:{place}: "), caught.value.what
    assert said in str(caught.value)
    assert str(caught.value).count("\n") <= 2


def test_settings_of_a_guard_are_kept_as_written() -> None:
    step = "[[step]]\nwait_s = 1\n"
    assert parsed(f"[guard]\nhang = 'restart'\n{step}", "d", "d").guard == {"hang": "restart"}
    with pytest.raises(UsageError, match="guard is not a table"):
        parsed(f"guard = 1\n{step}", "d", "d")


def test_a_file_that_is_not_there_or_no_text_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        game_day(str(tmp_path / "none.toml"))
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not a text file"):
        game_day(str(tmp_path / "b.toml"))


@dataclass(slots=True)
class ScriptedActions:
    """Records its calls; a job that is launched runs and saves at once."""

    context: ScriptedContext
    fault: Obedient
    asked: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    """The scripted results of the drills."""
    launched: str = ""
    """The id of the job."""
    answers_submit: bool = True
    """Otherwise Ray accepts the job, and the answer never comes."""

    async def submit(self, spec: LaunchSpec) -> Job:
        self.asked.append(f"launch {spec.metadata[BUNDLED]}")
        self.launched = spec.submission_id
        at_s = self.context.clock()
        job = Job(spec.submission_id, "python", JobStatus.RUNNING)
        self.context.dispatch(JobsListed(at_s=at_s, source="ray", jobs=(job,)))
        self.context.dispatch(
            RunSeen(
                at_s=at_s, source="telemetry", run_id="new", name="new", state=RunState.RUNNING,
                submission_id=spec.submission_id,
            )
        )  # fmt: skip
        self.context.dispatch(
            MetricsReported(
                at_s=at_s, source="telemetry", run_id="new", attempt=1, checkpoint=Checkpoint(1, "")
            )
        )
        return job if self.answers_submit else await asyncio.Future()

    async def submit_and_resubmit(
        self,
        spec: LaunchSpec,
        times: int,
        log: Callable[[str], None],
        sends: Callable[[str], None],
    ) -> Job:
        self.asked.append(f"stay {times} times")
        sends("job-2")
        return await asyncio.Future()

    async def stop_job(self, job_id: str) -> None:
        self.asked.append(f"stop {job_id}")
        stopped = Job(job_id, "python", JobStatus.STOPPED)
        self.context.dispatch(JobsListed(at_s=self.context.clock(), source="ray", jobs=(stopped,)))

    async def scale(self, request: ScaleRequest) -> Scaled:
        self.asked.append(f"scale {request.group} of {request.uid}")
        raise CockpitError(f"Group {request.group} cannot be scaled.")

    def experiment(self, plan: DrillPlan) -> Experiment:
        self.asked.append(f"drill {plan.name} of {plan.game_day.partition('/')[0]}")
        return experiment(self.context, {"pod-kill": self.fault}, replace(plan, timeouts=QUICK))

    async def drill(self, experiment: Experiment) -> DrillRecord:
        record = await experiment.conduct()
        return replace(record, verdict=self.verdicts.pop(0)) if self.verdicts else record


def day_of(text: str) -> GameDay:
    return parsed(text, "day.toml", "day")


def run_of(context: ScriptedContext, day: GameDay) -> tuple[GameDayRun, ScriptedActions, list[str]]:
    actions = ScriptedActions(context, Obedient(apply=recovering(context)))
    lines: list[str] = []
    return GameDayRun(context, day, actions, ContextProber(context), lines.append), actions, lines


TWICE = '[[step]]\ndrill = "pod-kill"\n[[step]]\nname = "again"\ndrill = "pod-kill"\n'


async def test_a_day_passes_when_all_of_its_steps_do() -> None:
    context = ScriptedContext(trained())
    run, actions, text = run_of(context, day_of("[[step]]\nwait_s = 0.01\n" + TWICE[:27]))
    result = await run.conduct()
    assert result.passed, result.why
    assert result.why == "1 drill passed"
    assert [step.kind for step in result.steps] == ["wait", "drill"]
    assert result.steps[1].record is not None
    assert actions.asked == ["drill pod-kill of day"]
    assert text[0] == "step 1 of 2: wait 0.01 s"
    assert text[1] == "step 1 passed: waited"
    assert text[3].startswith("step 2 passed: first new step after ")


def test_a_job_that_makes_no_checkpoint_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = BundledJob("serve", "m", "s", (JobSetting("port", "int", 8000, "of HTTP"),))
    monkeypatch.setattr(file, "bundled_jobs", lambda: (serve,))
    with pytest.raises(UsageError, match="Job serve makes no checkpoint to resume from"):
        day_of("[[step]]\nlaunch = 'serve'\n")


async def test_a_job_is_launched_only_where_no_run_goes_and_stopped_at_the_end() -> None:
    context = ScriptedContext()
    run, actions, _ = run_of(context, day_of("[[step]]\nlaunch = 'checkpointed'\n"))
    assert (await run.conduct()).passed
    assert actions.asked == ["launch checkpointed", f"stop {actions.launched}"]

    context = ScriptedContext(trained())
    run, actions, _ = run_of(context, day_of("[[step]]\nlaunch = 'checkpointed'\n"))
    result = await run.conduct()
    assert result.passed
    assert "nothing was launched" in result.steps[0].why
    assert actions.asked == []


async def test_a_job_that_is_sent_again_is_stopped_by_the_id_that_it_has_then() -> None:
    context = ScriptedContext()
    day = "[[step]]\nlaunch = 'checkpointed'\nresubmit = 3\n[[step]]\nwait_s = 0.01\n"
    run, actions, _ = run_of(context, day_of(day))
    assert (await run.conduct()).passed
    assert actions.asked == ["launch checkpointed", "stay 3 times", "stop job-2"]


async def test_a_job_that_cannot_be_sent_again_is_reported_and_the_day_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = ScriptedContext()
    day = "[[step]]\nlaunch = 'checkpointed'\nresubmit = 1\n[[step]]\nwait_s = 0.01\n"
    run, _, text = run_of(context, day_of(day))

    async def away(*_: object) -> Job:
        raise UnreachableError("Nobody answers.")

    monkeypatch.setattr(ScriptedActions, "submit_and_resubmit", away)
    assert (await run.conduct()).passed
    assert "the job is not submitted again after a loss: Nobody answers." in text


async def test_a_drill_that_fails_does_not_keep_the_next_from_being_done() -> None:
    context = ScriptedContext(trained())
    run, actions, text = run_of(context, day_of(TWICE))
    actions.verdicts = [Verdict.FAILED, Verdict.PASSED]
    result = await run.conduct()
    assert not result.passed
    assert [step.ok for step in result.steps] == [False, True]
    assert result.why.startswith("step 1, pod-kill: failed")
    assert text[1].startswith("step 1 FAILED: first new step after ")


@pytest.mark.parametrize("verdict", [Verdict.BROKEN, Verdict.ABORTED])
async def test_after_a_drill_that_broke_the_rest_is_left_out(verdict: Verdict) -> None:
    context = ScriptedContext(trained())
    run, actions, text = run_of(context, day_of(TWICE))
    actions.verdicts = [verdict]
    result = await run.conduct()
    assert [step.ok for step in result.steps] == [False, None]
    assert result.steps[1].why == f"left out: step 1 was {verdict.value}"
    assert text[-1] == f"step 2 left out: step 1 was {verdict.value}"
    assert text[1].startswith(f"step 1 FAILED: {verdict.value}: ")


async def test_a_step_between_that_fails_ends_the_day() -> None:
    context = ScriptedContext(trained())
    context.store.uid = "uid-of-the-cluster"
    run, hands, _ = run_of(context, day_of("[[step]]\nscale = 'gpu'\nto = 3\n" + TWICE))
    result = await run.conduct()
    assert [step.ok for step in result.steps] == [False, None, None]
    assert "cannot be scaled" in result.why
    assert hands.asked == ["scale gpu of uid-of-the-cluster"]


async def test_an_expectation_that_does_not_come_true_in_time_reports_what_was_found() -> None:
    context = ScriptedContext(trained())
    run, _, _ = run_of(context, day_of("[[step]]\nexpect = ['checkpoint-age <= 5']\nwithin_s = 0"))
    result = await run.conduct()
    assert not result.passed
    assert "checkpoint-age <= 5: no checkpoint was seen" in result.why


async def test_a_fault_that_the_cluster_has_not_is_left_out_where_it_is_optional() -> None:
    context = ScriptedContext(trained())
    text = "[[step]]\ndrill = 'container-kill'\noptional = true\n"
    run, actions, _ = run_of(context, day_of(text))
    result = await run.conduct()
    assert result.passed
    assert result.steps[0].ok is None
    assert "there is no container-kill here" in result.steps[0].why
    assert actions.asked == []


async def test_an_abort_undoes_the_drill_and_leaves_the_rest_out() -> None:
    context = ScriptedContext(trained())
    run, actions, _ = run_of(context, day_of(TWICE))
    actions.fault.lasts_s = 60.0
    going = asyncio.create_task(run.conduct())
    await until(lambda: bool(context.store.drills))
    await asyncio.to_thread(run.abort)
    result = await asyncio.wait_for(going, 60)
    assert not result.passed
    assert result.why == "aborted: by the user"
    assert result.steps[0].record is not None
    assert result.steps[0].record.verdict is Verdict.ABORTED
    assert result.steps[1].ok is None


async def test_an_abort_ends_a_wait_at_once() -> None:
    context = ScriptedContext()
    run = GameDayRun(context, GameDay("d", "", day_of("[[step]]\nwait_s = 60").steps),
                     ScriptedActions(context, Obedient()), ContextProber(context))  # fmt: skip
    going = asyncio.create_task(run.conduct())
    await asyncio.sleep(0)
    run.abort("interrupted")
    assert (await asyncio.wait_for(going, 60)).why == "aborted: interrupted"


async def test_an_abort_stops_a_job_that_was_accepted_before_the_answer_came() -> None:
    context = ScriptedContext()
    run, actions, _ = run_of(context, day_of("[[step]]\nlaunch = 'checkpointed'\n"))
    actions.answers_submit = False
    conducted = asyncio.create_task(run.conduct())
    await until(lambda: bool(actions.launched))
    run.abort("by the user")
    assert (await asyncio.wait_for(conducted, 60)).why == "aborted: by the user"
    assert actions.asked == ["launch checkpointed", f"stop {actions.launched}"]


async def test_a_job_that_was_not_accepted_is_not_reported_as_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def missing(actions: ScriptedActions, job_id: str) -> None:
        raise MissingError(f"There is no job {job_id!r}", status=404)

    async def rejected(actions: ScriptedActions, spec: LaunchSpec) -> Job:
        raise CockpitError("Ray rejected the job.")

    monkeypatch.setattr(ScriptedActions, "submit", rejected)
    monkeypatch.setattr(ScriptedActions, "stop_job", missing)
    run, _, reported = run_of(ScriptedContext(), day_of("[[step]]\nlaunch = 'checkpointed'\n"))
    assert "Ray rejected the job." in (await run.conduct()).why
    assert reported[-1].startswith("there is no job checkpointed-")


def test_a_step_is_called_by_what_it_does() -> None:
    steps: tuple[Step, ...] = day_of("[[step]]\nlaunch = 'checkpointed'\n" + TWICE).steps
    assert [step.name for step in steps] == ["launch checkpointed", "pod-kill", "again"]


async def test_a_day_that_is_cancelled_stops_the_job_that_it_launched() -> None:
    context = ScriptedContext()
    text = "[[step]]\nlaunch = 'checkpointed'\n[[step]]\nwait_s = 60"
    run, actions, reported = run_of(context, day_of(text))
    going = asyncio.create_task(run.conduct())
    await until(lambda: "step 2 of 2: wait 60 s" in reported)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(going, 60)
    assert actions.asked == ["launch checkpointed", f"stop {actions.launched}"]
