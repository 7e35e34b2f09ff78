"""Recordings are found by any of their names, and the oldest are deleted."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

from cockpit.model.error import CockpitError, UsageError
from cockpit.model.event import RunSeen
from cockpit.model.run import RunState
from cockpit.recorder.reading.library import DAY_S, Library, Limits, Pruned
from cockpit.recorder.reading.recording import Recording
from cockpit.recorder.writing.recorder import Recorder
from cockpit.recorder.writing.run_recorders import RunRecorders
from cockpit.session.monitored import recorder_limits
from tests.recorder.test_recorder import StoppedThread

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
    pruned = library.prune(Limits(max_age_days=30), lambda: NOW_S)
    assert {path.stem for path in pruned.removed} == {"r40", "r91"}
    assert not pruned.errors
    assert [one.name for one in library.list()] == ["r5"]


def test_one_that_cannot_be_removed_keeps_no_other_from_being_pruned(tmp_path: Path) -> None:
    library = Library(tmp_path)
    removable, blocked = make(library, "r40", "n"), library.path_of("r91")
    blocked.mkdir()  # unlink(2) refuses a directory
    for path, age_days in ((removable, 40), (blocked, 91)):
        os.utime(path, (time.time() - age_days * DAY_S,) * 2)
    reported = list[str]()
    RunRecorders(library, Limits(max_age_days=30), on_message=reported.append)._prune()
    assert reported[0] == "Deleted 1 recordings (retention limit): r40."
    assert reported[1].startswith("Old recordings cannot be removed: ")
    assert str(blocked) in reported[1]
    assert blocked.exists()


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


def test_a_recording_that_its_recorder_has_closed_between_two_writes_is_not_deleted(
    tmp_path: Path,
) -> None:
    library, thread = Library(tmp_path), StoppedThread()
    recorder = Recorder(library.path_of("a"), thread=thread)
    recorder.take(RunSeen(at_s=1.0, source="t", run_id="a", name="a", state=RunState.RUNNING))
    thread.turn()
    recorder.suspend()
    os.utime(recorder.path, (NOW_S, NOW_S))
    assert library.list()[0].recording
    assert library.prune(Limits(1, 1), lambda: NOW_S + 900 * DAY_S) == Pruned()
    with pytest.raises(CockpitError, match="being recorded now"):
        library.delete(recorder.path)
    recorder.finish()
    thread.turn()
    library.delete(recorder.path)
    assert not list(library.directory.iterdir())


def test_a_fresh_recording_is_not_pruned(tmp_path: Path) -> None:
    """On another node, a recorder of many runs may have closed it between two writes."""
    library = Library(tmp_path)
    path = make(library, "a", "a")
    os.utime(path)
    assert library.prune(Limits(0, 1)) == Pruned()
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_age_days", -1), ("max_bytes", -1), ("max_bytes", math.inf), ("max_age_days", math.nan)],
)
def test_a_limit_that_every_recording_exceeds_is_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match="is not understood"):
        recorder_limits({name: value})
