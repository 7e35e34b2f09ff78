"""The files of the package besides its code, and the formats in the changelog."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import yaml

from cockpit.recorder.file import VERSION as RECORDING
from training.checkpoint.manifest import FORMAT as MANIFEST
from training.telemetry.wire import VERSION as WIRE

ROOT = Path(__file__).parent.parent


def test_package_metadata_names_license_and_authors() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE"]
    assert project["authors"] == [{"name": "The cockpit authors"}]
    assert "Typing :: Typed" in project["classifiers"]
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_both_packages_are_marked_as_typed() -> None:
    assert (ROOT / "cockpit/py.typed").exists()
    assert (ROOT / "training/py.typed").exists()


def test_changelog_states_current_format_versions() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert f"| telemetry stream (the wire) | {WIRE} |" in text
    assert f"| recording | {RECORDING} |" in text
    assert f"| checkpoint manifest | {MANIFEST} |" in text


def test_ci_workflow_runs_the_lanes_of_ci_run() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = workflow["jobs"]["lanes"]["steps"]
    commands = [(step["run"], step.get("if")) for step in steps if "run" in step]
    assert (".ci/run", None) in commands
    nightly, when = commands[-1]
    assert nightly.endswith(".ci/task test-nightly")
    assert when == "github.event_name == 'schedule'"


def test_ci_saves_what_it_built_also_when_tests_fail() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = workflow["jobs"]["lanes"]["steps"]
    [restore, save] = [step for step in steps if "actions/cache" in step.get("uses", "")]
    assert save["uses"].startswith("actions/cache/save@"), "actions/cache saves only on success"
    assert save["with"]["path"] == restore["with"]["path"]
    assert "!cancelled()" in save["if"]
    [reports] = [step["env"]["REPORTS"] for step in steps if step.get("run") == ".ci/run"]
    assert f"hashFiles('{reports}/quick.xml')" in save["if"], "the build was complete"


def test_push_does_not_cancel_the_nightly_run() -> None:
    """Both are of the branch main."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert "github.event_name" in workflow["concurrency"]["group"]


def test_task_runner_lists_documented_tasks() -> None:
    listed = subprocess.run(
        [ROOT / ".ci/task"], capture_output=True, text=True, check=False
    ).stderr.splitlines()[1:]
    page = (ROOT / "docs/contributing.md").read_text()
    assert {"lint", "test", "test-slow", "bench", "docs-pictures"} <= {n.strip() for n in listed}
    for name in listed:
        assert f"| `{name.strip()}` |" in page


def test_ci_runs_the_test_command_of_the_readme() -> None:
    """It looks for the command below a heading, which an edit of the README may change."""
    (line,) = [one for one in (ROOT / ".ci/run").read_text().splitlines() if "command=$(sed" in one]
    script = f'{line}\nprintf %s "$command"'
    found = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.endswith("&& .venv/bin/pytest")
    assert found.stdout.count("\n") == 0
