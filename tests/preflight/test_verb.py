"""`cockpit preflight` on pods whose commands run here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.actions import audit
from cockpit.actions.jobs import JobActions
from cockpit.cli.main import main
from cockpit.cli.options import connect
from cockpit.model.cluster import Pod
from cockpit.preflight.finding import failed
from cockpit.preflight.network import Pair
from tests.preflight.pods import HEAD, ONE, TWO, CannedPods, PodsHere, present, target


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PodsHere:
    made = PodsHere(present(HEAD, ONE, TWO), homes=tmp_path)
    monkeypatch.setattr(connect, "backend", lambda args, **how: made)
    return made


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found = json.loads(capsys.readouterr().out)
    assert all(set(row) == {"name", "state", "found", "fix", "pods"} for row in found)
    return {row["name"]: row for row in found}


def test_job_whose_modules_and_storage_are_there_passes(
    backend: PodsHere, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = tmp_path / "shared"
    storage.mkdir()
    argv = ["preflight", "checkpointed", "--workers", "2", f"--set=storage_path={storage}"]
    assert main([*argv, "-o", "json"]) == 0
    found = rows(capsys)
    assert found["storage"]["state"] == "ok"
    assert found["storage"]["found"] == f"{storage} is shared by 3 pods"
    assert found["modules"]["state"] == found["room"]["state"] == "ok"
    assert main(argv) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["NAME", "STATE", "FOUND", "FIX"]


def test_missing_module_and_home_as_storage_fail(
    backend: PodsHere, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["preflight", "checkpointed", "--module", "nothing_of_this_name", "-o", "json"]
    assert main(argv) == 1
    found = rows(capsys)
    assert found["module"]["state"] == found["storage"]["state"] == "failed"
    assert found["module"]["pods"] == ["head", "one", "two"]
    assert "~/ray_results is not shared" in found["storage"]["found"]


def test_script_of_a_command_is_searched_for_imports(
    backend: PodsHere,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "train.py").write_text("import torch, nothing_of_this_name\n")
    monkeypatch.chdir(tmp_path)
    assert main(["preflight", "-o", "json", "--", "python", "train.py"]) == 1
    assert rows(capsys)["module"]["found"].startswith("nothing_of_this_name is missing in")


def test_warnings_and_read_only_mode_do_not_fail(
    backend: PodsHere, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--read-only", "preflight", "--storage", str(tmp_path), "-o", "json"]
    assert main(argv) == 0
    found = rows(capsys)
    assert found["storage"]["state"] == "skipped"
    assert found["ranks on the head"]["state"] == "skipped"


def test_measurement_of_the_network_obeys_read_only_mode_and_is_audited(
    backend: PodsHere, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It slows the runs on the pods, as a profile does."""
    asked: list[str] = []

    async def measured(_: object, pods: Sequence[Pod], facts: object) -> list[Pair]:
        asked.extend(pod.name for pod in pods)
        return []

    monkeypatch.setattr("cockpit.preflight.preflight.measure", measured)
    monkeypatch.setattr("cockpit.preflight.preflight._has_torch", bool)
    assert main(["--read-only", "preflight", "--network"]) == 4
    assert "--network slows the runs on the pods" in capsys.readouterr().err
    assert not asked
    assert not audit.path().exists()
    assert main(["preflight", "--network"]) in (0, 1)
    assert len(asked) == 3
    [line] = map(json.loads, audit.path().read_text().splitlines())
    assert (line["action"], line["after"]) == ("preflight", "all-reduce between pods")


async def test_files_written_to_storage_are_in_the_audit_log_and_reads_are_not() -> None:
    backend = CannedPods()
    actions = JobActions(backend)
    settings = {"workers": "2", "storage_path": "/mnt/shared"}
    wanted = actions.demand(actions.order("checkpointed", settings).spec)
    assert (wanted.workers, wanted.storage) == (2, "/mnt/shared")
    await actions.preflight(target(), wanted, timeout_s=5.0, read_only=True)
    assert not audit.path().exists()
    found = await actions.preflight(target(), wanted, timeout_s=5.0)
    assert not failed(found), found
    [line] = map(json.loads, audit.path().read_text().splitlines())
    assert (line["action"], line["after"]) == ("preflight", "a file in /mnt/shared, and removed")


def test_wrong_flags_are_refused(backend: PodsHere, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--group", "worker"]) == 2
    assert "did you mean workers" in capsys.readouterr().err
    assert main(["preflight", "--timeout", "0"]) == 2
    assert main(["preflight", "no-such-job"]) == 2
    assert main(["preflight", "--workers", "2"]) == 2
    assert "--workers" in capsys.readouterr().err


def test_new_cluster_is_checked_with_the_flags_of_the_launch(
    backend: PodsHere, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.new = replace(backend.new, refused="rayjobs.ray.io is forbidden")
    argv = ["preflight", "checkpointed", "--workers=2", "--own-cluster", "--queue=team-a"]
    assert main([*argv, "-o", "json"]) == 1
    found = rows(capsys)
    assert found["RayJob"]["found"] == "The API server refuses it: rayjobs.ray.io is forbidden"
    assert found["room"]["state"] == "ok"
    assert not any(call[0] == "exec" for call in backend.asked)


@pytest.mark.parametrize(
    "argv",
    [["--own-cluster"], ["ddp", "--queue=a"], ["ddp", "--own-cluster", "--network"]],
    ids=" ".join,
)
def test_flags_of_pods_and_of_a_new_cluster_are_told_apart(
    backend: PodsHere, argv: list[str]
) -> None:
    assert main(["preflight", *argv]) == 2
