"""`cockpit drill run smoke` as a separate process, on a real local cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cockpit.actions import audit
from cockpit.backends.local import GroupSpec, LocalBackend
from cockpit.cli.main import main
from cockpit.config import paths
from cockpit.drills.engine.journal import Journal
from cockpit.recorder.drills import DrillHistory
from tests.local_cluster import LIGHT_FLAGS, running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timed]


@pytest.fixture  # a timed test that runs again needs a history of its own
def cluster() -> Iterator[LocalBackend]:
    with running_cluster("smoke", [GroupSpec("workers", replicas=2, min=0, max=3)]) as backend:
        yield backend


def test_the_smoke_game_day_passes_and_leaves_nothing(
    cluster: LocalBackend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "smoke.xml"
    command = [
        *(sys.executable, "-m", "cockpit", "drill", "run", "smoke", "--yes", "--local"),
        *LIGHT_FLAGS,
        f"--set=storage_path={tmp_path / 'results'}",
        *("-o", "json", "--junit", str(junit)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr + done.stdout

    day = json.loads(done.stdout)
    assert day["passed"]
    assert [step["ok"] for step in day["steps"]] == [True] * 5
    drills = [step["record"] for step in day["steps"] if step["kind"] == "drill"]
    assert [record["fault"] for record in drills] == ["pod-kill", "rank-kill"]
    for record in drills:
        assert record["verdict"] == "passed"
        (hit,) = record["drills"]
        assert hit["recovered"]
        assert hit["steps_lost"] is not None
        assert hit["workload"] == "checkpointed"
        reached = [instant["milestone"] for instant in hit["milestones"]]
        assert {"injected", "training stopped", "attempt ended", "first new step"} <= set(reached)
        assert {p["when"] for p in record["probes"]} == {"before", "after"}

    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "0", "0")
    assert "first new step" in (suite.findall("testcase")[2].findtext("system-out") or "")

    reported = done.stderr
    assert "step 5 passed" in reported
    assert "recovering" in reported

    # Nothing is left: no undo, no claim on the cluster, no job; and all of it was noted.
    assert Journal().entries() == []
    leases = paths.state_dir() / "drills" / "leases"
    assert [lease.read_text() for lease in leases.iterdir()] == ["{}"]
    assert main(["jobs", "-o", "json", "--local"]) == 0
    assert {job["status"] for job in json.loads(capsys.readouterr().out)} == {"STOPPED"}
    recorded = [json.loads(line)["action"] for line in audit.path().read_text().splitlines()]
    assert "drill a node is lost" in recorded
    assert recorded[-1] == "stop"

    # It can be shown afterwards, and reported as a unit.
    assert [one.record.fault for one in DrillHistory().find(day["id"])] == ["pod-kill", "rank-kill"]
    assert all(one.curves for one in DrillHistory().find(day["id"]))
    assert main(["drill", "history", "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    report = tmp_path / "day.html"
    assert main(["drill", "report", day["id"], "--out", str(report)]) == 0
    text = report.read_text()
    assert "2 of 2 drills passed." in text
    assert "<svg" in text
    assert main(["drill", "show", "last", "-o", "json"]) == 0


def test_unavailable_fault_is_refused_before_any_change(
    cluster: LocalBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = len(DrillHistory().all()[0])
    assert main(["drill", "run", "container-kill", "--yes", "--local"]) == 2
    assert "Fault container-kill is not available on this cluster." in capsys.readouterr().err
    assert main(["drill", "run", "pod-kill", "--local"]) == 2, "nobody is there to be asked"
    assert main(["--read-only", "drill", "run", "pod-kill", "--yes", "--local"]) == 4
    assert main(["drill", "run", "pod-kill", "--yes", "--local", "--junit", "/no/such/x"]) == 2
    assert main(["drill", "plan", "pod-kill", "--local", "--target", "nobody"]) == 2
    capsys.readouterr()
    assert main(["drill", "plan", "pod-kill", "--local", "--seed", "3"]) == 0
    first = capsys.readouterr().err
    assert main(["drill", "plan", "pod-kill", "--local", "--seed", "3"]) == 0
    assert capsys.readouterr().err == first, "the same seed hits the same"
    assert len(DrillHistory().all()[0]) == kept
    assert main(["drill", "list", "-o", "json", "--local"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["pod-kill"]["available"]
    assert not rows["container-kill"]["available"]
    assert "pod-kill has the same effect" in rows["container-kill"]["why_not"]
    assert rows["smoke"]["kind"] == "game day"
