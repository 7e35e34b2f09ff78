"""The verbs that read KubeRay's History Server, and a recording of what it has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.cli.main import main
from cockpit.config import paths
from cockpit.recorder.reading.library import Library
from tests.sources.history_server import OLDER, SESSION, Server, Stored, job, serving
from tests.sources.test_history_server import RUN, stored

AT = ("--cluster", "demo", "-n", "ml")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TZ", "UTC")
    older = Stored(created_s=1_786_000_000, jobs=[job("job-0", "FAILED", "no space left")])
    with serving(**{SESSION: stored(owner="nightly"), OLDER: older}) as server:
        monkeypatch.setenv("COCKPIT_HISTORY_SERVER", server.url)
        yield server


def test_sessions_of_deleted_clusters_are_listed(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.live = [Stored(cluster="alive")]
    assert main(["clusters", "--history", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["session"]) for row in rows] == [("demo", SESSION), ("demo", OLDER)]
    assert rows[0]["owner"] == "rayjob/nightly"
    assert main(["clusters", "--history", "-n", "web"]) == 0
    assert "no session of a deleted cluster" in capsys.readouterr().out


def test_why_explains_the_newest_run_with_the_log_of_its_rank(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", "--history", *AT]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(
        f"Session {SESSION} of RayCluster demo in namespace ml, from the History Server\n"
    )
    assert "Run digits (ERRORED)" in shown
    assert "CUDA error: an illegal memory access" in shown.partition("Also reported")[0]
    assert "node lost" not in shown, "the nodes died when the cluster was deleted"
    assert f"cockpit recordings import -n ml --cluster demo {SESSION}" in shown

    assert main(["why", "digits", "--history", "--fail", "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["of"], found["session"], found["is_over"]) == ("digits", SESSION, True)
    assert found["cluster"] == "namespace ml, RayCluster demo"
    assert len(found["causes"]) == 1


def test_why_without_telemetry_lists_the_jobs(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", "--history", "--session", OLDER, *AT]) == 0
    shown = capsys.readouterr().out
    assert "It has no telemetry of a run." in shown
    assert "job-0" in shown
    assert "no space left" in shown


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (("why", "nothing", "--history"), "There is no run or job 'nothing' in it"),
        (("why", "--history", "--recorded"), "cannot be combined"),
        (("why", "--session", SESSION), "--session is for --history"),
        (("why", "--history", "--cluster", "third"), "has no session third"),
        (("recordings", "import", OLDER), "has no run"),
    ],
)
def test_what_is_not_there_is_an_error(
    argv: tuple[str, ...], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(argv)) == 2
    assert reported in capsys.readouterr().err


def test_without_a_server_the_error_describes_how_to_reach_one(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COCKPIT_HISTORY_SERVER")
    assert main(["why", "--history"]) == 2
    assert "kubectl port-forward service/historyserver 30080" in capsys.readouterr().err
    monkeypatch.setenv("COCKPIT_HISTORY_SERVER", "http://127.0.0.1:9")
    assert main(["clusters", "--history"]) == 3


@pytest.mark.usefixtures("server")
def test_imported_session_is_a_recording_that_verbs_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["recordings", "import", *AT, "--dry-run"]) == 0
    assert "Record run digits: " in capsys.readouterr().err
    assert not Library(paths.state_dir()).path_of(RUN).exists()
    assert main(["recordings", "import", *AT, "-o", "json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["run"], row["state"], row["steps"]) == ("digits", "ERRORED", 39)
    assert (row["tags"], row["trouble"]) == (["history-server"], "")
    assert Library(paths.state_dir()).path_of(RUN).exists()

    assert main(["why", "digits", "--recorded"]) == 0
    shown = capsys.readouterr().out
    assert "namespace ml, RayCluster demo" in shown
    assert "CUDA error: an illegal memory access" in shown
    assert main(["report", "digits", "--out", "report.html"]) == 0
    assert "ERRORED" in Path("report.html").read_text()

    assert main(["recordings", "import", *AT]) == 0
    printed = capsys.readouterr()
    assert "is recorded already" in printed.err
    assert "No new runs." in printed.out
