"""`cockpit up --on hosts` and the selection of a cluster by its hosts, without a connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.cli.main import main

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
        (["up", "--on", "local", "FILE"], "is for --on hosts"),
        (["up", "--on", "hosts", "FILE", "--gpu"], "--gpu is for --on kubernetes"),
        (["up", "--on", "hosts", "FILE", "--size", "3"], "--size is not for --on hosts"),
        (["up", "--on", "hosts", "FILE", "--no-wait"], "--no-wait"),
        (["down", "--on", "hosts", "FILE", "--keep-claim"], "--keep-claim is for"),
        (["up", "--on", "local", "--hosts", "FILE"], "contradict each other"),
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
