"""The preflight of `cockpit launch`. The dashboard does not answer: what is submitted exits 3."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.cli.change import launch_preflight
from cockpit.cli.main import main
from cockpit.cli.options import connect
from tests.preflight.pods import HEAD, ONE, TWO, CannedPods, PodsHere, present

SUBMITTED, REFUSED = 3, 1


class OnTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> CannedPods:
    made = CannedPods(present(HEAD, ONE, TWO))
    monkeypatch.setattr(connect, "backend", lambda args, **how: made)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr(launch_preflight, "LAUNCH_S", 60.0)  # the machine may be busy
    return made


LAUNCH = ("launch", "checkpointed", "--workers=2")


def test_job_is_launched_if_nothing_fails(
    backend: CannedPods, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*LAUNCH]) == SUBMITTED
    said = capsys.readouterr().err
    assert "Preflight: " in said
    assert "failed:" not in said
    assert "skipped: ranks on the head: Ray has not reported the resources of the head." in said


@pytest.mark.parametrize("flags", [["--yes"], []], ids=["with --yes", "without a terminal"])
def test_failed_check_refuses_the_launch_with_the_reason_and_the_flag(
    flags: list[str], backend: CannedPods, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.is_shared = False
    assert main([*LAUNCH, *flags]) == REFUSED
    *findings, what, why, todo = capsys.readouterr().err.splitlines()
    assert any(line.startswith("failed: storage: ~/ray_results is not") for line in findings)
    assert what == "Nothing was launched: 1 check of the preflight failed."
    assert "~/ray_results is not shared" in why
    assert todo.endswith("--no-preflight")


def test_no_preflight_runs_no_command_in_a_pod(backend: CannedPods) -> None:
    assert main([*LAUNCH, "--no-preflight"]) == SUBMITTED
    assert not any(call[0] == "exec" for call in backend.asked)


@pytest.mark.parametrize(("answer", "code"), [("y\n", SUBMITTED), ("\n", REFUSED)])
def test_failed_check_asks_on_a_terminal(
    answer: str,
    code: int,
    backend: CannedPods,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", OnTerminal(answer))
    backend.is_shared = False
    assert main([*LAUNCH]) == code
    said = capsys.readouterr().err
    assert "Launch anyway? [y/N]" in said
    assert ("Nothing was launched." in said) == (code == REFUSED)


@pytest.mark.timed
def test_pods_that_do_not_answer_delay_a_launch_by_three_seconds_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mute = PodsHere(present(HEAD, ONE, TWO), homes=tmp_path, slow=lambda pod: True)
    monkeypatch.setattr(connect, "backend", lambda args, **how: mute)
    began_s = time.monotonic()
    assert main([*LAUNCH]) == SUBMITTED
    assert time.monotonic() - began_s < 6, "with the start and the failed submission"
    assert "could not probe head, one and two: no answer" in capsys.readouterr().err


def test_dry_run_runs_no_command_in_a_pod(backend: CannedPods) -> None:
    assert main([*LAUNCH, "--dry-run"]) == 0
    assert not any(call[0] == "exec" for call in backend.asked)


def test_cluster_without_a_head_is_left_to_the_launch(
    backend: CannedPods, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.events = present(ONE, TWO)
    assert main([*LAUNCH]) == SUBMITTED
    assert "Preflight" not in capsys.readouterr().err


OWN = (*LAUNCH, "--via=rayjob", "--own-cluster")


def test_cluster_of_its_own_is_checked_without_pods(
    backend: CannedPods, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*OWN]) == 0
    said = capsys.readouterr().err
    assert "Preflight: 4 ok." in said
    assert not any(call[0] == "exec" for call in backend.asked)
    assert any(call[0] == "create_rayjob" for call in backend.asked)


def test_cluster_of_its_own_that_cannot_be_created_is_refused(
    backend: CannedPods, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.new = replace(backend.new, missing=("Secret s3",))
    assert main([*OWN, "--yes"]) == REFUSED
    said = capsys.readouterr().err
    assert "failed: objects: Missing in the namespace: Secret s3." in said
    assert not any(call[0] == "create_rayjob" for call in backend.asked)
    assert main([*OWN, "--yes", "--no-preflight"]) == 0
