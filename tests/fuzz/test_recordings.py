"""Malformed recordings and drills: unreadable parts are counted, never raised."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from cockpit.model.drill import KeptDrill
from cockpit.model.event import Event
from cockpit.model.run import RunSummary
from cockpit.recorder import codec
from cockpit.recorder.codec import CodecError
from cockpit.recorder.file import pack
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.recording import Recording
from tests.fuzz.cases import VALUES, assert_clean, broken, broken_bytes, examine, quick_and_nightly
from tests.recorder.test_codec import filled
from tests.recorder.test_hostile_recording import recording


def lines() -> list[Any]:
    """One of every kind of event, as its line."""
    chance = random.Random(5)
    made: list[Event] = [filled(kind, chance) for kind in codec.KINDS.values()]
    return [json.loads(codec.encode(event)) for event in made]


LINES = broken(*lines()).map(lambda raw: json.dumps(raw, ensure_ascii=False))


@quick_and_nightly(8_000)
def test_line_is_an_error_or_a_clean_event(cases: int) -> None:
    def check(line: str) -> None:
        with suppress(CodecError):
            found = codec.decode(line)
            if found is not None:
                assert_clean(found[1])
                codec.encode(found[1])

    examine(LINES, check, cases)


@pytest.mark.parametrize("kind", [RunSummary, KeptDrill])
@quick_and_nightly(2_000)
def test_plain_object_is_an_error_or_clean(kind: type[Any], cases: int) -> None:
    whole = json.loads(json.dumps(codec.to_plain(filled(kind, random.Random(1)))))

    def check(raw: Any) -> None:
        with suppress(CodecError):
            assert_clean(codec.from_plain(kind, raw))

    examine(broken(whole), check, cases)


_COLUMNS = st.sampled_from(
    (
        "batches.from_s",
        "batches.to_s",
        "batches.body",
        "batches.events",
        "facts.name",
        "facts.value",
        "markers.at_s",
        "markers.kind",
        "markers.text",
    )
)


@quick_and_nightly(1_500)
def test_file_is_one_row_and_can_be_replayed(cases: int, tmp_path: Path) -> None:
    library = Library(tmp_path)
    path = recording(library.directory, "one")
    whole = path.read_bytes()

    def check(change: tuple[str, Any, list[str], bytes]) -> None:
        column, value, more, raw = change
        for part in library.directory.glob("one.cockpit-*"):
            part.unlink()
        path.write_bytes(whole)
        table, _, name = column.partition(".")
        with sqlite3.connect(path) as db:
            db.execute("UPDATE batches SET body = ?", (pack(["[1]", *more], 1),))
            with suppress(sqlite3.Error, OverflowError, UnicodeError):
                db.execute(f"UPDATE {table} SET {name} = ?", (value,))
        db.close()
        if raw:
            path.write_bytes(raw)
        assert [row.name for row in library.list()] == ["one"]
        if raw:
            return
        with Recording.open(path) as found:
            assert_clean(found.markers)
            assert_clean(found.run)
            for event in found.events():
                assert_clean(event)
            assert found.store()

    scalar = VALUES.filter(lambda value: not isinstance(value, (list, dict)))
    torn = st.just(b"") | broken_bytes(st.just(whole))
    examine(st.tuples(_COLUMNS, scalar, st.lists(LINES, max_size=3), torn), check, cases)
