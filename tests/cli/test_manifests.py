"""`cockpit manifests`: list, show and write the files that come with cockpit."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from cockpit.cli.main import main
from cockpit.cli.shell.names import names
from cockpit.config import bundled

ROOT = Path(__file__).parents[2]


def test_list_has_each_kind_of_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    listed = {row["name"]: row for row in rows}
    assert {
        "drills/cronjob.yaml",
        "image/Dockerfile",
        "image/build.sh",
        "kubernetes/cronjob/raycronjob.yaml",
        "kubernetes/jobs/rayjob.yaml",
        "kubernetes/rendered/cpu.yaml",
        "monitoring/rules.yml",
        "slurm/cluster.sbatch",
        "vm/lambda.toml",
    } <= set(listed)
    for row in rows:
        assert Path(row["path"]).stat().st_size == row["size_bytes"]


@pytest.mark.parametrize("name", ["vm/hosts.toml", "manifests/vm/hosts.toml"])
def test_file_is_shown_by_its_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifests", "show", name]) == 0
    assert capsys.readouterr().out == (ROOT / "manifests/vm/hosts.toml").read_text()


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (("show",), "Which manifest?"),
        (("show", "../pyproject.toml"), "There is no manifest '../pyproject.toml'"),
        (("show", "vm"), "There is no manifest 'vm'"),
        (("list", "vm/hosts.toml"), "takes no name"),
    ],
)
def test_other_names_are_refused(
    argv: tuple[str, ...], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["manifests", *argv]) == 2
    assert reported in capsys.readouterr().err


def test_directory_with_files_is_not_written_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").touch()
    assert main(["manifests", "write", str(tmp_path)]) == 2
    assert "is not an empty directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_directory_that_cannot_be_created_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["manifests", "write", str(tmp_path / "file" / "below")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_missing_manifests_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bundled, "PACKAGE", tmp_path / "cockpit")
    assert main(["manifests"]) == 1
    assert "Install cockpit again" in capsys.readouterr().err


def test_names_are_completed() -> None:

    found = names(("manifests",), argparse.Namespace(typed="", verb="manifests"))
    assert "kubernetes/base/rbac.yaml" in found
