"""`cockpit drill` without a cluster: refusals, history, interrupted drills."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.cli.main import main
from cockpit.drills.engine.journal import Journal
from cockpit.drills.faults.catalog import NAMES
from cockpit.drills.faults.fault import Undo
from cockpit.model.cluster import ClusterRef
from cockpit.model.drill import KeptDrill, Verdict
from cockpit.recorder.drills import DrillHistory
from tests.recorder.test_drills import kept, record

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def read(capsys: Capture, *argv: str) -> Any:
    assert main(["drill", *argv, "-o", "json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_the_faults_are_listed_without_a_cluster_too(capsys: Capture) -> None:
    rows = read(capsys, "list")
    assert [row["name"] for row in rows if row["kind"] == "fault"] == list(NAMES)
    assert {row["available"] for row in rows if row["kind"] == "fault"} == {None}
    assert main(["drill", "list"]) == 0
    text = capsys.readouterr()
    assert "Which faults are available is therefore unknown." in text.err
    assert "smoke" in text.out


def test_one_fault_is_listed_with_its_parameters(capsys: Capture) -> None:
    assert main(["drill", "list", "rank-freeze"]) == 0
    out = capsys.readouterr().out
    assert "for_s" in out
    assert "Needs: exec in the pod." in out
    assert main(["drill", "list", "nothing-like-it"]) == 0
    assert "Nothing has 'nothing-like-it' in its name." in capsys.readouterr().out


def test_a_cluster_that_was_named_and_is_not_there_is_an_error(capsys: Capture) -> None:
    assert main(["drill", "list", "--local", "--cluster", "gone"]) == 3
    assert "gone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["run"], "cockpit drill run needs a fault, a game day or a file."),
        (["plan"], "cockpit drill plan needs a fault, a game day or a file."),
        (["run", "smoek"], "did you mean smoke?"),
        (["run", "pod-kil"], "did you mean pod-kill?"),
        (["run", "no/such.toml"], "no/such.toml cannot be read."),
        (["run", "pod-delete", "--set", "grace"], "is not KEY=VALUE"),
        (["run", "pod-kill", "--for", "3"], "has no parameter for_s"),
        (["run", "pod-kill", "--probe", "quick"], "'quick' is not a probe."),
        (["run", "pod-kill", "--junit", "/no/such/dir/x.xml"], "There is no directory"),
        (["run", "smoke", "--count", "2", "--seed", "3"], "--count, --seed are for a fault"),
        (["run", "smoke", "--set", "epochz=2"], "epochz"),
        (["list", "-o", "html"], "does not print html"),
        (["report", "x", "-o", "jsonl"], "does not print jsonl"),
        (["show"], "Which drill to show?"),
        (["report", "last"], "There is no drill 'last'"),
        (["undo", "drill-none"], "left nothing to undo"),
    ],
)
def test_invalid_drill_arguments_are_usage_errors(
    argv: list[str], said: str, capsys: Capture
) -> None:
    assert main(["drill", *argv]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.strip().count("\n") <= 2


def test_a_file_with_an_error_is_refused_with_its_place(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "day.toml"
    path.write_text('[[step]]\ndrill = "pod-kil"\n')
    assert main(["drill", "run", str(path), "--yes"]) == 2
    assert f"{path}:2:1: There is no fault 'pod-kil'" in capsys.readouterr().err


def test_the_history_is_filtered_shown_and_compared(capsys: Capture) -> None:
    history = DrillHistory()
    assert main(["drill", "history"]) == 0
    assert "No drill is kept yet." in capsys.readouterr().out
    for number in range(1, 6):
        history.keep(kept(number, first_step_s=10.0 + number % 2))
    other = replace(record(6), asked=("rank-kill",), verdict=Verdict.FAILED)
    history.keep(KeptDrill(other))
    history.keep(kept(9, first_step_s=40.0))

    rows = read(capsys, "history")
    assert len(rows) == 7
    assert [row["fault"] for row in read(capsys, "history", "rank-kill")] == ["rank-kill"]
    assert len(read(capsys, "history", "--limit", "2")) == 2
    for limit in ("0", "-1"):
        assert main(["drill", "history", "--limit", limit]) == 2
        assert "--limit must be 1 or more." in capsys.readouterr().err
    slow = {one["name"]: one for one in rows[-1]["compared"]}["first new step"]
    assert (slow["earlier"], slow["regression"]) == (5, True)

    shown = read(capsys, "show", "a9")
    assert shown["verdict"] == "passed"
    assert shown["drills"][0]["first_step_s"] == 40.0
    assert shown["drills"][0]["steps_lost"] == 12
    assert main(["drill", "show", "last"]) == 0
    out = capsys.readouterr().out
    assert "first new step" in out
    assert "REGRESSION" in out
    assert "PASSED: why" in out


def test_a_file_of_the_history_that_is_torn_is_reported_and_the_rest_is_listed(
    capsys: Capture,
) -> None:
    history = DrillHistory()
    history.keep(kept())
    (history.directory / "0-torn.json").write_text("{")
    assert main(["drill", "history"]) == 0
    text = capsys.readouterr()
    assert "0-torn.json cannot be read" in text.err
    assert "drill-a1" in text.out


def test_a_report_is_written_as_html_markdown_and_json(tmp_path: Path, capsys: Capture) -> None:
    DrillHistory().keep(kept())
    for ending, start in (("html", "<!doctype html>"), ("md", "# Drill"), ("json", "{")):
        target = tmp_path / f"drill.{ending}"
        assert main(["drill", "report", "last", "--out", str(target)]) == 0
        assert target.read_text().startswith(start)
    capsys.readouterr()
    assert main(["drill", "report", "a1", "-o", "md", "--out", "-"]) == 0
    assert capsys.readouterr().out.startswith("# Drill pod-kill")


LEFT = """
import sys
from cockpit.drills.faults.fault import Undo
from cockpit.drills.engine.journal import Journal
from cockpit.model.cluster import ClusterRef
undo = (Undo("exec", "let it run again", pod="p", argv=("thaw",)),)
Journal().write("drill-1.1", "rank-freeze", "p", ClusterRef("local", "gone"), undo, 1.0)
"""


def test_leftover_effect_of_a_deleted_cluster_is_forgotten(
    capsys: Capture,
) -> None:
    assert main(["drill", "undo"]) == 0
    assert "There is nothing to undo." in capsys.readouterr().out
    subprocess.run([sys.executable, "-c", LEFT], check=True)
    assert main(["drill", "undo", "--dry-run"]) == 0
    assert "Drill drill-1.1 left rank-freeze of p" in capsys.readouterr().err
    assert main(["drill", "undo"]) == 2, "nobody is there to be asked"
    assert main(["--read-only", "drill", "undo", "--yes"]) == 4
    assert len(Journal().entries()) == 1
    capsys.readouterr()
    assert main(["drill", "undo", "drill-1", "--yes", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["undone"]
    assert "ended with its cluster" in row["message"]
    assert Journal().entries() == []


def test_a_drill_that_continues_is_not_undone_by_another(capsys: Capture) -> None:
    undo = (Undo("exec", "let it run again", pod="p", argv=("thaw",)),)
    Journal().write("drill-1.1", "rank-freeze", "p", ClusterRef("local", "x"), undo, 1.0)
    assert main(["drill", "undo", "drill-1", "--yes"]) == 2
    assert "is running, in process" in capsys.readouterr().err
    assert main(["drill", "undo"]) == 0
    assert "There is nothing to undo." in capsys.readouterr().out
    assert len(Journal().entries()) == 1


@pytest.mark.parametrize("which", ["drill-1", "--all"])
def test_undo_that_a_living_cockpit_has_given_up_is_undone(which: str, capsys: Capture) -> None:
    undo = (Undo("exec", "let it run again", pod="p", argv=("thaw",)),)
    Journal().write("drill-1.1", "rank-freeze", "p", ClusterRef("local", "x"), undo, 1.0)
    Journal().give_up("drill-1.1")
    assert main(["drill", "undo", "--dry-run"]) == 0
    assert "Drill drill-1.1 left rank-freeze of p" in capsys.readouterr().err
    assert main(["drill", "undo", which, "--yes"]) == 0
    assert Journal().entries() == []


def test_guard_of_a_game_day_is_checked_before_a_cluster_is_reached(
    capsys: Capture, tmp_path: Path
) -> None:
    file = tmp_path / "day.toml"
    file.write_text("[guard]\nhang = 'reboot'\n[[step]]\nwait_s = 1\n")
    assert main(["drill", "run", str(file)]) == 2
    assert "[guard] in " in capsys.readouterr().err
