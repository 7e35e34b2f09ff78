"""The undo journal on disk: atomic, synced, and readable beside unreadable files."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.config.process_identity import ProcessId
from cockpit.drills.engine.interrupted import is_recent
from cockpit.drills.engine.journal import Entry, Journal
from cockpit.drills.faults.fault import Undo
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from tests.drills.simulated_context import FREEZE
from tests.simulated_backend import ScriptedBackend

HERE = ScriptedBackend().ref
OTHER = Undo("uncordon", "uncordon node n1", name="n1")


def written(journal: Journal, drill_id: str = "drill-1.1", *undo: Undo) -> Entry:
    return journal.write(drill_id, "rank-freeze", "p", HERE, undo or (FREEZE,), 1.0)


def changed(journal: Journal, entry: Entry, **process: str) -> None:
    """As another process would have written it."""
    path = journal.directory / f"{entry.drill_id}.json"
    raw = json.loads(path.read_text())
    path.write_text(json.dumps(raw | {"process": raw["process"] | process}))


@pytest.mark.parametrize(
    "text",
    [
        '{"drill_id": ', "", "[]", "null", "{}", "[" * 100_000, '"x"',
        '{"drill_id": "drill-9.1", "undo": [], "process": {"pid": 1}, "cluster": {}}',
    ],
)  # fmt: skip
def test_unreadable_file_is_reported_and_keeps_no_other_from_being_read(text: str) -> None:
    journal = Journal()
    entry = written(journal)
    (journal.directory / "drill-0.1.json").write_text(text)
    assert journal.entries() == [entry]
    (bad,) = journal.unreadable()
    assert bad.path.name == "drill-0.1.json"
    assert "undo its effect manually" in bad.line
    journal.done("drill-0.1", FREEZE)
    assert bad.path.exists(), "it may name something that is still to be undone"


def test_drill_of_another_node_is_not_taken_for_one_that_has_ended() -> None:
    journal = Journal()
    entry = written(journal)
    assert journal.orphans() == [], "this process lives"
    changed(journal, entry, host="login-2", boot="another kernel")
    (found,) = journal.orphans()
    assert found.process.life.value == "unknown"
    changed(journal, entry, host=entry.process.host, boot=entry.process.boot, born="1")
    (found,) = journal.orphans()
    assert found.process.life.value == "ended"


def test_undo_that_was_given_up_is_left_to_others_though_its_process_runs() -> None:
    journal = Journal()
    written(journal, "drill-1.1", FREEZE, OTHER)
    written(journal, "drill-2.1")
    journal.done("drill-1.1", OTHER)
    journal.give_up("drill-1.1")
    (found,) = journal.orphans()
    assert (found.drill_id, found.undo, found.given_up) == ("drill-1.1", (FREEZE,), True)
    assert not is_recent(found, found.written_s), "undone on request only: its process runs"
    journal.done("drill-1.1", FREEZE)
    journal.give_up("drill-1.1")
    assert [entry.drill_id for entry in journal.entries()] == ["drill-2.1"]


def test_file_of_an_earlier_version_is_read() -> None:
    journal = Journal()
    entry = written(journal)
    path = journal.directory / "drill-1.1.json"
    raw = json.loads(path.read_text())
    del raw["given_up"]
    path.write_text(json.dumps(raw))
    assert journal.entries() == [entry]
    assert journal.orphans() == []


def test_attempts_are_forgotten_only_of_the_same_effect_and_process() -> None:
    journal = Journal()
    written(journal, "drill-1.1")
    written(journal, "drill-2.1", OTHER)
    journal.write("drill-3.1", "rank-freeze", "p", ClusterRef("local", "far"), [FREEZE], 1.0)
    killed = replace(ProcessId.own(), born="1")
    journal.write("drill-4.1", "rank-freeze", "p", HERE, [FREEZE], 1.0, killed)
    journal.forget_attempts(written(journal, "drill-5.1"))
    left = sorted(entry.drill_id for entry in journal.entries())
    assert left == ["drill-2.1", "drill-3.1", "drill-4.1"]


def test_rename_and_removal_are_synced_in_their_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    synced: list[list[str]] = []
    fsync = os.fsync

    def seen(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            synced.append(sorted(os.listdir(fd)))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", seen)
    journal = Journal()
    written(journal)
    assert synced == [["drill-1.1.json"]]
    journal.done("drill-1.1", FREEZE)
    assert synced[1:] == [[]]


def test_answer_of_the_pods_is_kept() -> None:
    journal = Journal()
    journal.answered(written(journal))
    assert [entry.answered for entry in journal.entries()] == [True]


def test_file_of_a_failed_write_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal()
    written(journal)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CockpitError, match="cannot be written"):
        written(journal, "drill-2.1")
    assert [path.name for path in journal.directory.iterdir()] == ["drill-1.1.json"]


def test_journal_that_cannot_be_written_is_an_error_before_anything_is_done(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CockpitError, match="cannot be written"):
        written(Journal(tmp_path / "file"))
