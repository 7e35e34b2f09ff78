"""`cockpit up --on hosts` and the selection of a cluster by its hosts, without a connection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpit.actions import audit
from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.description import Hosts
from cockpit.backends.ssh.lifecycle import Removed
from cockpit.cli.main import main
from cockpit.model.error import CockpitError
from tests.local_cluster import separate_state

HOSTS = """
cluster = "lab"
[replicas]
gpu = 1
[[host]]
name = "head"
address = "10.0.0.1"
head = true
[[host]]
name = "gpu-1"
address = "10.0.0.2"
group = "gpu"
[[host]]
name = "gpu-2"
address = "10.0.0.3"
group = "gpu"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "hosts.toml"
    path.write_text(HOSTS)
    return str(path)


@pytest.mark.parametrize("how", [["--on", "hosts", "FILE"], ["--hosts", "FILE"]])
def test_dry_run_describes_what_is_started(
    file: str, how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", *(file if word == "FILE" else word for word in how), "--dry-run"]) == 0
    assert "Start cluster lab: a head on head and 1 of 2 hosts in group gpu." in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["up", "--on", "hosts"], "needs a file"),
        (["up", "--on", "local", "FILE"], "is only for --on hosts"),
        (["up", "--on", "hosts", "FILE", "--gpu"], "--gpu is for --on kubernetes"),
        (["up", "--on", "hosts", "FILE", "--size", "3"], "--size is not for --on hosts"),
        (["up", "--on", "hosts", "FILE", "--no-wait"], "--no-wait"),
        (["down", "--on", "hosts", "FILE", "--keep-claim"], "--keep-claim is for"),
        (["up", "--on", "local", "--hosts", "FILE"], "cannot be combined"),
        (["pods", "--local", "--hosts", "FILE"], "--local and --hosts at once"),
        (["pods", "--hosts", "none.toml"], "cannot be read"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_reached(
    file: str, words: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([file if word == "FILE" else word for word in words]) == 2
    assert what in capsys.readouterr().err


def test_down_asks_first(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--on", "hosts", file, "--dry-run"]) == 0
    printed = capsys.readouterr().err
    assert f"cluster lab on the hosts of {file}" in printed
    assert "Delete cluster lab on 3 hosts: its pods, every run on them, and its files." in printed


@pytest.mark.parametrize("fails", [True, False])
def test_up_and_down_are_in_the_audit_log_also_if_they_fail(
    file: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def changed(hosts: Hosts, *rest: object) -> Removed:
        if fails:
            raise CockpitError("Cluster lab is not removed from gpu-2.")
        return Removed(3, len(hosts.hosts))

    monkeypatch.setattr(lifecycle, "up", changed)
    monkeypatch.setattr(lifecycle, "down", changed)
    with separate_state():
        for verb in ("up", "down"):
            assert main([verb, "--on", "hosts", file, "--yes"]) == int(fails)
        lines = [json.loads(line) for line in audit.path().read_text().splitlines()]
    assert [(line["action"], line["target"], line["result"]) for line in lines] == [
        (verb, "lab", "failed" if fails else "done") for verb in ("up", "down")
    ]
    assert lines[0]["after"] == "a head on head and 1 of 2 hosts in group gpu"
    assert lines[1]["before"] == ("" if fails else "3 processes")
    assert all(("gpu-2" in line["error"]) == fails for line in lines)
