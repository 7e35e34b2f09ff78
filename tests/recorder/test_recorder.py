"""The recorder's input is in its file, also after errors."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.model.error import CockpitError
from cockpit.model.event import (
    AttemptStarted,
    Event,
    LogLines,
    Marked,
    MetricsReported,
    NodesListed,
    PodsListed,
    RankSampled,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import RunState
from cockpit.recorder.file import Lock, LockedError, is_held
from cockpit.recorder.reading.recording import Recording
from cockpit.recorder.writing import recorder as recorder_module
from cockpit.recorder.writing import recorder_thread
from cockpit.recorder.writing.recorder import Recorder
from cockpit.recorder.writing.recorder_thread import RecorderThread
from cockpit.recorder.writing.writer import Writer
from cockpit.store.store import Store
from tests.tui.simulated import JOB, RUN, START_S, _digits

RUNNING = RunSeen(at_s=START_S, source="telemetry", run_id="a", name="a", state=RunState.RUNNING)
KEPT = (RankSampled, RunSeen, AttemptStarted, MetricsReported, Marked)


class StoppedThread(RecorderThread):
    """Writes only when the test calls `turn`."""

    def _start(self) -> None:
        pass

    def turn(self) -> None:
        self._write()


def script(until_s: float = 200.0, kill_s: float | None = 80.0) -> list[Event]:
    return sorted(_digits(kill_s, until_s), key=lambda event: event.at_s)


def record(path: Path, events: Iterable[Event], **options: object) -> Recorder:
    """As if the events arrived when they happened."""
    now = [START_S]
    recorder = Recorder(path, clock=lambda: now[0])
    for event in events:
        now[0] = event.at_s
        recorder.take(event)
    recorder.close()
    return recorder


def wait_until(true: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def own(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, KEPT)]


def test_a_run_is_recorded_whole(tmp_path: Path) -> None:
    events = script()
    record(tmp_path / "a.cockpit", events)
    with Recording.open(tmp_path / "a.cockpit") as found:
        assert own(found.events()) == own(events)
        assert found.closed
        assert not found.damage
        assert found.begin_s == START_S
        assert found.end_s == max(event.at_s for event in found.events())


def test_the_store_of_a_recording_is_the_store_that_was_live(tmp_path: Path) -> None:
    events = script()
    record(tmp_path / "a.cockpit", events)
    live = Store()
    for event in events:
        live.apply(event)
    with Recording.open(tmp_path / "a.cockpit") as found:
        store = found.store()
    mine, theirs = store.runs[RUN], live.runs[RUN]
    assert mine.states == theirs.states
    assert mine.attempts == theirs.attempts
    assert mine.checkpoints == theirs.checkpoints
    assert mine.samples_seen == theirs.samples_seen
    for name in theirs.curves:
        assert list(mine.curves[name]) == list(theirs.curves[name])
    assert store.pods == live.pods
    assert store.removed_pods == live.removed_pods
    assert store.jobs == live.jobs
    assert store.drills == live.drills
    assert list(store.notices) == list(live.notices)
    assert list(store.logs[f"job:{JOB}"].lines) == list(live.logs[f"job:{JOB}"].lines)
    assert store.sources.keys() == live.sources.keys()


def test_the_store_at_a_moment_knows_nothing_later(tmp_path: Path) -> None:
    record(tmp_path / "a.cockpit", script())
    with Recording.open(tmp_path / "a.cockpit") as found:
        store = found.store(START_S + 50)
        assert store.runs[RUN].attempts.keys() == {1}
        assert not store.drills
        assert store.runs[RUN].curves["loss"].times[-1] <= START_S + 50


def test_a_part_is_read_without_the_rest(tmp_path: Path) -> None:
    events = script()
    record(tmp_path / "a.cockpit", events)
    with Recording.open(tmp_path / "a.cockpit") as found:
        part = list(found.events(START_S + 30, START_S + 40))
    assert own(part) == [e for e in own(events) if START_S + 30 <= e.at_s <= START_S + 40]


def test_repeated_state_is_written_once(tmp_path: Path) -> None:
    events = script(until_s=300, kill_s=None)
    record(tmp_path / "a.cockpit", events)
    with Recording.open(tmp_path / "a.cockpit") as found:
        kept = list(found.events())
    nodes = [event for event in kept if isinstance(event, NodesListed)]
    assert len(nodes) <= 300 / 10 + 2
    assert sum(isinstance(event, PodsListed) for event in kept) == 2
    health = [event.at_s for event in kept if isinstance(event, SourceHealth)]
    assert 3 * 300 / 5 <= len(health) <= 3 * 300 / 4 + 3


def test_a_node_that_dies_is_reported_at_once(tmp_path: Path) -> None:
    events = script()
    first = next(event for event in events if isinstance(event, NodesListed))
    dead = replace(
        first, at_s=first.at_s + 1, nodes=(replace(first.nodes[0], alive=False), *first.nodes[1:])
    )
    record(tmp_path / "a.cockpit", [first, dead])
    with Recording.open(tmp_path / "a.cockpit") as found:
        assert list(found.events()) == [first, dead]


def test_another_run_of_the_same_cluster_is_left_out(tmp_path: Path) -> None:
    mine = RunSeen(at_s=START_S, source="telemetry", run_id="a", name="n", state=RunState.RUNNING)
    record(tmp_path / "a.cockpit", [mine, replace(mine, run_id="b", at_s=START_S + 1)])
    with Recording.open(tmp_path / "a.cockpit") as found:
        assert list(found.events()) == [mine]


def test_a_log_that_never_ends_is_cut_and_reports_it(tmp_path: Path) -> None:
    seen = RunSeen(
        at_s=START_S, source="t", run_id="a", name="n", state=RunState.RUNNING, submission_id="j"
    )
    lines = [
        LogLines(at_s=START_S + n / 100, source="logs", stream="job:j", lines=("x" * 999,) * 20)
        for n in range(200)
    ]
    later = LogLines(at_s=START_S + 100, source="logs", stream="job:j", lines=("the end",))
    other = LogLines(at_s=START_S + 100, source="logs", stream="pod:p", lines=("elsewhere",))
    record(tmp_path / "a.cockpit", [seen, *lines, later, other])
    with Recording.open(tmp_path / "a.cockpit") as found:
        log = list(found.store().logs["job:j"].lines)
        assert "pod:p" not in found.store().logs
    assert log[-1] == "the end"
    assert "lines are not in the recording" in log[-2]
    assert 900 < len(log) < 1_200


def test_the_log_of_a_job_whose_name_begins_equally_is_left_out(tmp_path: Path) -> None:
    seen = RunSeen(
        at_s=START_S, source="t", run_id="a", name="n", state=RunState.RUNNING, submission_id="j-1"
    )
    logs = [
        LogLines(at_s=START_S + 1, source="logs", stream=stream, lines=("x",))
        for stream in ("job:j-1", "job:j-12")
    ]
    record(tmp_path / "a.cockpit", [seen, *logs])
    with Recording.open(tmp_path / "a.cockpit") as found:
        assert [*found.store().logs] == ["job:j-1"]


def test_a_history_that_is_read_late_is_replayed_at_its_time(tmp_path: Path) -> None:
    events = own(script(60, None))
    recorder = Recorder(tmp_path / "a.cockpit", clock=lambda: START_S + 1_000)
    recorder.take(Marked(at_s=START_S + 900, source="user", text="attached"))
    for event in events:
        recorder.take(event)
    recorder.close()
    with Recording.open(tmp_path / "a.cockpit") as found:
        assert own(found.events())[:-1] == events
        assert found.begin_s == events[0].at_s


def test_an_event_from_a_clock_that_is_ahead_is_replayed_when_it_came(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.cockpit", clock=lambda: START_S)
    ahead = Marked(at_s=START_S + 5_000, source="user", text="ahead")
    recorder.take(ahead)
    recorder.close()
    with Recording.open(tmp_path / "a.cockpit") as found:
        assert list(found.timed()) == [(START_S, ahead)]


def test_a_recording_that_is_continued_has_nothing_twice(tmp_path: Path) -> None:
    path, events = tmp_path / "a.cockpit", script()
    half = [event for event in events if event.at_s < START_S + 100]
    record(path, half)
    record(path, own(events))  # a new cockpit reads the stream from its start again
    with Recording.open(path) as found:
        assert own(found.events()) == own(events)
        assert found.run.attempts == 2


def test_the_end_of_a_log_that_is_read_again_is_not_written_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.cockpit"
    seen = RunSeen(
        at_s=START_S, source="t", run_id="a", name="n", state=RunState.RUNNING, submission_id="j"
    )
    lines = tuple(f"line {n}" for n in range(40))

    def log(at_s: float, part: tuple[str, ...]) -> LogLines:
        return LogLines(at_s=START_S + at_s, source="logs", stream="job:j", lines=part)

    record(path, [seen, log(1, lines[:10]), log(2, lines[10:20])])
    record(path, [seen, log(9, lines[5:30]), log(10, lines[30:])])
    record(path, [seen, log(20, lines[35:])])
    with Recording.open(path) as found:
        assert tuple(found.store().logs["job:j"].lines) == lines


def test_the_recording_of_a_run_that_is_over_is_left_alone(tmp_path: Path) -> None:
    path, events = tmp_path / "a.cockpit", script(60, None)
    seen = next(event for event in events if isinstance(event, RunSeen))
    over = replace(seen, at_s=START_S + 60, state=RunState.FINISHED)
    record(path, [*events, over])
    before = path.read_bytes()
    record(path, [*events, over])
    with Recording.open(path) as found:
        assert own(found.events()) == own([*events, over])
        assert found.run.state is RunState.FINISHED
    assert len(path.read_bytes()) == len(before)


def test_events_are_on_disk_within_a_second_or_so(tmp_path: Path) -> None:
    path = tmp_path / "a.cockpit"
    recorder = Recorder(path)
    for event in script(30, None):
        recorder.take(event)
    try:
        wait_until(lambda: path.exists() and _samples(path) == 13)
    finally:
        recorder.close()


def _samples(path: Path) -> int:
    try:
        with Recording.open(path) as found:
            return sum(isinstance(event, RankSampled) for event in found.events())
    except CockpitError:
        return -1


def test_the_second_recorder_of_a_run_reports_it_and_ends_without_a_write(tmp_path: Path) -> None:
    path, reported = tmp_path / "a.cockpit", list[str]()
    first = Recorder(path)
    first.take(script()[0])
    wait_until(path.exists)
    second = Recorder(path, on_message=reported.append)
    wait_until(lambda: bool(second.trouble))
    second.take(script()[0])
    second.close()
    assert not second.going
    assert reported == ["Run a is not being recorded: another cockpit is recording it already."]
    assert first.going
    first.close()
    third = Recorder(path)
    third.take(script()[0])
    third.close()
    assert not third.trouble


def _reported(second: int) -> MetricsReported:
    return MetricsReported(
        at_s=START_S + second, source="telemetry", run_id="a", attempt=1, metrics={"n": second}
    )


def _printed(second: int, *lines: int) -> LogLines:
    texts = tuple(map(str, lines))
    return LogLines(at_s=START_S + second, source="log", stream="job:j", lines=texts)


def test_the_second_recorder_of_a_run_continues_when_the_first_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "RETRY_EVERY_S", 0.0)
    path, now, told = tmp_path / "a.cockpit", [START_S], list[str]()
    threads = StoppedThread(), StoppedThread()
    first, second = (
        Recorder(path, run_id="a", thread=thread, clock=lambda: now[0], on_message=told.append)
        for thread in threads
    )
    job = replace(RUNNING, submission_id="j")
    for event in (job, *(_reported(second) for second in range(1, 100))):
        now[0] = event.at_s
        for recorder in (first, second):
            recorder.take(event)
        for thread in threads:
            thread.turn()
    assert told == ["Run a is not being recorded: another cockpit is recording it already."]
    assert threads[1]._weight <= recorder_module.OTHERS_LAG_S + 1, "the others are in the file"
    # Each reads the log by itself.
    for event in (_printed(99, *range(3)), _printed(99, *range(3, 10))):
        first.take(event)
    for event in (_printed(99, *range(5)), _printed(99, *range(5, 12))):
        second.take(event)
    for event in (replace(_printed(99, 7), stream="job:other"), _reported(100)):
        second.take(event)
    first.finish()
    for thread in threads:
        thread.turn()
    assert told[1:] == ["The recording of run a continues."]
    second.take(_reported(101))
    second.finish()
    threads[1].turn()
    assert threads[1]._weight == 0
    assert not second.dropped
    with Recording.open(path) as found:
        events = list(found.events())
    numbers = [event.metrics["n"] for event in events if isinstance(event, MetricsReported)]
    assert numbers == list(range(1, 102))
    logs = [event for event in events if isinstance(event, LogLines)]
    assert [line for log in logs for line in log.lines] == [str(line) for line in range(12)]


def test_a_run_that_another_cockpit_records_takes_no_turn_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_thread, "OPENED_IN_A_TURN", 1)
    lock = Lock(tmp_path / "a.cockpit")
    lock.take()
    thread = StoppedThread()
    recorders = [Recorder(tmp_path / f"{name}.cockpit", thread=thread) for name in "ab"]
    thread.turn()
    assert [recorder.is_open for recorder in recorders] == [False, True]
    for recorder in recorders:
        recorder.finish()
    thread.turn()
    lock.release()


SUSPENDED = """
import sys
from pathlib import Path
from cockpit.recorder.file import Lock
lock = Lock(Path(sys.argv[1]))
lock.take()
lock.suspend()
print("suspended", flush=True)
sys.stdin.read()
"""


def test_a_suspended_recording_is_its_recorders_until_its_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.cockpit"
    other = subprocess.Popen(
        [sys.executable, "-c", SUSPENDED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"suspended\n"
        assert is_held(path)
        lock = Lock(path)
        with pytest.raises(LockedError):
            lock.take()
        other.kill()
    assert not is_held(path)
    lock.take()
    lock.suspend()
    assert is_held(path)
    lock.release()
    assert not is_held(path)
    assert not list(tmp_path.iterdir())


def test_a_listing_that_looks_at_the_lock_stops_no_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.cockpit"
    lock = Lock(path)
    listing = os.open(lock.path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(listing, fcntl.LOCK_SH)
    assert not is_held(path), "another listing is no recorder"
    monkeypatch.setattr(time, "sleep", lambda seconds: fcntl.flock(listing, fcntl.LOCK_UN))
    lock.take()
    assert is_held(path)
    lock.release()
    os.close(listing)


def test_messages_have_the_name_of_the_run_once_it_is_known(tmp_path: Path) -> None:
    (tmp_path / "recordings").write_text("a file where the directory should be")
    reported, events = list[str](), script(30)
    [run_id] = {event.run_id for event in events if isinstance(event, RunSeen)}
    thread = StoppedThread()
    recorder = Recorder(
        tmp_path / "recordings" / "a.cockpit",
        run_id=run_id,
        on_message=reported.append,
        thread=thread,
    )
    for event in events:
        recorder.take(event)
    thread.turn()
    assert reported[0].startswith("Run digits is not being recorded: ")


def test_a_directory_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "recordings").write_text("a file where the directory should be")
    reported = list[str]()
    recorder = Recorder(tmp_path / "recordings" / "a.cockpit", on_message=reported.append)
    for event in script(30):
        recorder.take(event)
    wait_until(lambda: not recorder.going)
    recorder.take(script()[0])
    recorder.close()
    assert len(reported) == 1
    assert "is not being recorded" in reported[0]


def test_a_file_of_another_program_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "a.cockpit"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    before = path.read_bytes()
    recorder = Recorder(path)
    recorder.take(script()[0])
    recorder.close()
    assert "not a recording" in recorder.trouble
    assert path.read_bytes() == before


def test_a_full_disk_is_reported_once_and_recording_continues_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "RETRY_EVERY_S", 0.05)
    monkeypatch.setattr(recorder_thread, "COMMIT_EVERY_S", 0.02)
    path, reported, events = tmp_path / "a.cockpit", list[str](), script()
    recorder = Recorder(path, on_message=reported.append)
    recorder.take(events[0])
    wait_until(lambda: path.exists() and recorder._writer is not None)
    assert recorder._writer is not None
    # SQLite's own limit gives the very error of a full disk.
    recorder._writer.db.execute("PRAGMA max_page_count = 1")
    for event in events[1:]:
        recorder.take(event)
    wait_until(lambda: bool(reported))
    assert "full" in reported[0]
    recorder._writer.db.execute("PRAGMA max_page_count = 1000000")
    wait_until(lambda: len(reported) == 2)
    recorder.close()
    assert reported[1] == "The recording of run a continues."
    with Recording.open(path) as found:
        assert own(found.events()) == own(events)


def test_while_the_disk_is_full_no_more_than_the_limit_waits_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "RETRY_EVERY_S", 0.0)
    monkeypatch.setattr(recorder_thread, "WEIGHT_AT_MOST", 60)
    path, events = tmp_path / "a.cockpit", own(script(60, None))
    recorder = Recorder(path, thread=StoppedThread())
    recorder.take(events[0])
    recorder.write()
    assert recorder._writer is not None
    recorder._writer.db.execute("PRAGMA max_page_count = 1")
    for event in events[1:]:
        recorder.take(event)
        recorder.write()  # each time it fails, and what it was given still waits
    assert recorder.dropped > 0
    recorder._writer.db.execute("PRAGMA max_page_count = 1000000")
    recorder.finish()
    recorder.write()
    with Recording.open(path) as found:
        assert len(list(found.events())) == len(events) - recorder.dropped


def test_samples_beyond_the_buffer_of_a_slow_disk_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    write = Recorder.write

    def slow(self: Recorder) -> None:
        held.wait()
        write(self)

    monkeypatch.setattr(Recorder, "write", slow)
    monkeypatch.setattr(recorder_thread, "WEIGHT_AT_MOST", 60)
    reported = list[str]()
    recorder = Recorder(tmp_path / "a.cockpit", on_message=reported.append)
    events = own(script(60, None))
    for event in events:
        recorder.take(event)  # a caller that waited would never come back
    held.set()
    recorder.close()
    assert recorder.dropped > 0
    assert reported == [f"The recording of run a lost {recorder.dropped} events."]
    with Recording.open(tmp_path / "a.cockpit") as found:
        assert found.dropped == recorder.dropped
        assert len(list(found.events())) == len(events) - recorder.dropped


def test_a_recording_is_the_users_own(tmp_path: Path) -> None:
    record(tmp_path / "recordings" / "a.cockpit", script(30))
    assert (tmp_path / "recordings" / "a.cockpit").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "recordings").iterdir()] == ["a.cockpit"]


def test_a_stream_from_a_clock_that_is_ahead_is_not_written_twice(tmp_path: Path) -> None:
    path, events = tmp_path / "a.cockpit", own(script(40, None))
    for later_s in (-5, 1_000):  # first its clock is 5 s ahead, then all times are long past
        now = [START_S]
        recorder = Recorder(path, clock=lambda now=now: now[0])  # type: ignore[misc]
        for event in events:
            now[0] = event.at_s + later_s
            recorder.take(event)
        recorder.close()
    with Recording.open(path) as found:
        assert own(found.events()) == events


def test_an_event_that_is_not_as_the_model_reports_costs_itself_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events = script(20, None)
    broken = Marked(at_s=START_S, source="user", text=object())  # type: ignore[arg-type]
    recorder = record(tmp_path / "a.cockpit", [broken, *events, broken])
    assert recorder.dropped == 2
    assert caplog.text.count("an event cannot be recorded") == 1
    with Recording.open(tmp_path / "a.cockpit") as found:
        assert own(found.events()) == own(events)


def test_a_recording_is_read_while_it_is_written(tmp_path: Path) -> None:
    """Batches that the reader knows are merged before it has read them."""
    path, events = tmp_path / "a.cockpit", own(script(60, None))
    clock = [0.0]
    writer = Writer(path, monotonic=lambda: clock[0])
    for event in events:
        clock[0] += 0.5
        writer.put(event, event.at_s)
        writer.commit(None, 0)
    with Recording.open(path) as found:
        reading = found.events()
        first = [next(reading) for _ in range(5)]
        clock[0] += 100
        writer.commit(None, 0, last=True)
        assert [*first, *reading] == events
        assert not found.damage
    writer.close()
