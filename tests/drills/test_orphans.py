"""What a killed cockpit has left: found, undone by the next one, and told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit import audit
from cockpit.drill_actions import DrillActions
from cockpit.drills.journal import Journal
from cockpit.drills.orphans import is_of
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.event import Notice
from cockpit.session import Session
from tests.drills.ground import FREEZE, Refusing
from tests.simulated_backend import ScriptedBackend

HERE = ScriptedBackend().ref
ELSEWHERE = ClusterRef("kuberay", "prod", "ml", "far")

WRITES = """
import sys
from cockpit.drills.fault import Undo
from cockpit.drills.journal import Journal
from cockpit.model.cluster import ClusterRef
name, backend, cluster = sys.argv[1:]
undo = (Undo("exec", "let it run again", pod="t-workers-1", argv=("thaw",)),)
Journal().write(name, "rank-freeze", "t-workers-1", ClusterRef(backend, cluster), undo, 1.0)
"""


def left(name: str, ref: ClusterRef = HERE) -> None:
    """As a process does that was killed in the middle of a drill."""
    subprocess.run([sys.executable, "-c", WRITES, name, ref.backend, ref.name], check=True)


def notices(session: Session) -> list[Notice]:
    session.drain()
    return [notice for notice in session.store.notices if notice.kind == "Drill"]


def test_what_a_killed_cockpit_left_is_undone_at_the_next_start_and_told() -> None:
    left("drill-1.1")
    backend, journal = ScriptedBackend(), Journal()
    assert [entry.drill_id for entry in journal.orphans()] == ["drill-1.1"]
    with Session(backend) as session:
        session.call(DrillActions(session).mend_at_start())
        told = notices(session)
    assert ("exec", FREEZE.pod, "thaw") in backend.asked
    assert any(asked[0] == "release" and "(drill-1)" in asked[1] for asked in backend.asked)
    assert journal.entries() == []
    assert [(notice.reason, notice.warning) for notice in told] == [("Undone", False)]
    assert "let it run again" in told[0].message
    lines = [json.loads(line) for line in audit.path().read_text().splitlines()]
    assert [line["action"] for line in lines] == ["undo rank-freeze"]


def test_what_was_left_on_another_cluster_is_told_and_left_alone() -> None:
    left("drill-1.1", ELSEWHERE)
    backend = ScriptedBackend()
    with Session(backend) as session:
        session.call(DrillActions(session).mend_at_start())
        told = notices(session)
    assert not any(asked[0] == "exec" for asked in backend.asked)
    assert len(Journal().orphans()) == 1
    assert told[0].warning
    assert "kuberay:prod: cockpit drill undo" in told[0].message


def test_what_cannot_be_undone_stays_in_the_journal_and_is_told() -> None:
    left("drill-1.1")
    with Session(Refusing()) as session:
        session.call(DrillActions(session).mend_at_start())
        told = notices(session)
    assert told[0].warning
    assert "NOT all undone" in told[0].message
    assert len(Journal().orphans()) == 1


def test_a_journal_that_cannot_be_read_does_not_keep_a_screen_from_starting() -> None:
    journal = Journal()
    journal.directory.mkdir(parents=True)
    (journal.directory / "drill-1.1.json").write_text('{"drill_id": ')
    with Session(ScriptedBackend()) as session:
        session.call(DrillActions(session).mend_at_start())
        told = notices(session)
    assert "cannot be read" in told[0].message
    with pytest.raises(CockpitError, match="cannot be read"):
        journal.orphans()


def test_a_drill_that_goes_on_is_nobodys_to_undo() -> None:
    journal = Journal()
    journal.write("drill-1.1", "rank-freeze", "p", HERE, (FREEZE,), 1.0)
    assert journal.orphans() == []
    assert len(journal.of("drill-1")) == 1


def test_another_process_with_the_same_number_is_not_the_one_that_wrote() -> None:
    journal = Journal()
    journal.write("drill-1.1", "rank-freeze", "p", HERE, (FREEZE,), 1.0)
    path = journal.directory / "drill-1.1.json"
    raw = json.loads(path.read_text())
    path.write_text(json.dumps(raw | {"born": "1"}))
    assert [entry.drill_id for entry in journal.orphans()] == ["drill-1.1"]
    path.write_text(json.dumps(raw | {"boot": "before the reboot"}))
    assert [entry.drill_id for entry in journal.orphans()] == ["drill-1.1"]


def test_a_journal_that_cannot_be_written_says_so_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CockpitError, match="cannot be written"):
        Journal(tmp_path / "file").write("drill-1.1", "f", "p", HERE, (FREEZE,), 1.0)


def test_an_entry_is_of_its_drill_and_of_its_record() -> None:
    journal = Journal()
    journal.write("drill-1.2", "rank-freeze", "p", HERE, (FREEZE,), 1.0)
    entry = journal.entries()[0]
    assert is_of(entry, "")
    assert is_of(entry, "drill-1")
    assert is_of(entry, "drill-1.2")
    assert not is_of(entry, "drill-2")
