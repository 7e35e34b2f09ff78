"""Bad input and faults on one real cluster with a single CPU for workers."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.local import GroupSpec, LocalBackend, status
from cockpit.backends.local.pods.process import is_alive
from tests.faults.command import Said, nothing_left, run, running, uid_of
from tests.local_cluster import running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.ray]

NAME = "faults"
HOSTILE = r"""
print("\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m \x9b5mblink\u202eno \x1bP1;2|dcs\x1b\\end")
print("x" * 1_000_000 + "\x1b[8m")
print("the last line")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBackend]:
    with running_cluster(NAME, [GroupSpec("workers", replicas=1, min=0, max=1)]) as backend:
        yield backend


@pytest.fixture(autouse=True)
def _on_it(cluster: LocalBackend) -> None:
    """Every test here, in the order of the file: the last one ends the cluster."""


def ask(*argv: str) -> Any:
    """The answer; again while a source does not answer in time (3), as on a busy machine."""
    done = until(lambda: (done := run(*argv, "-o", "json")).code != 3 and done)
    assert done.code == 0, done.err
    return json.loads(done.out)


def until(condition: Callable[[], Any], timeout_s: float = 240.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.2)
    return found


@pytest.mark.nightly  # what the run reports: tests/training/test_on_ray.py
@pytest.mark.timed
def test_a_loss_that_is_not_a_number_fails_the_job_and_the_run_reports_why(tmp_path: Path) -> None:
    settings = ("learning_rate=1e38", "epochs=50", f"storage_path={tmp_path}")
    flags = [f"--set={setting}" for setting in settings]
    done = run("launch", "checkpointed", "--workers=1", *flags, "--follow", timeout_s=120)
    assert done.code == 1, done.err
    assert "Traceback" not in done.err
    assert done.err.splitlines()[-1].endswith("is FAILED.")
    job = done.out.splitlines()[0]
    (run_row,) = until(lambda: [r for r in ask("runs") if r["message"]], 20)
    assert run_row["submission_id"] == job
    assert "not finite" in run_row["message"] or "became" in run_row["message"]
    (row,) = [row for row in ask("jobs") if row["name"] == job]
    assert row["status"] == "FAILED"


def test_a_run_that_asks_for_more_than_there_is_reports_what_is_missing(tmp_path: Path) -> None:
    flags = ["--workers=2", f"--set=storage_path={tmp_path}", "--no-preflight"]
    job = run("launch", "checkpointed", *flags).out.strip()

    def waiting() -> Any:
        rows = [row for row in ask("runs") if row["submission_id"] == job and row["message"]]
        return rows and rows[0]

    row = until(waiting)
    assert row["state"] == "SCHEDULING"
    assert row["message"] == "waits for resources: 2 workers need 2 CPU and the cluster has 1"
    until(lambda: row["message"] in run("status").out)  # its sources may not have answered in time
    assert run("stop", job, "--yes").code == 0
    until(lambda: [j for j in ask("jobs") if j["name"] == job and j["status"] == "STOPPED"])


def script(text: str, directory: Path, *more: str) -> Said:
    """Launch what is in `directory` and follow it."""
    (directory / "job.py").write_text(text, encoding="utf-8")
    here = Path.cwd()
    os.chdir(directory)
    try:
        command = run("launch", "--follow", "--", "python", *more, timeout_s=600)
    finally:
        os.chdir(here)
    return command


def test_a_script_that_is_not_there_fails_with_its_name(tmp_path: Path) -> None:
    done = script("", tmp_path, "nothere.py")
    assert done.code == 1
    assert "nothere.py" in done.out
    assert "No such file" in done.out
    assert "FAILED" in done.err


def test_escape_sequences_of_a_job_do_not_reach_the_terminal(tmp_path: Path) -> None:
    done = script(HOSTILE, tmp_path, "job.py")
    assert done.code == 0, done.err
    job = done.out.splitlines()[0]
    for text in (done.out, run("logs", job).out):
        lines = text.splitlines()
        assert lines[-1] == "the last line"
        assert "red blinkno end" in lines
        assert max(map(len, lines)) < 100_000
        assert not [c for c in text if not c.isprintable() and c != "\n"]
    (event,) = [row for row in ask("jobs") if row["name"] == job]
    assert event["status"] == "SUCCEEDED"


@pytest.mark.parametrize("verb", ["stop", "delete", "resume", "logs"])
def test_a_job_that_does_not_exist_is_a_sentence(verb: str) -> None:
    done = run(verb, "checkpointet-1", *(["--yes"] if verb != "logs" else []))
    done.is_a_sentence(2, "checkpointet-1")


def test_without_its_operator_the_pods_continue_and_a_change_suggests_what_to_do() -> None:
    cluster = status(NAME)
    assert cluster is not None
    assert cluster.status is not None
    os.kill(cluster.status.operator.pid, signal.SIGKILL)
    until(lambda: not status_of().operator_alive)
    (row,) = ask("local", "status")
    assert row["health"] == "degraded"
    assert "operator not running" in row["message"]
    run("scale", "workers", "0", "--yes").is_a_sentence(3, f"cockpit local down {NAME}", plan=3)
    assert [pod["phase"] for pod in ask("status")["pods"]].count("Running") == 2
    assert [pod["phase"] for pod in ask("pods")].count("Running") == 2


def test_a_dead_cluster_is_shown_as_it_is_and_taken_down() -> None:
    """All processes of the head are killed, without an operator that replaces it."""
    uid = uid_of(NAME)
    head = next(item for item in status_pods() if item.pod.node_type == "head")
    with running("pods", "--watch") as watch:
        watch.saw('"Running"')
        assert head.process is not None
        for pid in of_session(head.process.pid):
            os.kill(pid, signal.SIGKILL)
        watch.saw('"Failed"', 20)
        watch.signal(signal.SIGINT)
        assert watch.ends(10) == 130
    until(lambda: not is_alive(head.process))
    whole = ask("status")
    assert whole["cluster"]["health"] == "down"
    assert not {source["name"]: source["ok"] for source in whole["sources"]}["ray"]
    run("jobs").is_a_sentence(3)
    run("launch", "checkpointed").is_a_sentence(3, f"cockpit local down {NAME}", plan=2)
    run("local", "up", NAME).is_a_sentence(1, f"cockpit local down {NAME}")
    with running("local", "down", NAME, "--yes") as down:
        down.saw("Delete local cluster")
        down.signal(signal.SIGINT)
        assert down.ends(60) == 130
    nothing_left(NAME, uid)
    assert run("local", "status").out == "No local cluster.\n"


def status_of() -> Any:
    return status(NAME)


def status_pods() -> Any:
    return status_of().status.pods


def of_session(session: int) -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                stat = (process / "stat").read_text()
            except OSError:
                continue
            if int(stat[stat.rindex(")") + 2 :].split()[3]) == session:
                found.append(int(process.name))
    return found
