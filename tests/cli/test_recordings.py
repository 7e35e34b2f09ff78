"""The verbs on recordings, on files that the recorder wrote; no cluster is needed."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.cli.main import main
from cockpit.cli.recordings.replay import seconds
from cockpit.config import paths
from cockpit.model.error import UsageError
from cockpit.model.event import JobsListed
from cockpit.recorder.reading.library import Library
from tests.recorder.test_recorder import record, script
from tests.tui.simulated import JOB, RUN, START_S


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    path = Library(paths.state_dir()).path_of(RUN)
    record(path, script(200))
    return path


def asked(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> Any:
    assert main([*argv, "-o", "json"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_recordings_are_listed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = asked(capsys, "recordings")
    assert found["name"] == RUN
    assert found["run"] == "digits"
    assert found["attempts"] == 2
    assert found["size_bytes"] == path.stat().st_size
    assert main(["recordings"]) == 0
    assert re.search(rf"{RUN}\s+digits\s+RUNNING", capsys.readouterr().out)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        ("DIGITS", 1),
        ("state=running attempts>=2 cluster~local", 1),
        ("tags~base", 1),
        ("attempts>2", 0),
        ("recording=true", 0),
        ("nothing", 0),
    ],
)
def test_recordings_are_filtered_by_text_and_values(
    text: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recordings", "tag", RUN, "base-1"]) == 0
    capsys.readouterr()
    assert len(asked(capsys, "recordings", "--filter", text)) == count


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_declined_deletion_fails_and_leaves_the_recording(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert main(["recordings", "delete", "digits"]) == 1
    assert path.exists()


def test_two_recordings_are_compared_by_settings_nodes_and_metrics(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / f"other{path.suffix}"
    events = []
    for event in script(120):
        if isinstance(event, JobsListed):
            jobs = [
                replace(job, entrypoint=f"{job.entrypoint} --lr 0.2 --fast") for job in event.jobs
            ]
            event = replace(event, jobs=tuple(jobs))
        events.append(event)
    record(other, events)
    found = asked(capsys, "recordings", "compare", RUN, str(other))
    assert [run["name"] for run in found["runs"]] == ["digits", "digits"]
    rows = {row["name"]: row for row in found["parameters"]}
    assert (rows["lr"]["first"], rows["lr"]["second"], rows["lr"]["differs"]) == ("", "0.2", True)
    assert rows["fast"]["second"] == "yes"
    assert rows["Ray"]["first"] == "2.60.0"
    assert not rows["nodes"]["differs"]
    metrics = {row["name"]: row for row in found["metrics"]}
    assert metrics["steps"]["difference"].startswith("-")
    assert not metrics["attempts"]["differs"]
    assert main(["recordings", "compare", RUN, str(other)]) == 0
    shown = capsys.readouterr().out
    assert "differ" in shown
    assert re.search(r"^lr\s+–\s+0\.2", shown, re.MULTILINE)
    assert main(["recordings", "compare", RUN]) == 2
    assert "takes two recordings" in capsys.readouterr().err


def test_recordings_are_tagged_and_listed_by_tag(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = path.with_name(f"other{path.suffix}")
    record(other, script(120))
    (found,) = asked(capsys, "recordings", "tag", "other", "sweep-3", "good", "good")
    assert found["tags"] == ["sweep-3", "good"]
    asked(capsys, "recordings", "untag", "other", "good")
    (found,) = asked(capsys, "recordings", "note", "other", "lr was", "too high")
    assert found == {"name": "other", "tags": ["sweep-3"], "note": "lr was too high"}
    (row,) = asked(capsys, "recordings", "--tag", "sweep-3")
    assert row["name"] == "other"
    assert row["note"] == "left before its end; lr was too high"
    assert row["cluster"] == "local:demo"
    rows = asked(capsys, "recordings", "--sort", "steps")
    assert [row["name"] for row in rows] == [RUN, "other"]
    asked(capsys, "recordings", "note", "other")
    asked(capsys, "recordings", "untag", "other", "sweep-3")
    assert sorted(file.name for file in path.parent.iterdir()) == [other.name, path.name]


def test_dry_run_prints_tags_and_note_and_changes_neither(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(capsys, "recordings", "tag", RUN, "good")
    for argv, planned in (
        (("tag", RUN, "best"), "tags: good, best; note: none"),
        (("untag", RUN, "good"), "tags: none; note: none"),
        (("note", RUN, "too slow"), "tags: good; note: too slow"),
    ):
        assert main(["recordings", *argv, "--dry-run"]) == 0
        assert capsys.readouterr().err.splitlines() == [
            f"{RUN}: {planned}",
            "Dry run: nothing was changed.",
        ]
    (row,) = asked(capsys, "recordings")
    assert row["tags"] == ["good"]


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (("tag", RUN), "takes a recording and tags"),
        (("note",), "takes a recording and a text"),
        (("tag", RUN, "two words"), "cannot be a tag"),
        (("tag", "nothing", "x"), "There is no recording 'nothing'"),
        (("--sort", "colour"), "There is no column 'colour'"),
        (("--filter", "colour=red"), "there is no column colour"),
    ],
)
def test_wrong_tags_notes_and_columns_are_refused(
    path: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], reported: str
) -> None:
    assert main(["recordings", *argv]) == 2
    assert reported in capsys.readouterr().err


def test_a_recording_is_deleted_when_that_is_confirmed(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recordings", "delete", "digits", "--dry-run"]) == 0
    assert path.exists()
    assert main(["recordings", "delete", "digits"]) == 2
    assert "This deletes recordings and asks for confirmation" in capsys.readouterr().err
    assert main(["--read-only", "recordings", "delete", "digits", "--yes"]) == 4
    assert "cockpit recordings deletes recordings, and" in capsys.readouterr().err
    assert path.exists()
    assert main(["recordings", "delete", "digits", "--yes"]) == 0
    assert not path.exists()
    assert main(["recordings", "delete", "digits", "--yes"]) == 2
    assert "There is no recording 'digits'" in capsys.readouterr().err


def test_only_a_recording_that_is_named_is_deleted(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "train.py"
    other.write_text("code")
    assert main(["recordings", "delete", "train.py", "--yes"]) == 2
    assert "train.py is not a recording." in capsys.readouterr().err
    assert other.exists()
    assert main(["recordings", "delete", "", "--yes"]) == 2  # as of an unset variable
    assert "The name of the recording is empty." in capsys.readouterr().err
    assert path.exists()


def test_a_moment_of_a_recording_is_reported_without_a_screen(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    then = asked(capsys, "replay", "digits", "--headless", "--at", "1m")
    assert then["at_s"] == START_S + 60
    assert then["run"]["state"] == "RUNNING"
    assert then["run"]["attempt"] == 1
    end = asked(capsys, "replay", str(path), "--headless")
    assert end["run"]["attempt"] == 2
    assert end["markers"][1]["kind"] == "drill"
    assert end["cluster"]["name"] == "demo"
    assert main(["replay", "digits", "--headless", "--at", "1m25s"]) == 0
    assert "RESCHEDULING" in capsys.readouterr().out


def test_file_that_is_no_recording_is_an_error_without_traceback(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = path.with_name("other.cockpit")
    other.write_text("no database, but long enough to be one " * 50)
    for name in (str(other), "nothing"):
        for verb in ("replay", "export"):
            assert main([verb, name, "-o", "json"]) in (1, 2)
            reported = capsys.readouterr().err
            assert "Traceback" not in reported
            assert name in reported


@pytest.mark.parametrize(
    ("text", "found"),
    [("90", 90), ("90s", 90), ("1.5s", 1.5), ("5m", 300), ("1h30m", 5400), ("1d", 86400)],
)
def test_a_time_is_read(text: str, found: float) -> None:
    assert seconds(text) == found


@pytest.mark.parametrize("text", ["", "soon", "5x", "-3", "m"])
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        seconds(text)


@pytest.mark.parametrize("speed", ["0", "-1", "1e9"])
def test_a_speed_that_is_none_is_refused(path: Path, speed: str) -> None:
    assert main(["replay", "digits", "--speed", speed, "--headless"]) == 2


def test_a_recording_is_exported_as_csv(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["name"]: row["rows"] for row in asked(capsys, "export", RUN, "--format", "csv")}
    with Path(RUN, "samples.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == found["samples"] == 2 * (63 + 102)
    assert float(rows[0]["loss"]) > 2
    assert rows[0]["gpu_power_w"] == ""
    with Path(RUN, "attempts.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["reason"].startswith("Worker group")


def test_a_recording_is_found_by_its_job(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "recordings")[0]["submission_id"] == JOB
    assert asked(capsys, "replay", JOB, "--headless")["path"] == str(path)
    assert main(["export", JOB, "--format", "csv", "--out", "by-job"]) == 0
    assert Path("by-job", "samples.csv").exists()


def test_a_recording_is_exported_as_json_lines(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(capsys, "export", str(path), "--format", "jsonl", "--out", str(tmp_path / "out"))
    tables = {
        file.stem: [json.loads(line) for line in file.read_text().splitlines()]
        for file in (tmp_path / "out").iterdir()
    }
    assert {"samples", "curves", "reports", "attempts", "checkpoints", "events", "logs"} <= set(
        tables
    )
    assert tables["checkpoints"][0]["path"].startswith("/tmp/digits/")
    assert {row["metric"] for row in tables["reports"]} == {"loss", "accuracy", "epoch"}
    assert any(row["kind"] == "DrillInjected" for row in tables["events"])
    assert [row["attempt"] for row in tables["attempts"]] == [1, 2]


def test_a_recording_is_exported_as_parquet(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = {row["name"]: row for row in asked(capsys, "export", RUN, "--out", str(tmp_path / "p"))}
    table = parquet.read_table(found["samples"]["path"])
    assert table.num_rows == found["samples"]["rows"]
    assert str(table.schema.field("loss").type) == "double"
    assert str(table.schema.field("step").type) == "int64"
    assert table.column("gpu_power_w").null_count == table.num_rows


def test_without_pyarrow_parquet_is_refused_with_what_to_do(
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["export", RUN, "--out", str(tmp_path / "p")]) == 1
    assert "cockpit[export]" in capsys.readouterr().err
    assert not (tmp_path / "p").exists()


def test_a_replay_on_a_terminal_shows_the_run_and_ends_with_q(path: Path) -> None:
    main_fd, terminal = pty.openpty()
    environ = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-m", "cockpit", "replay", "digits", "--at", "1m"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,  # where Textual draws
        env=environ,
    )
    os.close(terminal)
    seen = b""
    deadline = time.monotonic() + 60
    while b"REPLAY" not in seen:
        assert time.monotonic() < deadline, seen[-2_000:]
        if select.select([main_fd], [], [], 0.5)[0]:
            seen += os.read(main_fd, 65_536)
    os.write(main_fd, b"q")
    while process.poll() is None:
        assert time.monotonic() < deadline
        if select.select([main_fd], [], [], 0.2)[0]:
            try:
                os.read(main_fd, 65_536)
            except OSError:
                break
    assert process.wait(20) == 0
    os.close(main_fd)


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGHUP, signal.SIGINT]])
def test_record_ends_cleanly_and_a_hang_up_does_not_end_it(
    tmp_path: Path, signals: list[signal.Signals]
) -> None:
    environ = os.environ | {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    # There is no server at this address: the outage continues, and is waited for.
    process = subprocess.Popen(
        [sys.executable, "-m", "cockpit", "record", "--address", "http://127.0.0.1:9"],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environ,
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    assert "waiting for a run" in first
    for number in signals[:-1]:
        process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
    process.send_signal(signals[-1])
    assert process.wait(20) == 0
    assert "the recording is complete" in process.stderr.read()
    process.stderr.close()
