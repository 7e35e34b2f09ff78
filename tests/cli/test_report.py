"""`cockpit report` from a recording to a file, to standard output, and to a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from cockpit.cli.main import main
from cockpit.cli.recordings.report import form
from cockpit.config import paths
from cockpit.model.event import Event, Notice
from cockpit.recorder.file import Lock
from cockpit.recorder.reading.library import Library
from cockpit.recorder.writing.recorder import Recorder
from tests.report.runs import PASSWORD, RUN, START_S, TOKEN, events


def record(name: str, reported: Iterable[Event] | None = None) -> Path:
    """A recording in the user's directory, as if its events had arrived when they happened."""
    path = Library(paths.state_dir()).directory / f"{RUN}.cockpit"
    now = [START_S]
    recorder = Recorder(path, clock=lambda: now[0])
    for event in sorted(reported or events(name), key=lambda event: event.at_s):
        now[0] = event.at_s
        recorder.take(event)
    recorder.close()
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def test_a_recorded_run_becomes_a_file_and_the_path_is_reported(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record("llama-ft")
    assert main(["report", "llama-ft"]) == 0
    (written,) = here.iterdir()
    assert written.name == f"llama-ft-{path.stem}.html"
    assert capsys.readouterr().out.startswith(f"Wrote {written.name} (")
    page = written.read_text()
    assert "Finished after 10 m 00 s; 5,100 steps" in page
    assert TOKEN not in page
    assert PASSWORD not in page
    assert oct(written.stat().st_mode & 0o777) == oct(0o666 & ~_umask())


def test_a_recording_that_was_left_reports_that_it_ends_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = record("llama-ft", (e for e in events("llama-ft") if e.at_s < START_S + 100))
    asked = ["report", "raysubmit_1", "-o", "md", "--out", "-"]  # as its job is called
    assert main(asked) == 0
    reported = capsys.readouterr().out
    assert "The recording ends after 1 m " in reported
    assert "before the end of the run, which was running; " in reported
    assert "recorded until" in reported
    lock = Lock(path)
    lock.take()
    try:
        assert main(asked) == 0
        assert "Still running after 1 m " in capsys.readouterr().out
    finally:
        lock.release()


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_a_recording_from_elsewhere_is_read_by_its_path(here: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.cockpit"
    record("llama-ft").rename(moved)
    assert main(["report", str(moved), "--out", "a.md"]) == 0
    assert (here / "a.md").read_text().startswith("# Run llama-ft\n")
    assert main(["report", str(moved), "-o", "md", "--out", str(here)]) == 0
    assert (here / "llama-ft-elsewhere.md").read_text() == (here / "a.md").read_text()


def test_json_on_standard_output_has_the_numbers_as_they_are(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record("llama-ft")
    assert main(["report", RUN, "-o", "json", "--out", "-"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert list(here.iterdir()) == []
    assert reported["outcome"] == "mixed"
    assert reported["sections"]["numbers"]["duration_s"] == 600.0
    assert reported["sections"]["attempts"]["attempts"][1]["reason"] == "preempted"
    assert sum(reported["sections"]["goodput"]["shares_percent"].values()) == pytest.approx(100.0)
    assert PASSWORD not in json.dumps(reported)


def test_report_format_is_set_by_the_flag_then_by_the_file_ending() -> None:
    assert form(None, None) == "html"
    assert form(None, "-") == "html"
    assert form(None, "a/b.MD") == "md"
    assert form(None, "a.json") == "json"
    assert form("html", "a.md") == "html"


def test_name_without_a_recording_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "nothing"]) == 2
    assert "There is no recording 'nothing'." in capsys.readouterr().err


def test_a_recording_without_a_run_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.cockpit"
    recorder = Recorder(empty, run_id="nobody")
    recorder.take(
        Notice(at_s=1.0, source="backend", kind="Pod", name="p", reason="Killed", message="")
    )
    recorder.close()
    assert main(["report", str(empty)]) == 2
    assert "contains no run" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_a_sentence_and_leaves_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record("llama-ft")
    assert main(["report", "llama-ft", "--out", str(here / "none" / "a.html")]) == 1
    assert "The report cannot be written to" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_a_report_that_is_there_stays_when_the_new_one_fails(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record("llama-ft")
    old = here / "a.html"
    old.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert main(["report", "llama-ft", "--out", "a.html"]) == 1
    assert old.read_text() == "old"
    assert [path.name for path in here.iterdir()] == ["a.html"]


def test_a_report_loads_no_screen_and_no_cluster() -> None:
    record("llama-ft")
    program = (
        "import sys; from cockpit.cli.main import main;"
        "main(['report', 'llama-ft', '-o', 'md', '--out', '-']);"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'textual', 'rich', 'httpx',"
        " 'kubernetes', 'ray', 'torch', 'numpy'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
