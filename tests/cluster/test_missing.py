"""Without the requirements of Kubernetes, its tests are skipped, and the last lines explain why."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import build

ROOT = Path(__file__).parents[2]
TEST = "tests/cluster/test_testbed.py::test_a_command_runs_in_a_pod"


@pytest.fixture
def no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "CACHE", tmp_path)


@pytest.mark.slow
def test_a_skip_reports_why_in_the_last_lines() -> None:
    done = _pytest(ci=False)
    assert done.returncode == 0, done.stdout
    *_, why, closing = done.stdout.splitlines()
    assert why.startswith("No test ran on a real Kubernetes: ")
    assert "1 skipped" in closing


def test_programs_that_are_not_built_are_named_with_the_command_that_builds_them(
    tmp_path: Path,
) -> None:
    if why := build.unusable():
        pytest.skip(why)
    cache = tmp_path / "cache"
    done = _pytest(ci=False, PATH=os.environ["PATH"], COCKPIT_TESTBED_CACHE=str(cache))
    assert done.returncode == 0, done.stdout
    *_, why, closing = done.stdout.splitlines()
    assert why == (
        "No test ran on a real Kubernetes: its programs are not built; "
        "`python -m tests.cluster.build` builds them, in about 10 minutes on 2 cores."
    )
    assert "1 skipped" in closing
    assert not cache.exists()


@pytest.mark.slow
def test_a_build_that_fails_names_the_command_and_its_exit_code(tmp_path: Path) -> None:
    if why := build.unusable():
        pytest.skip(why)
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\n[ $1 = version ] && exec echo go version go1.30.0\nexit 1\n")
    go.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "COCKPIT_TESTBED_CACHE": str(tmp_path / "cache"),
    }
    done = _build(environment)
    assert done.returncode == 1
    assert re.fullmatch("go build .* failed with exit code 1.\n", done.stderr)
    assert "building etcd (1 of 11)" in done.stdout


def test_a_skip_is_a_failure_in_ci() -> None:
    done = _pytest(ci=True)
    assert done.returncode == 1
    assert "skipped in CI, where everything must run" in done.stdout


def test_without_root_it_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert build.missing() == "it needs root: namespaces, mounts and a kubelet"


def test_without_the_packages_it_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    text = build.missing()
    assert text.startswith("apt-get install containerd runc ")
    assert "(containerd, runc, nft, " in text


def test_without_go_nothing_is_built_and_the_reason_is_printed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_programs: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _only_commands(tmp_path, monkeypatch)
    assert build.main() == 1
    assert "Go is not installed." in capsys.readouterr().err


def test_a_go_that_is_too_old_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_programs: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _with_go("1.19.8", tmp_path, monkeypatch)
    assert build.main() == 1
    wanted = "Go is older than 1.24 (go version go1.19.8 linux/amd64)."
    assert wanted in capsys.readouterr().err


def test_programs_of_nightly_tests_are_built_only_when_asked_for_and_need_a_newer_go(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_programs: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _with_go("1.24.0", tmp_path, monkeypatch)
    assert build.main(["--nightly"]) == 1
    assert "Go is older than 1.25 (go version go1.24.0 linux/amd64)." in capsys.readouterr().err
    assert {each.name for each in build.unbuilt()}.isdisjoint({"kueue", "prometheus"})
    assert build.missing_nightly("kueue") == (
        "kueue is not built; `python -m tests.cluster.build --nightly` builds it"
    )


def _with_go(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH with Debian's commands and this version of Go."""
    go = _only_commands(tmp_path, monkeypatch) / "go"
    go.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
    go.chmod(0o755)


def _only_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with Debian's commands and no Go."""
    folder = tmp_path / "commands"
    folder.mkdir()
    for command in build.COMMANDS:
        (folder / command).symlink_to(shutil.which(command) or "/bin/true")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(build, "CNI_PLUGINS", folder)
    (folder / "bridge").touch()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def _build(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.cluster.build"]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def _pytest(*, ci: bool, **environ: str) -> subprocess.CompletedProcess[str]:
    """One of those tests, on a machine that lacks every command except those of `environ`."""
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment |= {"PATH": "/nowhere", **environ}
    if ci:
        environment["CI"] = "true"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
