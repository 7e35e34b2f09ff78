"""A malformed recording: one bad row is skipped, and the others are read."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from cockpit.model.error import CockpitError
from cockpit.model.event import Marked
from cockpit.recorder.file import open_to_write, pack
from cockpit.recorder.reading import annotation
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.recording import Recording

DEEP = "[" * 100_000 + "]" * 100_000


def recording(directory: Path, name: str) -> Path:
    """Two marks and a summary."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}.cockpit"
    db = open_to_write(path)
    lines = ['["Marked",1000.0,"user",{"text":"one"}]', '["Marked",1001.0,"user",{"text":"two"}]']
    db.execute(
        "INSERT INTO batches (from_s, to_s, events, body) VALUES (1000.0, 1001.0, 2, ?)",
        (pack(lines, 1),),
    )
    summary = {"run_id": name, "name": name, "job": "1", "state": "FINISHED"}
    db.execute("INSERT INTO facts VALUES ('run', ?)", (json.dumps(summary),))
    db.execute("INSERT INTO markers VALUES (1000.0, 'mark', 'one')")
    db.close()
    return path


CHANGES = {
    "a deeply nested fact": f"UPDATE facts SET value = '{DEEP}'",
    "a summary of another shape": "UPDATE facts SET value = '[1, 2]'",
    "a fact that is no text": "UPDATE facts SET value = x'00ff'",
    "a time without a date": "UPDATE batches SET to_s = 1e300",
    "a time that is no number": "UPDATE batches SET from_s = 'soon'",
    "an infinite time": "UPDATE batches SET from_s = -9e999, to_s = 9e999",
    "a marker at no time": "UPDATE markers SET at_s = 'x'",
    "a marker that is far away": "UPDATE markers SET at_s = 1e300, text = char(27)",
    "a summary that ends in no year": (
        """UPDATE facts SET value = '{"run_id": "b", "name": "b", "job": "1", """
        """"state": "FINISHED", "ended_s": 1e300}'"""
    ),
    "a summary with a long number": (
        """UPDATE facts SET value = '{"run_id": "b", "name": "b", "job": "1", """
        f""""state": "FINISHED", "world_size": {"9" * 400}}}'"""
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_hostile_recording_is_one_bad_row(change: str, tmp_path: Path) -> None:
    library = Library(tmp_path)
    recording(library.directory, "good")
    path = recording(library.directory, "bad")
    with sqlite3.connect(path) as db:
        db.execute(change)
    db.close()
    rows = {row.name: row for row in library.list()}
    assert set(rows) == {"good", "bad"}
    assert (rows["good"].trouble, rows["good"].summary.run_id) == ("", "good")
    assert "marker" in change or rows["bad"].trouble
    with Recording.open(path) as found:
        texts = [event.text for event in found.events() if isinstance(event, Marked)]
        assert texts in (["one", "two"], [])
        assert all(marker.text.isprintable() for marker in found.markers)
        assert found.run.name
        assert found.store()
        assert found.damage


def test_hostile_notes_are_the_trouble_of_one_recording(tmp_path: Path) -> None:
    library = Library(tmp_path)
    recording(library.directory, "good")
    path = recording(library.directory, "bad")
    annotation.path_of(path).write_text(f'{{"x": {DEEP}}}')
    notes = {row.name: annotation.read(row.path) for row in library.list()}
    assert notes["good"] == annotation.Annotation()
    assert "its notes cannot be read" in notes["bad"].note


def test_notes_that_cannot_be_read_are_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.cockpit"
    notes = annotation.path_of(path)
    notes.write_text('{"tags": ["two words"], "note": "why it diverged"}')
    with pytest.raises(CockpitError, match="are not replaced"):
        annotation.write(path, annotation.checked(["good"], annotation.read(path).note))
    assert "why it diverged" in notes.read_text()


@pytest.mark.parametrize(
    "line",
    [
        f'["Marked",1000.5,"user",{{"text":{DEEP}}}]',
        f'["Marked",{"9" * 400},"user",{{"text":"x"}}]',
        '["Marked",1e300,"user",{"text":"x"}]',
        '["Marked",NaN,"user",{"text":"x"}]',
        '["Marked",1000.5,"user",{"text":"x"},Infinity]',
        '["RunSeen",1000.5,"t",{"run_id":"r","name":"r","state":"RUNNING","world_size":1e400}]',
        '["AttemptStarted",1000.5,"t",{"run_id":"r","attempt":1' + "0" * 30 + "}]",
        '["HistoryLoaded",1000.5,"t",{"run_id":"r","metric":"loss","times":[1.0,2.0],"values":[]}]',
        '["JobsListed",1000.5,"t",{"jobs":[1,{"id":["a"],"entrypoint":["a"],'
        '"status":["RUNNING"],"started_s":[1e300]},{}]}]',
    ],
)
def test_hostile_line_is_counted_and_the_rest_is_replayed(line: str, tmp_path: Path) -> None:
    path = recording(tmp_path, "bad")
    good = '["Marked",1000.0,"user",{"text":"one"}]'
    with sqlite3.connect(path) as db:
        db.execute("UPDATE batches SET body = ?", (pack([good, line], 1),))
    db.close()
    with Recording.open(path) as found:
        assert [event.text for event in found.events() if isinstance(event, Marked)] == ["one"]
        assert found.damage == "1 lines cannot be read"
