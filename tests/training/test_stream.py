"""The stream's files and the aggregator that writes them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from training.telemetry.head.aggregator import Aggregator
from training.telemetry.head.stream import StreamFile
from training.telemetry.names import file_name, segment_of
from training.telemetry.wire import (
    PROGRESS,
    AttemptEnd,
    AttemptStart,
    Body,
    Dump,
    Hang,
    Notice,
    Phase,
    Quorum,
    RanksReplaced,
    Record,
    Report,
    Run,
    Segment,
    Steps,
    Tick,
    Trial,
    Trials,
    WireError,
    Worker,
    decode,
)


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


def steps(rank: int, step: int, attempt: int = 1) -> Steps:
    return Steps(rank=rank, attempt=attempt, t=0.0, step=step, first_step=step, steps_total=step)


def bodies(path: Path) -> list[Body]:
    return [record.body for record in records(path)]


def test_a_new_writer_continues_with_the_numbers_of_the_last(tmp_path: Path) -> None:
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
    found = [(record.seq, record.body) for record in records(path)]
    assert found == [(1, Run(run="r")), (2, Run(run="s"))]


def test_the_stream_is_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    StreamFile(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def ticks(path: Path) -> list[list[tuple[int, int]]]:
    """The rank and the step of each record, by line."""
    found = [body for body in bodies(path) if isinstance(body, Tick)]
    return [[(record.rank, record.step) for record in tick.ranks] for tick in found]


def test_records_are_in_the_file_when_the_push_returns(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    aggregator = Aggregator(path, tick_s=3600)
    aggregator.push("r", [steps(0, 5)])
    assert ticks(path) == [[(0, 5)]]
    aggregator.push("r", [steps(1, 5), steps(1, 6)])
    assert ticks(path) == [[(0, 5)], [(1, 5), (1, 6)]]
    aggregator.close()


def test_record_that_the_writer_before_has_written_is_not_written_again(tmp_path: Path) -> None:
    """It was killed before its answer was sent."""
    path = tmp_path / "s.jsonl"
    killed = Aggregator(path, tick_s=3600)
    killed.push("r", [steps(0, 4)])
    killed.push("r", [steps(0, 5)])
    restarted = Aggregator(path, tick_s=3600)
    restarted.push("r", [steps(0, 5), steps(0, 6)])
    restarted.push("s", [steps(0, 5)])
    restarted.push("r", [steps(0, 5, attempt=2)])
    restarted.close()
    assert ticks(path) == [[(0, 4)], [(0, 5)], [(0, 6)], [(0, 5)], [(0, 5)]]
    numbers = [record.seq for record in records(path)]
    assert numbers == list(range(1, len(numbers) + 1))
    killed.close()


def test_records_of_a_call_without_an_answer_are_written_once(tmp_path: Path) -> None:
    """Ray raises ActorUnavailableError for it, and the aggregator may have received it."""
    path = tmp_path / "s.jsonl"
    aggregator = Aggregator(path, tick_s=3600)
    aggregator.push("r", [steps(0, 4), steps(0, 5)])
    aggregator.push("r", [steps(1, 5)])
    aggregator.push("r", [steps(0, 4), steps(0, 5), steps(0, 6)])
    aggregator.push("r", [steps(0, 6)])
    aggregator.push("r", [steps(0, 5, attempt=2)])
    aggregator.close()
    assert ticks(path) == [[(0, 4), (0, 5)], [(1, 5)], [(0, 6)], [(0, 5)]]


def test_records_that_arrive_after_the_end_of_a_run_are_written_and_nothing_is_kept(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.jsonl"
    aggregator = Aggregator(path, tick_s=3600)
    aggregator.push("r", [steps(0, 5)])
    aggregator.write(2.0, AttemptEnd(run="r", attempt=1))
    aggregator.write(2.0, Run(run="r", state="FINISHED"))
    aggregator.push("r", [steps(1, 5)])
    assert not aggregator._worlds
    aggregator.write(3.0, Run(run="r", state="INITIALIZING"))
    aggregator.push("r", [steps(0, 6, attempt=2)])
    assert set(aggregator._worlds) == {"r"}, "another driver continues it"
    aggregator.close()
    assert ticks(path) == [[(0, 5)], [(1, 5)], [(0, 6)]]


def test_record_at_the_end_of_a_full_file_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    killed = StreamFile(path, disk_bytes=1000, segments=4)
    step = 0
    while len(segments(path)) == 1:
        step += 1
        killed.append(2.0, Tick(run="r", ranks=(steps(0, step),)))
    restarted = StreamFile(path)
    assert restarted.had("r", steps(0, step))
    assert not restarted.had("r", steps(0, step + 1))
    for stream in (killed, restarted):
        stream.close()


def test_an_attempt_runs_from_its_first_step_or_report_and_that_is_reported_once(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.jsonl"
    aggregator = Aggregator(path, tick_s=3600)
    folded = replace(steps(0, 5), t=10.0, first_step=2, step_time_s=0.5)
    aggregator.push("r", [folded])
    aggregator.push("r", [steps(1, 5)])
    aggregator.note("r", 1, 0, "report begins", 3.0)
    aggregator.note("r", 2, 0, "report begins", 4.0)
    aggregator.push("r", [steps(1, 5, attempt=2)])
    aggregator.close()
    found = [record for record in records(path) if isinstance(record.body, Phase)]
    assert [(record.t, record.body) for record in found] == [
        (8.5, Phase(run="r", attempt=1, phase="running")),
        (4.0, Phase(run="r", attempt=2, phase="running")),
    ]


def test_an_attempts_last_steps_come_before_its_end(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    aggregator = Aggregator(path, tick_s=3600)
    aggregator.push("r", [steps(0, 5)])
    aggregator.write(9.0, AttemptEnd(run="r", attempt=1))
    assert [body.KIND for body in bodies(path)] == ["phase", "steps", "attempt_end"]
    aggregator.close()


def test_a_tick_without_news_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    Aggregator(path, tick_s=0.001).close()
    assert records(path) == []


def full_after(written: int) -> Callable[[int, bytes], int]:
    """A disk with space for this number of bytes."""
    left = written
    write = os.write

    def full(file: int, data: bytes) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write(file, data[:left])
        left -= done
        return done

    return full


def test_a_full_disk_costs_ticks_and_not_lifecycle_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.jsonl"
    aggregator = Aggregator(path, tick_s=3600)
    with monkeypatch.context() as patch:
        patch.setattr("training.telemetry.head.stream.os.write", full_after(20))
        aggregator.write(1.0, Run(run="r"))
        aggregator.push("r", [steps(0, 1)])
        aggregator.write(2.0, AttemptEnd(run="r", attempt=1))
    aggregator.write(3.0, Run(run="r", state="RESTARTING"))
    aggregator.close()
    assert len(caplog.records) == 1, "it is said once"
    found = [(record.seq, record.t, record.body.KIND) for record in records(path)]
    # The tick has left a gap.
    assert [(t, kind) for _, t, kind in found] == [
        (1.0, "run"),
        (0.0, "phase"),
        (2.0, "attempt_end"),
        (3.0, "run"),
    ]
    numbers = [seq for seq, _, _ in found]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 5


STORY: tuple[Body, ...] = (
    Run(run="r", name="digits", state="RUNNING", world_size=2),
    AttemptStart(run="r", attempt=1, workers=(Worker(rank=0, pid=5), Worker(rank=1, pid=6))),
    Phase(run="r", attempt=1, phase="running"),
    Report(run="r", attempt=1, metrics={"step": 4.0}, checkpoint="/c1", checkpoint_bytes=7),
    AttemptEnd(run="r", attempt=1, reason="its node died"),
    AttemptStart(run="r", attempt=2, workers=(Worker(rank=0, pid=8),)),
    Trials(experiment="e", trials=(Trial(id="t1"), Trial(id="t2"))),
    Trials(experiment="e", trials=(Trial(id="t1", status="RUNNING"),)),
)


def test_a_notice_is_part_of_the_snapshot(tmp_path: Path) -> None:
    notice = Notice(run="r", attempt=1, rank=0, reason="CheckpointDamaged", message="c is no good")
    stream = StreamFile(tmp_path / "s.jsonl")
    stream.append(1.0, notice)
    assert [record.body for record in stream.snapshot.records()] == [notice]
    stream.close()


def test_snapshot_has_the_newest_quorum_and_the_newest_process_of_each_rank(
    tmp_path: Path,
) -> None:
    def replaced(rank: int, pid: int) -> RanksReplaced:
        return RanksReplaced(run="r", attempt=1, workers=(Worker(rank=rank, pid=pid),))

    def quorum(number: int) -> Quorum:
        return Quorum(run="r", attempt=1, number=number, replicas=3)

    stream = StreamFile(tmp_path / "s.jsonl")
    for body in (quorum(1), replaced(1, 7), quorum(2), replaced(0, 8), replaced(1, 9)):
        stream.append(1.0, body)
    kept = [record.body for record in stream.snapshot.records()]
    assert kept == [quorum(2), replaced(0, 8), replaced(1, 9)]
    stream.close()


def test_progress_of_a_rank_that_was_late_before_a_restart_is_written(tmp_path: Path) -> None:
    """Else the hang would stay until the attempt's end."""
    path = tmp_path / "s.jsonl"
    killed = Aggregator(path, tick_s=3600)
    killed.write(1.0, AttemptStart(run="r", attempt=1, workers=(Worker(rank=0),)))
    restarted = Aggregator(path, tick_s=3600)
    restarted._hangs["r"]._collect_s = 0.0
    progress = Dump(rank=0, attempt=1, t=2.0, number=PROGRESS)
    for _ in range(2):
        restarted.hang(Hang(run="r", attempt=1, dumps=(progress,)))
        restarted._beat()
    restarted.close()
    found = [body for body in bodies(path) if isinstance(body, Hang)]
    assert [body.dumps for body in found] == [(progress,)], "and once"
    killed.close()


def segments(path: Path) -> list[Path]:
    return [path, *sorted(path.parent.glob(f"{path.stem}.??????.jsonl"))]


def long_stream(path: Path, ticks: int) -> None:
    stream = StreamFile(path, disk_bytes=40_000, segments=4)
    for body in STORY:
        stream.append(1.0, body)
    for number in range(ticks):
        stream.append(2.0 + number, Tick(run="r", ranks=(steps(0, number),)))
    stream.close()


def test_a_long_stream_is_a_row_of_files_whose_numbers_continue(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    long_stream(path, 200)
    files = segments(path)
    assert len(files) == 4
    seen: list[int] = []
    for file, after in zip(files, [*files[1:], None], strict=True):
        found = records(file)
        fresh = [record for record in found if record.seq > (seen[-1] if seen else 0)]
        seen += [record.seq for record in fresh]
        if after:
            assert records(after)[0] == found[-1], "the last line of one is the first of the next"
    assert seen == list(range(1, seen[-1] + 1))


def test_stream_size_on_disk_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    long_stream(path, 2000)
    files = [file for file in segments(path) if file.exists()]
    assert len(files) == 4
    assert path not in files
    assert sum(file.stat().st_size for file in files) < 60_000


def test_each_file_repeats_the_snapshot_with_its_old_numbers(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    long_stream(path, 2000)
    newest = records(segments(path)[-1])
    assert isinstance(newest[0].body, Segment)
    repeated = {record.seq: record.body for record in newest[1:] if record.seq < newest[0].seq}
    assert list(repeated) == sorted(repeated)
    first = AttemptStart(run="r", attempt=1)  # the ranks of an old attempt are dropped
    old = Trials(experiment="e", trials=(Trial(id="t2"),))  # t1's earlier state is outdated
    expected = dict(enumerate((STORY[0], first, *STORY[2:6], old, STORY[7]), 1))
    assert repeated == expected


def test_a_new_writer_continues_in_the_newest_file_with_the_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    long_stream(path, 500)
    before = segments(path)[1:]
    last = records(before[-1])[-1].seq
    stream = StreamFile(path, disk_bytes=40_000, segments=4)
    stream.append(9000.0, Run(run="s"))
    assert [record.body for record in stream.snapshot.records()][-2:] == [STORY[7], Run(run="s")]
    stream.close()
    assert segments(path)[1:] == before
    assert records(before[-1])[-1] == Record(last + 1, 9000.0, Run(run="s"))


def test_no_room_for_another_file_is_no_end_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.jsonl"
    stream = StreamFile(path, disk_bytes=300, segments=3)
    opened = os.open

    def full(at: Path, *how: int) -> int:
        if at != path:
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(at, *how)

    with monkeypatch.context() as patch:
        patch.setattr("training.telemetry.head.stream.os.open", full)
        for number in range(5):
            stream.append(float(number), Run(run="r"))
    assert segments(path) == [path]
    assert [record.seq for record in records(path)] == [1, 2, 3, 4, 5]
    assert len(caplog.records) == 1
    stream.append(9.0, Run(run="r"))
    stream.close()
    assert len(segments(path)) == 2


@pytest.mark.parametrize("segment", [0, 1, 999_999, 1_000_000])
def test_a_files_name_reports_of_which_job_it_is_and_which_in_the_row(segment: int) -> None:
    assert segment_of(file_name("01000000", segment)) == ("01000000", segment)


@pytest.mark.parametrize("name", ["cockpit/telemetry-x.jsonl", "telemetry-01.jsonl", "a.log", ""])
def test_other_files_are_none_of_it(name: str) -> None:
    assert segment_of(name) is None
