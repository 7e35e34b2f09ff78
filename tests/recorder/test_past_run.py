"""A recording of a run that is over appears as a whole, or not at all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from cockpit.model.error import CockpitError
from cockpit.model.event import Event, RunSeen
from cockpit.model.run import RunState, RunSummary
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.recording import Recording
from cockpit.recorder.writing import past_run

SUMMARY = RunSummary("a", "digits", "", RunState.FINISHED)
EVENTS = tuple(
    RunSeen(at_s=at_s, source="telemetry", run_id="a", name="digits", state=state)
    for at_s, state in ((1.0, RunState.RUNNING), (2.0, RunState.FINISHED))
)

KILLED = """
import os, sys
from pathlib import Path
from cockpit.recorder.writing import past_run
from tests.recorder.test_past_run import EVENTS, SUMMARY

def events():
    yield EVENTS[0]
    yield EVENTS[0]
    os.kill(os.getpid(), 9)

past_run.COMMIT_EVENTS = 1
past_run.write(Path(sys.argv[1]), SUMMARY, events())
"""


def test_an_import_that_is_killed_leaves_no_recording_and_is_repeated(tmp_path: Path) -> None:
    library = Library(tmp_path)
    path = library.path_of("a")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -9
    assert not library.list()
    past_run.write(path, SUMMARY, EVENTS)
    assert list(library.directory.iterdir()) == [path]
    with Recording.open(path) as found:
        assert list(found.events()) == list(EVENTS)
        assert found.closed


def test_an_import_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[Event]:
        yield EVENTS[0]
        raise OSError("no space left")

    path = tmp_path / "a.cockpit"
    with pytest.raises(CockpitError, match="cannot be written"):
        past_run.write(path, SUMMARY, cast("tuple[Event, ...]", broken()))
    assert not list(tmp_path.iterdir())


def test_an_import_replaces_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.cockpit"
    past_run.write(path, SUMMARY, EVENTS)
    before = path.read_bytes()
    with pytest.raises(CockpitError, match="a recording of the run already"):
        past_run.write(path, SUMMARY, EVENTS[:1])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
