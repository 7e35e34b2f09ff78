"""Recordings are found by any of their names, and the oldest are deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cockpit.model.error import CockpitError
from cockpit.model.event import RunSeen
from cockpit.model.run import RunState
from cockpit.recorder.reading.library import DAY_S, Library, Limits
from cockpit.recorder.reading.recording import Recording
from cockpit.recorder.writing.recorder import Recorder

NOW_S = 1_800_000_000.0


def make(library: Library, run_id: str, name: str, *, age_days: float = 0.0, job: str = "") -> Path:
    path = library.path_of(run_id)
    at_s = NOW_S - age_days * DAY_S
    recorder = Recorder(path, clock=lambda: at_s)
    recorder.take(
        RunSeen(
            at_s=at_s,
            source="telemetry",
            run_id=run_id,
            name=name,
            state=RunState.RUNNING,
            submission_id=job,
        )
    )
    recorder.close()
    os.utime(path, (at_s, at_s))
    return path


def test_a_recording_is_found_by_any_of_its_names(tmp_path: Path) -> None:
    library = Library(tmp_path)
    path = make(library, "3f9a77", "digits", job="train-fb14a4be")
    make(library, "81bb", "other")
    for name in ("3f9a77", "digits", "3f9a", str(path), "3f9a77.cockpit", "train-fb14a4be"):
        assert library.find(name) == path


def test_a_name_that_several_have_is_refused_with_what_they_are(tmp_path: Path) -> None:
    library = Library(tmp_path)
    make(library, "aaa1", "digits", job="train-1")
    make(library, "aaa2", "digits", job="train-1")
    for name in ("digits", "aaa", "train-1"):
        with pytest.raises(CockpitError) as reported:
            library.find(name)
        assert "aaa1" in reported.value.why
        assert "aaa2" in reported.value.why


def test_a_name_that_none_has_is_refused(tmp_path: Path) -> None:
    library = Library(tmp_path)
    with pytest.raises(CockpitError) as reported:
        library.find("nothing")
    assert "There are none in" in reported.value.why
    with pytest.raises(CockpitError):
        library.find("/nowhere/x.cockpit")


def test_the_list_has_the_newest_first(tmp_path: Path) -> None:
    library = Library(tmp_path)
    for age in (5, 1, 9):
        make(library, f"r{age}", "n", age_days=age)
    assert [one.name for one in library.list()] == ["r1", "r5", "r9"]
    assert library.list()[0].summary.run_id == "r1"
    assert library.list()[0].size_bytes > 4_096


def test_old_recordings_are_pruned(tmp_path: Path) -> None:
    library = Library(tmp_path)
    for age in (5, 40, 91):
        make(library, f"r{age}", "n", age_days=age)
    removed = library.prune(Limits(max_age_days=30), lambda: NOW_S)
    assert {path.stem for path in removed} == {"r40", "r91"}
    assert [one.name for one in library.list()] == ["r5"]


def test_the_oldest_goes_when_there_is_too_much(tmp_path: Path) -> None:
    library = Library(tmp_path)
    sizes = {age: make(library, f"r{age}", "n", age_days=age).stat().st_size for age in (1, 2, 3)}
    library.prune(Limits(0, sizes[1] + sizes[2]), lambda: NOW_S)
    assert [one.name for one in library.list()] == ["r1", "r2"]


def test_the_one_that_is_being_written_never_goes(tmp_path: Path) -> None:
    library = Library(tmp_path)
    path = make(library, "r9", "n", age_days=900)
    recorder = Recorder(path)
    recorder.take(
        RunSeen(at_s=NOW_S, source="telemetry", run_id="r9", name="n", state=RunState.RUNNING)
    )
    try:
        while not library.list()[0].recording:
            assert recorder.going
        library.prune(Limits(1, 1), lambda: NOW_S)
        assert path.exists()
        with pytest.raises(CockpitError, match="being recorded now"):
            library.delete(path)
    finally:
        recorder.close()
    library.delete(path)
    assert not list(library.directory.iterdir())


def test_a_recording_that_did_not_change_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, opened = Library(tmp_path), list[str]()
    for name in ("a", "b"):
        make(library, name, "n")
    before = library.list()
    read = Recording.open

    def counted(path: Path) -> Recording:
        opened.append(path.stem)
        return read(path)

    monkeypatch.setattr(Recording, "open", counted)
    assert library.list() == before
    assert opened == []
    make(library, "b", "m", age_days=1)
    assert {row.name for row in library.list()} == {"a", "b"}
    assert opened == ["b"]


def test_a_part_of_a_recording_that_goes_while_it_is_measured_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write-ahead log is removed with the last connection."""
    library = Library(tmp_path)
    size = make(library, "a", "n").stat().st_size
    monkeypatch.setattr(Path, "exists", lambda path, **named: True)
    assert library.list()[0].size_bytes == size
