"""Streams of drivers that ended long ago are deleted for new ones."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.drills.script import eventually
from training.telemetry.head.aggregator import Aggregator
from training.telemetry.head.disk_budget import make_room
from training.telemetry.head.stream import StreamFile
from training.telemetry.wire import Run


def stream(directory: Path, name: str, age_s: float, size: int = 100) -> Path:
    path = directory / name
    path.write_bytes(b"x" * size)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_the_oldest_go_until_the_rest_fits(tmp_path: Path) -> None:
    oldest = stream(tmp_path, "telemetry-01000000.jsonl", 9000)
    older = stream(tmp_path, "telemetry-01000000.000001.jsonl", 8000)
    old = stream(tmp_path, "telemetry-02000000.jsonl", 7000)
    other = stream(tmp_path, "raylet.out", 99_000)
    assert make_room(tmp_path, 150, 3600) == [oldest, older]
    assert old.exists()
    assert other.exists()


def test_one_that_may_still_be_written_to_stays(tmp_path: Path) -> None:
    live = stream(tmp_path, "telemetry-01000000.jsonl", 60)
    assert make_room(tmp_path, 10, 3600) == []
    assert live.exists()


def test_where_there_is_no_directory_yet_there_is_room(tmp_path: Path) -> None:
    assert make_room(tmp_path / "cockpit", 10) == []


def test_stream_of_a_driver_that_waits_for_hours_stays(tmp_path: Path) -> None:
    path = tmp_path / "telemetry-01000000.jsonl"
    writer = StreamFile(path)
    writer.append(1.0, Run(run="r", message="waits for resources: 2 workers need 2 GPU"))
    os.utime(path, (time.time() - 1900,) * 2)
    writer.keep(3600)
    assert time.time() - path.stat().st_mtime < 1800
    newest = path.stat().st_mtime_ns
    writer.keep(3600)
    assert path.stat().st_mtime_ns == newest, "not before half of the time has passed"
    writer.close()


def test_aggregator_keeps_its_stream(tmp_path: Path) -> None:
    path = tmp_path / "telemetry-01000000.jsonl"
    path.touch()
    os.utime(path, (time.time() - 9000,) * 2)
    aggregator = Aggregator(path, tick_s=0.001)
    eventually(lambda: time.time() - path.stat().st_mtime < 3600)
    assert make_room(tmp_path, 0, 3600) == []
    aggregator.close()
