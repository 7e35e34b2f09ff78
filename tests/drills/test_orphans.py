"""Faults that a killed cockpit has left: found, shown, and undone if unchanged."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from msgspec.structs import replace

from cockpit.actions import audit
from cockpit.actions.drills import DrillActions
from cockpit.backends.protocol import Backend
from cockpit.cli.screen.connection import connection
from cockpit.config.process_identity import ProcessId
from cockpit.drills.engine import undo
from cockpit.drills.engine.interrupted import (
    RECENT_S,
    Undone,
    described,
    is_of,
    is_recent,
    undo_entries,
)
from cockpit.drills.engine.journal import Entry, Journal
from cockpit.drills.engine.lease import Timing
from cockpit.drills.faults.fault import Undo
from cockpit.model.cluster import ClusterPattern, ClusterRef
from cockpit.model.error import LeaseHeldError
from cockpit.model.event import Notice
from cockpit.session.session import Session
from tests.drills.simulated_context import FREEZE, Refusing
from tests.simulated_backend import ScriptedBackend

HERE = ScriptedBackend().ref
ELSEWHERE = ClusterRef("kuberay", "prod", "ml", "far")
KILLED = replace(ProcessId.own(), born="1")
ON_ANOTHER_NODE = replace(ProcessId.own(), host="login-2", boot="another kernel")
SCALE = Undo("scale", "scale gpu from 2 back to 3", name="gpu", uid="c", replicas=3, drilled=2)
REPLACE = Undo("replace", "replace head", pod="head", uid="before")
DAY_S = 86_400.0


def left(
    *undo: Undo,
    age_s: float = 30.0,
    process: ProcessId = KILLED,
    ref: ClusterRef = HERE,
    name: str = "drill-1.1",
) -> Entry:
    """In the journal, as a process has left it that was killed in the middle of a drill."""
    journal, at_s = Journal(), time.time() - age_s
    effects = undo or (FREEZE,)
    entry = journal.write(name, "rank-freeze", "t-workers-1", ref, effects, at_s, process)
    journal.answered(entry)
    return replace(entry, answered=True)


def undone(backend: Backend, *entries: Entry) -> list[Undone]:
    async def collected() -> list[Undone]:
        return [one async for one in undo_entries(backend, Journal(), entries)]

    return asyncio.run(collected())


def notices(session: Session) -> list[Notice]:
    session.drain()
    return [notice for notice in session.store.notices if notice.kind == "Drill"]


def at_start(backend: Backend, *, unasked: bool = True) -> list[Notice]:
    """The work at the start of the UI, and its report."""
    with Session(backend) as session:
        DrillActions(session).begin_undo(unasked=unasked).result(10)
        return notices(session)


def test_nothing_is_undone_unasked_at_the_start_of_the_screen_on_a_protected_cluster() -> None:
    left()
    backend = ScriptedBackend()
    (reported,) = at_start(backend, unasked=False)
    assert not [asked for asked in backend.asked if asked[0] == "exec"]
    assert len(Journal().entries()) == 1
    assert reported.reason == "Left"
    assert "cockpit drill undo" in reported.message


@pytest.mark.parametrize("protected", [True, False])
def test_screen_undoes_recent_faults_unless_the_cluster_is_protected(
    protected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[bool]()

    def begin_undo(actions: DrillActions, *, unasked: bool) -> None:
        begun.append(unasked)

    monkeypatch.setattr(DrillActions, "begin_undo", begin_undo)
    backend = ScriptedBackend()
    patterns = (ClusterPattern(cluster=backend.ref.name),) if protected else ()
    connection(backend, protected=patterns).close()
    assert begun == [not protected]


def test_recent_entry_is_undone_at_the_start_of_the_screen_and_reported() -> None:
    left()
    backend = ScriptedBackend()
    (reported,) = at_start(backend)
    assert ("exec", FREEZE.pod, "thaw") in backend.asked
    assert any(asked[0] == "release" and "(drill-1)" in asked[1] for asked in backend.asked)
    assert Journal().entries() == []
    assert (reported.reason, reported.warning) == ("Undone", False)
    assert "let it run again" in reported.message
    lines = [json.loads(line) for line in audit.path().read_text().splitlines()]
    assert [line["action"] for line in lines] == ["undo rank-freeze"]


@pytest.mark.parametrize(
    ("age_s", "process"),
    [
        (RECENT_S + 60, KILLED),
        (3 * DAY_S, KILLED),
        (-DAY_S, KILLED),
        (30.0, ON_ANOTHER_NODE),
    ],
)
def test_older_entry_or_one_of_another_node_is_only_shown(age_s: float, process: ProcessId) -> None:
    entry = left(SCALE, REPLACE, age_s=age_s, process=process)
    assert not is_recent(entry, time.time())
    backend = ScriptedBackend()
    (reported,) = at_start(backend)
    assert [asked for asked in backend.asked if asked[0] != "aclose"] == []
    assert Journal().entries() == [entry]
    assert reported.warning
    assert "scale gpu from 2 back to 3" in reported.message
    assert reported.message.endswith("cockpit drill undo")


def test_group_that_was_scaled_since_is_left_as_it_is() -> None:
    """64 replicas by now, three days after a drill has set 2."""
    entry = left(SCALE)
    backend = ScriptedBackend(replicas=64)
    (done,) = undone(backend, entry)
    assert not [asked for asked in backend.asked if asked[0] == "scale"]
    assert done.error is None
    assert "left as it is (Group gpu has 64 replicas now, not 2.)" in done.lines[0]
    assert Journal().entries() == []


def test_group_that_is_still_as_the_drill_left_it_is_scaled_back() -> None:
    backend = ScriptedBackend(replicas=2)
    (done,) = undone(backend, left(SCALE))
    assert ("scale", "gpu", "3") in backend.asked
    assert "c" in backend.uids
    assert done.lines == ("done: scale gpu from 2 back to 3",)


def test_group_whose_drilled_size_is_unknown_is_left_as_it_is() -> None:
    backend = ScriptedBackend()
    (done,) = undone(backend, left(replace(SCALE, drilled=None)))
    assert not [asked for asked in backend.asked if asked[0] == "scale"]
    assert "left as it is" in done.lines[0]


def test_pod_of_a_reused_name_is_neither_deleted_nor_entered() -> None:
    backend = ScriptedBackend(replaced={"head": "after", FREEZE.pod: "after"})
    (done,) = undone(backend, left(REPLACE, replace(FREEZE, uid="before")))
    assert {asked[0] for asked in backend.asked} == {"release"}
    assert "ended with pod t-workers-1" in done.lines[0]
    assert "left as it is (Pod head was replaced" in done.lines[1]


class Leased(ScriptedBackend):
    """Its lease was not released by the drill of another node; `renews` while it is observed."""

    renews = False
    looks = 0

    async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
        self.looks += 1
        renewal = str(self.looks) if self.renews else "1"
        if expired != renewal:
            raise LeaseHeldError(
                "Another drill runs.", "Held by bob@login-2.", "",
                renewal=renewal, ttl_s=60.0, current=False,
            )  # fmt: skip


async def undone_after(backend: Leased, entry: Entry) -> tuple[Undone, list[str]]:
    """With the lines of a wait for the lease's duration, on a simulated clock."""
    now_s, text = [0.0], list[str]()

    async def sleep(seconds: float) -> None:
        now_s[0] += seconds

    timing = Timing(clock=lambda: now_s[0], sleep=sleep)
    found = undo_entries(backend, Journal(), [entry], text.append, timing)
    (done,) = [one async for one in found]
    return done, text


async def test_drill_of_another_node_that_renews_its_lease_is_not_undone() -> None:
    entry = left(process=ON_ANOTHER_NODE)
    backend = Leased()
    backend.renews = True
    done, text = await undone_after(backend, entry)
    assert isinstance(done.error, LeaseHeldError)
    assert backend.asked == []
    assert "waiting 60 s for a renewal" in text[0]
    assert Journal().entries() == [entry]


async def test_drill_of_another_node_whose_lease_is_not_renewed_is_undone() -> None:
    done, _ = await undone_after(Leased(), left(process=ON_ANOTHER_NODE))
    assert done.error is None
    assert Journal().entries() == []


def test_entry_of_another_cluster_is_reported_and_left_alone() -> None:
    left(ref=ELSEWHERE)
    backend = ScriptedBackend()
    (reported,) = at_start(backend)
    assert not any(asked[0] == "exec" for asked in backend.asked)
    assert len(Journal().orphans()) == 1
    assert reported.warning
    assert f"left rank-freeze on {ELSEWHERE}: cockpit drill undo" in reported.message


def test_failed_undo_stays_in_the_journal_and_is_reported() -> None:
    left()
    (reported,) = at_start(Refusing())
    assert reported.warning
    assert "NOT all undone" in reported.message
    assert len(Journal().orphans()) == 1


def test_one_effect_that_cannot_be_undone_keeps_no_other_from_it() -> None:
    entry = left(SCALE, FREEZE)
    backend = Refusing(replicas=2)
    (done,) = undone(backend, entry)
    assert done.error is not None
    assert ("scale", "gpu", "3") in backend.asked
    (still,) = Journal().entries()
    assert still.undo == (FREEZE,)


def test_unreadable_file_is_reported_and_the_others_are_undone() -> None:
    left()
    (Journal().directory / "drill-0.1.json").write_text('{"drill_id": ')
    undone_line, bad = at_start(ScriptedBackend())
    assert "let it run again" in undone_line.message
    assert "drill-0.1.json cannot be read" in bad.message
    assert bad.warning


def test_defect_in_the_undo_at_the_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    left()

    async def fails(*args: object, **more: object) -> str:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(undo, "undo_effect", fails)
    with Session(ScriptedBackend()) as session:
        with pytest.raises(ZeroDivisionError):
            DrillActions(session).begin_undo().result(10)
        assert session.wait(lambda store: bool(store.notices), 5)
        (reported,) = notices(session)
    assert "NOT undone: ZeroDivisionError('a defect')" in reported.message
    assert reported.warning


def test_fault_that_never_answered_is_made_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "LATE_S", 0.0)
    entry = replace(left(FREEZE, SCALE), answered=False)
    backend = ScriptedBackend(replicas=2)
    undone(backend, entry)
    assert ("exec", FREEZE.pod, "thaw", "refuse") in backend.asked
    assert backend.asked.count(("scale", "gpu", "3")) == 2, "the request may be carried out late"


def test_full_disk_keeps_no_effect_from_being_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    from cockpit.model.error import CockpitError

    entry = left(SCALE, FREEZE)

    def full(*args: object) -> None:
        raise CockpitError("The journal of undo cannot be written.", "No space left on device")

    monkeypatch.setattr(Journal, "done", full)
    backend = ScriptedBackend(replicas=2)
    (done,) = undone(backend, entry)
    assert ("scale", "gpu", "3") in backend.asked
    assert ("exec", FREEZE.pod, "thaw") in backend.asked
    assert any("kept in the journal" in line for line in done.lines)


@pytest.mark.parametrize(
    ("age_s", "when"),
    [(5, "5 s ago"), (60, "1 minute ago"), (7200, "2 hours ago"), (3 * DAY_S, "3 days ago")],
)
def test_description_has_fault_target_age_and_effect(age_s: float, when: str) -> None:
    entry = left(age_s=0.0)
    assert described(entry, entry.written_s + age_s) == (
        f"Drill drill-1.1 left rank-freeze of t-workers-1 {when}. To undo: let it run again"
    )


def test_description_has_the_node_of_a_process_that_cannot_be_checked() -> None:
    entry = left(process=ON_ANOTHER_NODE)
    assert "on login-2, where it may still run" in described(entry, time.time())


def test_entry_is_of_its_drill_and_of_its_record() -> None:
    entry = left(name="drill-1.2")
    assert is_of(entry, "")
    assert is_of(entry, "drill-1")
    assert is_of(entry, "drill-1.2")
    assert not is_of(entry, "drill-2")
