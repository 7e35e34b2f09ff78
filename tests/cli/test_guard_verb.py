"""`cockpit guard`: the policy is printed and confirmed before anything is followed."""

from __future__ import annotations

import pytest

from cockpit.actions.guard import Guard
from cockpit.backends.protocol import Backend
from cockpit.cli.change import guard
from cockpit.cli.main import main
from cockpit.cli.options import connect
from cockpit.cli.recordings.record import Watch
from cockpit.config import file
from cockpit.guard.policy import Action, Policy
from cockpit.model.cluster import ClusterRef
from cockpit.model.event import RunSeen
from cockpit.model.run import RunState
from cockpit.session import monitored
from cockpit.session.session import Session
from tests.simulated_backend import ScriptedBackend

PROD = ClusterRef("kuberay", "trainer", "ml", "prod")
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> list[Policy]:
    """Those of the guards that were started, on a cluster whose run `demo` is over."""
    over = RunSeen(at_s=1.0, source="telemetry", run_id="r", name="demo", state=RunState.FINISHED)
    backend = ScriptedBackend((over,), ref=PROD)
    started: list[Policy] = []

    def session_on(of: Backend, *, record: str | None = None) -> Session:
        return Session(of)

    async def watch(self: Guard) -> None:
        started.append(self.policy)

    monkeypatch.setattr(connect, "backend", lambda args, **_: backend)
    monkeypatch.setattr(connect, "wait_for", lambda *_: None)
    monkeypatch.setattr(monitored, "monitored_session_on", session_on)
    monkeypatch.setattr(Guard, "watch", watch)
    return started


def configure(text: str) -> None:
    file.path().parent.mkdir(parents=True, exist_ok=True)
    file.path().write_text(text)


def test_observing_needs_no_confirmation(policies: list[Policy], capsys: Capture) -> None:
    assert main(["guard", "demo"]) == 0
    assert policies == [Policy()]
    assert "On a hang: observe" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--failures", "--budget"])
def test_number_that_is_too_small_is_reported_by_its_flag(
    flag: str, policies: list[Policy], capsys: Capture
) -> None:
    assert main(["guard", "demo", flag, "0"]) == 2
    assert capsys.readouterr().err == f"{flag} must be 1 or more.\n"


def test_run_that_is_unknown_is_waited_for_aloud(
    policies: list[Policy], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(connect, "wait_for", lambda s, *_: s.wait(lambda store: store.runs, 5))
    assert main(["guard", "demo"]) == 0
    assert "Waiting" not in capsys.readouterr().err
    assert main(["guard", "typo"]) == 0
    assert "Waiting for run 'typo'. Available: demo." in capsys.readouterr().err


def test_whole_policy_is_printed_before_the_question(
    policies: list[Policy], capsys: Capture
) -> None:
    assert main(["guard", "demo", "--action", "restart"]) == 2
    text = capsys.readouterr().err
    assert text.startswith("Cluster: context prod, namespace ml, RayCluster trainer.\n")
    for line in Policy(hang=Action.RESTART).lines:
        assert line in text
    assert "standard input is not a terminal" in text
    assert not policies


def test_yes_needs_the_name_of_the_cluster(policies: list[Policy]) -> None:
    change = ["guard", "demo", "--action", "restart", "--on-failures", "cordon", "--yes"]
    assert main(change) == 2
    assert main([*change, "--cluster", "trainer", "--budget", "1"]) == 0
    assert policies == [
        Policy(hang=Action.RESTART, repeated_failure=Action.CORDON, budget=1),
    ]


def test_dry_run_and_read_only_mode_follow_without_a_question(
    policies: list[Policy], capsys: Capture
) -> None:
    assert main(["guard", "demo", "--action", "restart", "--dry-run"]) == 0
    assert "Dry run: changes are only reported." in capsys.readouterr().err
    assert main(["--read-only", "guard", "demo", "--action", "restart"]) == 0
    assert "It only observes: this is read-only mode." in capsys.readouterr().err
    assert [policy.changes for policy in policies] == [False, False]


def test_protected_cluster_is_changed_only_if_configured_and_named(
    policies: list[Policy], capsys: Capture
) -> None:
    protect = 'protected = { context = "prod" }\n[guard]\nhang = "restart"\n'
    configure(protect)
    assert main(["guard", "demo", "--yes", "--cluster", "trainer"]) == 0
    assert "It only observes: the cluster is protected" in capsys.readouterr().err
    assert not policies[0].changes
    configure(f"{protect}protected = true\n")
    assert main(["guard", "demo", "--yes", "--cluster", "trainer"]) == 4
    assert main(["guard", "demo", "--yes", "--cluster", "trainer", "--i-mean", "trainer"]) == 0
    assert policies[-1].changes


def test_action_that_the_cluster_does_not_have_is_refused(
    policies: list[Policy], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for kind, flags in (
        ("address", ["--action", "restart"]),
        ("address", ["--action", "replace"]),
        ("local", ["--on-failures", "cordon"]),
    ):
        there = ScriptedBackend(ref=ClusterRef(kind, "t"))
        monkeypatch.setattr(connect, "backend", lambda args, there=there: there)
        assert main(["guard", *flags, "--yes"]) == 2
        assert f"There is no {flags[1]} on this cluster" in capsys.readouterr().err
    denied = ScriptedBackend(ref=PROD, denied={"exec": "you may not create pods/exec"})
    monkeypatch.setattr(connect, "backend", lambda args: denied)
    assert main(["guard", "--action", "restart", "--yes", "--cluster", "trainer"]) == 4
    assert guard.RIGHTS[Action.RESTART] == "exec"
    assert not policies


def test_recorder_acts_as_the_configuration_defines(
    policies: list[Policy], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def until_over(self: Watch, *, forever: bool) -> None:
        assert self.guarding is None or self.guarding.result(5) is None

    monkeypatch.setattr(Watch, "until_over", until_over)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    configure('[guard]\nhang = "restart"\n')
    assert main(["record", "--yes", "--cluster", "trainer"]) == 0
    assert not policies, "only with --guard"
    assert main(["record", "--guard"]) == 2
    assert "On a hang: restart" in capsys.readouterr().err
    assert main(["record", "--guard", "--yes", "--cluster", "trainer"]) == 0
    assert policies == [Policy(hang=Action.RESTART)]
