"""The verbs on a real local cluster: two workers, a small run, a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.local import GroupSpec, LocalBackend
from cockpit.cli.main import main
from cockpit.session import builder
from tests.local_cluster import LIGHT_FLAGS, running_cluster

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("patient")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBackend]:
    with running_cluster("verbs", [GroupSpec("workers", replicas=2, min=0, max=3)]) as backend:
        yield backend


@pytest.fixture
def ask(cluster: LocalBackend, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a verb that must succeed; what it printed as JSON."""

    def call(*argv: str, code: int = 0) -> Any:
        assert main([*argv, "-o", "json"]) == code, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return call


@pytest.fixture(scope="module")
def job(cluster: LocalBackend, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run that lasts longer than all of the tests."""
    results = tmp_path_factory.mktemp("results")
    settings = [*LIGHT_FLAGS, f"--set=storage_path={results}", "--workers=2"]
    from contextlib import redirect_stdout
    from io import StringIO

    out = StringIO()
    with redirect_stdout(out):
        assert main(["launch", "checkpointed", *settings]) == 0
    return out.getvalue().strip()


def test_a_run_is_launched_seen_killed_and_stopped(
    job: str, ask: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from cockpit.session.session import Session

    backend = LocalBackend("verbs")
    with builder.session_on(backend) as session:
        _until_checkpoint(session, job)

    whole = ask("status")
    assert whole["cluster"]["health"] == "ready"
    assert whole["run"]["submission_id"] == job
    assert {rank["rank"] for rank in whole["ranks"]} == {0, 1}
    assert all(source["ok"] for source in whole["sources"])

    pods = {pod["name"]: pod for pod in ask("pods")}
    assert sorted(rank for pod in pods.values() for rank in pod["ranks"]) == [0, 1]
    assert ask("groups")[0]["ready"] == 2
    assert len([node for node in ask("nodes") if node["alive"]]) == 3
    assert [row["name"] for row in ask("jobs")] == [job]
    assert ask("runs")[0]["attempt"] == 1
    assert all(rank["loss_first"] > 0 for rank in ask("ranks"))
    assert "Ready" in {event["reason"] for event in ask("events")}
    assert main(["status"]) == 0
    assert "RUNNING, attempt 1" in capsys.readouterr().out

    target = whole["ranks"][1]["pod"]
    assert main(["kill", "1", "--dry-run"]) == 0
    assert target in capsys.readouterr().err
    assert main(["--read-only", "kill", "1", "--yes"]) == 4
    assert main(["kill", "1"]) == 2, "nobody is there to be asked"
    capsys.readouterr()

    drill = ask("kill", "1", "--yes")
    assert drill["target"] == target
    assert drill["recovered"]
    assert drill["steps_lost"] is not None
    assert 0 < drill["detected_s"] <= drill["restarted_s"] < drill["first_step_s"]
    after = ask("runs")[0]
    assert after["attempt"] == 2
    assert after["attempts"][0]["reason"]
    assert target not in {rank["pod"] for rank in ask("ranks")}

    assert "AttemptEnded" in {event["reason"] for event in ask("events")}
    with builder.session_on(backend) as session:
        _until_checkpoint(session, job, attempt=2)  # its ranks have separate logs
    assert main(["logs", "0", "--grep", "resumed at step"]) == 0
    assert "resumed at step" in capsys.readouterr().out
    assert main(["logs", "7"]) == 2
    assert "Its ranks are: 0, 1." in capsys.readouterr().err

    assert main(["stop", job, "--yes"]) == 0
    with builder.session_on(backend, sources=("ray",)) as session:
        assert isinstance(session, Session)
        assert session.wait(lambda s: job in s.jobs and s.jobs[job].status.is_over, 60)
    assert main(["logs", job, "--grep", "resumed at step"]) == 0
    assert "resumed at step" in capsys.readouterr().out

    assert main(["resume", job]) == 2
    assert main(["resume", job, "--yes"]) == 0
    again = capsys.readouterr().out.strip()
    assert main(["delete", again, "--yes"]) == 2, "it runs"
    assert main(["stop", again, "--yes"]) == 0
    with builder.session_on(backend, sources=("ray",)) as session:
        assert session.wait(lambda s: again in s.jobs and s.jobs[again].status.is_over, 60)
    assert main(["delete", again, "--yes"]) == 0
    assert [row["name"] for row in ask_after(capsys, ask)] == [job]


def ask_after(capsys: pytest.CaptureFixture[str], ask: Any) -> Any:
    capsys.readouterr()
    return ask("jobs")


def _until_checkpoint(session: Any, job: str, attempt: int = 1) -> None:
    """Until a checkpoint was reported after the attempt's first step."""

    def has_one(store: Any) -> bool:
        return any(
            run.submission_id == job
            and attempt in run.attempts
            and run.attempts[attempt].started_s is not None
            and any(at_s > run.attempts[attempt].started_s for at_s, _ in run.checkpoints)
            for run in store.runs.values()
        )

    assert session.wait(has_one, 120), session.store.jobs


def test_a_script_that_raises_at_import_fails_with_its_last_output(
    ask: Any,
    cluster: LocalBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    monkeypatch.chdir(tmp_path)
    assert main(["launch", "--no-preflight", "--follow", "--", "python", "broken.py"]) == 1
    told = capsys.readouterr()
    assert "No module named 'nothing_of_this_name'" in told.out
    assert "FAILED" in told.err


def test_a_job_is_stopped_and_waited_for(
    ask: Any,
    cluster: LocalBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["launch", "--", sys.executable, "-c", "import time; time.sleep(600)"]) == 0
    job = capsys.readouterr().out.strip()
    assert main(["stop", job, "--yes", "--wait"]) == 0
    assert f"Job {job} has ended." in capsys.readouterr().err
    assert next(row["status"] for row in ask("jobs") if row["name"] == job) == "STOPPED"
    assert main(["stop", job, "--yes"]) == 0
    assert f"Job {job} has already ended: STOPPED." in capsys.readouterr().err


def test_names_that_do_not_exist_are_answered_with_those_that_do(
    cluster: LocalBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("stop", "delete", "resume"):
        assert main([verb, "nobody", "--yes"]) == 2
        assert "There is no job 'nobody'.\nJobs: " in capsys.readouterr().err
    assert main(["logs", "nobody"]) == 2
    assert "no job, pod or rank 'nobody'" in capsys.readouterr().err
    assert main(["kill", "nobody", "--yes"]) == 2
    assert "verbs-workers" in capsys.readouterr().err
    assert main(["scale", "nobody", "3", "--yes"]) == 2
    assert "Groups: workers" in capsys.readouterr().err
    assert main(["scale", "workers", "many", "--yes"]) == 2
    capsys.readouterr()


def test_a_group_scales_up_and_down_and_is_held_to_its_bounds(
    cluster: LocalBackend, ask: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scale", "workers", "+1", "--yes", "--wait"]) == 0
    assert "2 → 3" in capsys.readouterr().err
    assert ask("groups")[0]["ready"] == 3
    assert main(["scale", "workers", "9", "--dry-run"]) == 0
    assert "limited to 3" in capsys.readouterr().err
    last = next(pod["name"] for pod in ask("pods") if pod["group"] == "workers")
    assert main(["scale", "workers", "-1", "--remove", last, "--yes", "--wait"]) == 0
    capsys.readouterr()
    assert last not in {pod["name"] for pod in ask("pods") if pod["phase"] == "Running"}


def test_the_log_of_a_pod_can_be_read(
    cluster: LocalBackend, ask: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    head = ask("pods")[0]["name"]
    assert main(["logs", head, "--lines", "50"]) == 0
    log = capsys.readouterr().out
    assert 0 < len(log.splitlines()) <= 50
    assert "state-dump" not in log


def test_watching_prints_a_line_at_each_change(cluster: LocalBackend) -> None:
    argv = [sys.executable, "-m", "cockpit", "pods", "--watch"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        try:
            assert watch.stdout is not None
            states = map(json.loads, watch.stdout)
            assert any(len(state["pods"]) >= 3 for state in states)
            watch.send_signal(signal.SIGINT)
            assert watch.wait(60) == 130
        finally:
            watch.kill()  # or leaving the block would wait for it without an end


def test_preflight_finds_a_missing_module_and_a_storage_that_cannot_be_written(
    cluster: LocalBackend, ask: Any, tmp_path: Path
) -> None:
    job = ("preflight", "checkpointed", "--workers=2", f"--set=storage_path={tmp_path}")
    found = {check["name"]: check for check in ask(*job)}
    assert {check["state"] for check in found.values()} <= {"ok", "warning"}, found
    assert found["storage"]["found"] == f"{tmp_path} is shared by 3 pods"
    assert found["ranks on the head"]["state"] == found["room"]["state"] == "ok"
    assert list(tmp_path.iterdir()) == []
    found = {
        check["name"]: check
        for check in ask(
            *("preflight", "--module=nothing_of_this_name", "--storage=/proc/nothing"), code=1
        )
    }
    assert found["module"]["state"] == found["storage"]["state"] == "failed"
    assert found["module"]["found"].startswith("nothing_of_this_name is missing in ")
    assert len(found["module"]["pods"]) == len(found["storage"]["pods"]) == 3


def test_doctor_finds_the_cluster_well(ask: Any) -> None:
    checks = {check["name"]: check for check in ask("doctor")}
    assert checks["cluster verbs"]["ok"]
    assert checks["dashboard of verbs"]["found"].endswith("nodes")
