"""`cockpit drill run` where killed cockpits have left something: nothing before the answer."""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Iterator

import pytest

from cockpit.actions.drills import DrillActions
from cockpit.actions.guard import Guard
from cockpit.cli.drill import run as drill_run
from cockpit.cli.drill import undo
from cockpit.config.process_identity import ProcessId
from cockpit.drills.engine.journal import Entry, Journal
from cockpit.drills.gamedays.file import parsed
from cockpit.drills.plan.plan import DrillPlan, FaultSpec, ProbeSpec
from cockpit.model.cluster import ClusterPattern
from cockpit.model.error import NotAllowedError, UsageError
from cockpit.session.session import Session
from tests.drills.simulated_context import QUICK, trained
from tests.drills.test_orphans import DAY_S, KILLED, REPLACE, SCALE, at_start, left
from tests.simulated_backend import ScriptedBackend

Capture = pytest.CaptureFixture[str]
PLAN = DrillPlan("pod-kill", (FaultSpec("pod-kill"),), timeouts=QUICK)
STALE_ID = "drill-old.1"


class Terminal(io.StringIO):
    """A user who types these lines."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(ScriptedBackend(events=trained())) as session:
        assert session.wait(lambda store: "run-1" in store.runs, 5)
        yield session


@pytest.fixture
def stale() -> Entry:
    """Of three days ago: a group that was scaled down, and the pod of a drained node."""
    return left(SCALE, REPLACE, age_s=3 * DAY_S, name=STALE_ID)


def args(
    *, yes: bool = False, dry_run: bool = False, name: str = "", all_of_them: bool = False
) -> argparse.Namespace:
    return argparse.Namespace(
        verb="drill",
        protected=(),
        i_mean=None,
        yes=yes,
        dry_run=dry_run,
        read_only=False,
        output=None,
        junit="",
        name=name,
        all=all_of_them,
    )


def run(session: Session, *, yes: bool = False, plan: DrillPlan = PLAN) -> list[str]:
    """The verbs requested from the backend."""
    drill_run.run_drill(args(yes=yes), session, DrillActions(session), plan)
    return asked(session)


def asked(session: Session) -> list[str]:
    backend = session.backend
    assert isinstance(backend, ScriptedBackend)
    return [call[0] for call in backend.asked if call[0] not in ("hold", "release", "announce")]


def answers(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in lines)))


def test_nothing_is_undone_without_a_terminal_to_confirm(
    session: Session, stale: Entry, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    recent = left()
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(UsageError, match="not a terminal"):
        run(session)
    assert asked(session) == []
    assert Journal().entries() == [stale, recent]
    err = capsys.readouterr().err
    assert "First undo: Drill drill-1.1 left rank-freeze" in err
    assert "Note: Drill drill-old.1 left rank-freeze of t-workers-1 3 days ago" in err
    assert "cockpit drill undo drill-old" in err


def test_yes_undoes_what_is_recent_and_never_what_is_stale(session: Session, stale: Entry) -> None:
    left()
    assert run(session, yes=True) == ["exec", "delete_pod"]
    assert Journal().entries() == [stale]


def test_stale_entry_is_undone_on_an_answer_of_its_own(
    session: Session, stale: Entry, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    answers(monkeypatch, "y", "n")
    assert run(session) == ["delete_pod"]
    assert Journal().entries() == [stale]
    assert "Undo it first? [y/N]" in capsys.readouterr().err
    answers(monkeypatch, "y", "y")
    assert run(session)[1:] == ["delete_pod", "scale", "delete_pod"]
    assert Journal().entries() == []


def test_plan_has_the_commands_that_run_on_this_machine(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    probe = ProbeSpec("command", query="curl -fsS http://model.example/healthz")
    plan = DrillPlan("pod-kill", (FaultSpec("pod-kill"),), abort=(probe,), timeouts=QUICK)
    with pytest.raises(UsageError):
        run(session, plan=plan)
    text = capsys.readouterr().err
    assert "Runs on this machine: curl -fsS http://model.example/healthz" in text


def test_undo_with_yes_needs_the_name_of_a_stale_entry_or_all(stale: Entry) -> None:
    recent = left()
    now_s = time.time()
    both = [stale, recent]
    assert recent.process == KILLED
    assert undo._agreed(args(yes=True), both, now_s) == [recent]
    assert undo._agreed(args(yes=True, name="drill-old"), [stale], now_s) == [stale]
    assert undo._agreed(args(yes=True, all_of_them=True), both, now_s) == both
    assert undo._agreed(args(), both, now_s) == both, "each is in the plan that is confirmed"


def test_undo_that_a_living_process_has_given_up_is_repeated_only_on_request() -> None:
    entry = left(process=ProcessId.own())
    assert at_start(ScriptedBackend()) == []
    Journal().give_up(entry.drill_id)
    backend = ScriptedBackend()
    (reported,) = at_start(backend)
    assert reported.reason == "Left"
    assert reported.message.endswith("cockpit drill undo")
    assert [asked for asked in backend.asked if asked[0] != "aclose"] == []
    (kept,) = Journal().entries()
    now_s = time.time()
    assert undo._agreed(args(yes=True), [kept], now_s) == []
    assert undo._agreed(args(yes=True, name="drill-1"), [kept], now_s) == [kept]


def test_undo_on_a_protected_cluster_needs_its_name(stale: Entry) -> None:
    protected = argparse.Namespace(
        **vars(args(yes=True, name="drill-old")) | {"protected": (ClusterPattern(),)}
    )
    with pytest.raises(NotAllowedError, match="--yes alone does not change it"):
        undo.run(protected)
    assert Journal().entries() == [stale]


def test_guard_that_ends_during_a_game_day_is_reported(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    async def broken(guard: Guard) -> None:
        raise RuntimeError("the policy of the guard is broken")

    monkeypatch.setattr(Guard, "watch", broken)
    day = parsed("[guard]\nhang = 'restart'\n[[step]]\nwait_s = 0.01\n", "d", "d")
    with pytest.raises(RuntimeError, match="guard is broken"):
        drill_run._run_game_day(args(yes=True), session, DrillActions(session), day)
    assert "passed" in capsys.readouterr().out, "the result of the steps is not lost"
