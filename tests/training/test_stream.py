"""The stream's file and the aggregator that writes it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from training.telemetry.aggregator import Aggregator
from training.telemetry.stream import StreamFile
from training.telemetry.wire import AttemptEnd, Record, Run, Steps, Tick, WireError, decode


def records(path: Path) -> list[Record]:
    found: list[Record] = []
    for line in path.read_text().splitlines():
        try:
            record = decode(line)
        except WireError:
            continue
        assert record is not None
        found.append(record)
    return found


def steps(rank: int, step: int) -> Steps:
    return Steps(rank=rank, attempt=1, t=0.0, step=step, first_step=step, steps_total=step)


def test_a_new_writer_goes_on_with_the_numbers_of_the_last(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "s.jsonl"
    for _ in range(2):
        stream = StreamFile(path)
        stream.append(1.0, Run(run="r"))
        stream.append(2.0, Run(run="r"))
        stream.close()
    assert [record.seq for record in records(path)] == [1, 2, 3, 4]


def test_a_line_torn_by_a_crash_is_closed_off(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    stream = StreamFile(path)
    stream.append(1.0, Run(run="r"))
    stream.close()
    with path.open("a") as file:
        file.write('{"v":1,"seq":2,"t":1.0,"ki')
    stream = StreamFile(path)
    stream.append(2.0, Run(run="s"))
    stream.close()
    assert [(record.seq, record.body.run) for record in records(path)] == [(1, "r"), (2, "s")]


def test_the_stream_is_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    StreamFile(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_came_in_during_a_tick_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    aggregator = Aggregator(path, tick_s=3600)
    aggregator.push("r", [steps(0, 5)])
    aggregator.push("r", [steps(1, 5), steps(1, 6)])
    aggregator.close()
    (tick,) = [record.body for record in records(path)]
    assert isinstance(tick, Tick)
    assert [(record.rank, record.step) for record in tick.ranks] == [(0, 5), (1, 5), (1, 6)]


def test_an_attempts_last_steps_come_before_its_end(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    aggregator = Aggregator(path, tick_s=3600)
    aggregator.push("r", [steps(0, 5)])
    aggregator.write(9.0, AttemptEnd(run="r", attempt=1))
    assert [record.body.KIND for record in records(path)] == ["steps", "attempt_end"]
    aggregator.close()


def test_a_tick_without_news_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    Aggregator(path, tick_s=0.001).close()
    assert records(path) == []


def test_a_full_disk_stops_neither_training_nor_the_stream_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.jsonl"
    aggregator = Aggregator(path, tick_s=3600)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("training.telemetry.stream.os.write", full)
        aggregator.write(1.0, Run(run="r"))
        aggregator.write(2.0, Run(run="r"))
    aggregator.write(3.0, Run(run="r"))
    aggregator.close()
    assert len(caplog.records) == 1
    assert [(record.seq, record.t) for record in records(path)] == [(1, 3.0)]
