"""What `cockpit launch` lists, and the settings that it takes from files and flags."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from cockpit.actions.jobs import JobActions
from cockpit.backends.protocol import Backend
from cockpit.cli import main as cli
from cockpit.cli.change import launch, launch_list
from cockpit.cli.change.launch import arguments as launch_arguments
from cockpit.cli.options import connect
from cockpit.cli.options.parser import Parser
from cockpit.launch import driver_node, resubmit, submission
from cockpit.launch.capacity import beside, shortage
from cockpit.launch.flags import spec as spec_of
from cockpit.launch.job import BundledJob, JobSetting, bundled_job, bundled_jobs
from cockpit.launch.submission import LaunchSpec
from cockpit.model.cluster import Resources, WorkerGroup
from cockpit.model.error import UsageError
from cockpit.model.event import GroupsListed
from cockpit.model.run import Job, JobStatus
from tests.jobs_api import JobsApi
from tests.launch.test_submission import for_drivers
from tests.simulated_backend import ScriptedBackend
from tests.sources.fake_dashboard import FakeDashboard


def spec(*argv: str) -> LaunchSpec:
    """The submission for these arguments."""
    parser = Parser()
    launch_arguments(parser, "launch")
    return spec_of(parser.parse_args(argv))


@pytest.mark.parametrize("count", ["0", "-1"])
@pytest.mark.parametrize("job", [job.name for job in bundled_jobs() if job.has("workers")])
def test_a_number_of_workers_below_one_is_refused_before_anything_is_asked(
    job: str, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and not the one for a cluster that does not answer."""
    address = ("--address", "http://127.0.0.1:9")
    assert cli.main(["launch", job, "--workers", count, *address]) == 2
    assert f"workers={count} is not 1 or more" in capsys.readouterr().err


def test_a_least_number_of_workers_below_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="min_workers=-1 is not 0 or more"):
        spec("elastic", "--set", "min-workers=-1")


def test_no_workers_are_for_a_command_either() -> None:
    with pytest.raises(UsageError, match="for bundled jobs"):
        spec("--workers", "0", "--", "python", "train.py")


@pytest.mark.parametrize(
    ("argv", "lacks"),
    [
        (("checkpointed", "--workers", "64"), "64 workers take a CPU or GPU each"),
        (("checkpointed", "--workers", "9"), "room for 8 at most (6 pods)"),
        (("checkpointed", "--workers", "8"), ""),
        (("elastic", "--workers", "64"), ""),  # it begins with one
        (("elastic", "--workers", "64", "--set", "min-workers=32"), "32 workers"),
        (("baseline", "--workers", "64"), ""),  # one process
    ],
)
def test_what_the_worker_groups_can_never_have_is_reported(
    argv: tuple[str, ...], lacks: str
) -> None:
    groups = [
        WorkerGroup("cpu", 1, 1, 0, 4),
        WorkerGroup("gpu", 0, 0, 0, 2, Resources(cpus=1.5, gpus=2)),
    ]
    text = shortage(spec(*argv), groups)
    assert lacks in text
    assert bool(text) == bool(lacks)
    assert shortage(spec(*argv), []) == ""


def test_workers_that_reserve_more_than_one_cpu_need_more_room() -> None:
    groups = [WorkerGroup("cpu", 1, 1, 0, 4, resources=Resources(cpus=3))]
    argv = ("checkpointed", "--workers", "5", "--set", "cpus_per_worker=2")
    assert shortage(spec(*argv), groups) == (
        "5 workers take 2 CPUs each, and the worker groups have room for 4 at most (4 pods): the "
        "job would wait."
    )
    assert shortage(spec("checkpointed", "--workers", "5"), groups) == ""
    groups = [WorkerGroup("cpu", 1, 1, 0, 1, resources=Resources(cpus=0.6))]
    argv = ("checkpointed", "--workers", "3", "--set", "cpus_per_worker=0.2")
    assert shortage(spec(*argv), groups) == ""


@pytest.mark.parametrize(("workers", "lacks"), [("64", True), ("4", False)])
def test_dry_run_reports_more_workers_than_the_cluster_can_have(
    workers: str,
    lacks: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    groups = (WorkerGroup("cpu", 1, 1, 0, 4),)
    scripted = ScriptedBackend((GroupsListed(at_s=0.0, source="backend", groups=groups),))
    monkeypatch.setattr(connect, "backend", lambda args, **how: scripted)
    assert cli.main(["launch", "checkpointed", "--workers", workers, "--dry-run"]) == 0
    reported = capsys.readouterr().err.splitlines()
    assert reported[-1] == "Dry run: nothing was changed."
    assert reported[0] == "Cluster: local cluster scripted."
    assert ("room for 4 at most (4 pods)" in reported[2]) == lacks
    assert len(reported) == 3 + lacks
    assert scripted.asked == [("aclose",)]


def test_jobs_are_listed_with_their_summaries_in_eighty_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["launch", "--list"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["NAME", "SUMMARY"]
    assert all(len(line) <= 80 for line in out.splitlines())
    assert all(
        any(line.startswith(job.name) for line in out.splitlines()) for job in bundled_jobs()
    )
    assert cli.main(["launch", "--list", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    precision = next(one for one in listed[0]["settings"] if one["name"] == "precision")
    keys = {"name", "type", "default", "help", "choices", "group", "at_least", "at_most"}
    assert set(precision) == keys


@pytest.mark.parametrize("argv", [("checkpointed", "--list"), ("--list", "checkpointed")])
def test_a_jobs_settings_are_listed_by_group(
    argv: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["launch", *argv]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines.index("Run") < lines.index("Optimizer") < lines.index("On Ray")
    reported = {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "}
    assert reported == {setting.name for setting in bundled_job("checkpointed").settings}
    assert next(line for line in lines if "precision" in line).split()[1] == "fp32"
    assert "[fp32, tf32, bf16, fp16]" in " ".join(" ".join(lines).split())


def test_a_jobs_settings_can_be_read_by_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "checkpointed", "--list", "-o", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows][:2] == ["workers", "epochs"]


@pytest.mark.parametrize("width", [80, 120])
def test_listings_fit_the_width(width: int) -> None:
    jobs = bundled_jobs()
    lines = [line for job in jobs for line in launch_list.of_job(job, width)]
    assert max(map(len, [*lines, *launch_list.of_jobs(width)])) <= width


def test_a_long_default_stands_behind_the_help() -> None:
    space = "learning_rate=log(1e-4,1e-1) batch_size=choice(8,16,32,64) dropout=uniform(0,0.5)"
    settings = (JobSetting("space", "str", space, "tried"), JobSetting("n", "int", 4, "trials"))
    lines = list(launch_list.of_job(BundledJob("tune", "m", "s", settings), 80))
    assert max(map(len, lines)) <= 80
    assert lines[3].split()[:4] == ["space", "learning_rate=l…", "tried;", "default"]
    assert "dropout=uniform(0,0.5)" in " ".join(lines)
    assert lines[-3].split() == ["n", "4", "trials"]


def test_settings_come_from_a_file_and_those_that_are_typed_win(tmp_path: Path) -> None:
    file = tmp_path / "best.json"
    best = {"job": "checkpointed", "settings": {"learning_rate": 0.003, "workers": 8, "seed": 4}}
    file.write_text(json.dumps(best))
    made = spec("--settings", str(file), "--set", "learning-rate=0.1", "--workers", "3")
    assert made.entrypoint[:3] == ("python", "-m", "training.jobs.checkpointed")
    assert set(made.entrypoint[3:-1]) == {"--learning-rate=0.1", "--workers=3", "--seed=4"}
    assert spec("checkpointed", "--settings", str(file)).entrypoint[3] == "--learning-rate=0.003"


def test_settings_come_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"epochs = 7\n")))
    assert "--epochs=7" in spec("checkpointed", "--settings", "-").entrypoint


def test_a_plan_shows_what_a_job_runs_in_without_the_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connect, "backend", lambda args, **how: ScriptedBackend())
    flags = "--env A=first --env HF_TOKEN=hunter2 --uv einops --driver-memory 2Gi --driver-cpus 1"
    assert cli.main(["launch", "ddp", *flags.split(), "--dry-run"]) == 0
    plan = capsys.readouterr().err
    assert "Set A, HF_TOKEN in its environment." in plan
    assert "Possible secrets: HF_TOKEN. Everyone who can list jobs" in plan
    assert "Install packages on each node with uv: einops." in plan
    assert "Reserve 1 CPU, 2.0 GiB of memory for its driver." in plan
    assert "hunter2" not in plan
    assert "first" not in plan


def test_flags_win_over_the_file_of_the_runtime_environment(tmp_path: Path) -> None:
    file = tmp_path / "env.yaml"
    file.write_text("env_vars: {A: '1', B: '2'}\npip: [rich]\nworking_dir: /none\n")
    flags = ["--runtime-env", str(file), "--env", "A=3", "--uv", "einops"]
    made = spec(*flags, "--working-dir", str(tmp_path), "--", "python", "train.py")
    assert made.environment.env_vars == {"A": "3", "B": "2"}
    assert made.environment.others == {"uv": ["einops"]}
    assert made.directory == tmp_path


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["ddp", "--pip", "a", "--uv", "b"], "--pip and --uv cannot be combined"),
        (["ddp", "--driver-cpus", "-1"], "--driver-cpus must be 0 or more"),
        (["ddp", "--working-dir", "."], "A bundled job brings its own working directory"),
        (["ddp", "--via", "rayjob", "--image", "a:1"], "--image requires --own-cluster"),
        (["checkpointed", "--settings", "none.json"], "none.json cannot be read"),
        (["checkpointed", "--set", "precision=fp8"], "precision=fp8 is not one of its choices"),
        (["--settings", "epochs.toml"], "needs a job or a command"),
        (["fsdp3", "--settings", "epochs.toml"], "There is no bundled job 'fsdp3'"),
        (["--settings", "epochs.toml", "--", "python", "x.py"], "not for a command"),
        (["ddq", "--list"], "There is no bundled job 'ddq'"),
        (["ddp", "--", "python", "x.py"], "ddp and a command after -- cannot be launched together"),
    ],
)
def test_what_cannot_be_launched_is_reported_before_a_cluster_is_looked_for(
    argv: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("epochs.toml").write_text("epochs = 7\n")
    monkeypatch.setattr(sys, "argv", ["cockpit", "launch", *argv])
    assert cli.main() == 2
    text = capsys.readouterr().err
    assert words in text
    assert len(text.splitlines()) <= 3


def test_preflight_takes_a_job_or_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["preflight", "ddp", "--", "python", "x.py"]) == 2
    assert "cannot be launched together" in capsys.readouterr().err


def test_command_without_flags_needs_no_dashes() -> None:
    assert spec("python", "train.py").entrypoint == ("python", "train.py")


def test_launch_beside_a_running_job_reports_the_job_it_may_wait_for() -> None:
    running = [Job(f"job-{n}", "python x.py", JobStatus.RUNNING) for n in range(4)]
    over = Job("over", "python x.py", JobStatus.SUCCEEDED)
    assert beside([over]) == ""
    assert beside([running[0], over]).startswith(
        "job-0 is also running on this cluster: a rank waits until"
    )
    assert beside(running).startswith("job-0, job-1, job-2, … are also running on this cluster")


async def test_launch_reports_that_the_driver_is_not_on_the_head(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray = JobsApi()
    ray.nodes.append(for_drivers(1))
    monkeypatch.setattr(launch, "Dashboard", lambda route: ray.dashboard())
    monkeypatch.setattr(JobActions, "_dashboard", lambda actions: ray.dashboard())
    args = Namespace(resubmit=0, follow=False, output="table")
    for runs, said in (("ddp", True), ("fsdp2", False)):
        spec = submission.bundled_spec(runs)
        assert await launch._launch(args, ScriptedBackend(), spec) == 0
        assert (driver_node.TEXT in capsys.readouterr().err) is said
        ray.nodes.pop()


def test_folder_is_read_once_for_the_plan_and_the_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launched: list[LaunchSpec] = []

    async def taken(args: Namespace, backend: Backend, spec: LaunchSpec) -> int:
        launched.append(spec)
        return 0

    monkeypatch.setattr(launch, "_launch", taken)
    monkeypatch.setattr(connect, "backend", lambda args, **how: ScriptedBackend())
    (tmp_path / "train.py").write_text("")
    command = ["--working-dir", str(tmp_path), "--", "python", "train.py"]
    assert cli.main(["launch", "--no-preflight", *command]) == 0
    assert "Upload 1 file" in capsys.readouterr().err
    (tmp_path / "later.py").write_text("")
    uploaded = launched[0].chosen()
    assert uploaded is not None
    assert [file.name for file in uploaded.files] == ["train.py"]


async def test_launch_that_resubmits_waits_for_the_job_that_runs_its_command_already(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a pod does that replaces another one."""
    monkeypatch.setattr(resubmit, "LOOK_S", 0.01)
    wanted = spec("checkpointed", "--set", "run_name=mine")
    fake = FakeDashboard()
    fake.add_job("checkpointed-1")
    fake.jobs[0]["entrypoint"] = wanted.command
    async with fake.serve(), asyncio.TaskGroup() as tasks:
        args = Namespace(output="table", resubmit=3, follow=False)
        launched = tasks.create_task(
            launch._launch(args, ScriptedBackend(route=fake.route), wanted)
        )
        await fake.until_asked("/api/jobs/checkpointed-1", 3)
        fake.end_job("checkpointed-1")
    assert launched.result() == 0
    assert fake.times_asked("/api/packages") == 0, "nothing was submitted"
    printed = capsys.readouterr()
    assert printed.out == "checkpointed-1\n"
    assert "checkpointed-1 is already running this command" in printed.err
