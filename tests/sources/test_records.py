"""Which lines of a stream are new, in any order, with any clock, in any response."""

from __future__ import annotations

import pytest

from cockpit.model.event import Notice
from cockpit.sources.telemetry.events import event_of
from cockpit.sources.telemetry.records import MOST_AHEAD, REMEMBERED, Progress, RereadError
from training.telemetry import wire


def line(seq: int, t: float | None = None, body: wire.Body | None = None) -> bytes:
    record = wire.Record(seq, 1000.0 + seq if t is None else t, body or wire.Run(run="r"))
    return wire.encode(record).encode()


def taken(progress: Progress, *lines: bytes) -> list[int]:
    found = [progress.take(item) for item in lines]
    return [record.seq for record in found if record is not None]


@pytest.fixture
def progress() -> Progress:
    progress = Progress()
    progress.begin(whole=True)
    return progress


def test_lines_that_changed_places_come_each_once(progress: Progress) -> None:
    order = [1, 2, 5, 4, 5, 3, 4, 6]
    assert taken(progress, *map(line, order)) == [1, 2, 5, 4, 3, 6]
    assert progress.complaint == ""


def test_a_clock_that_is_set_back_is_no_other_file(progress: Progress) -> None:
    assert taken(progress, line(1, 9e9), line(2, 9e9 + 1), line(3, 1000.0)) == [1, 2, 3]
    progress.begin(whole=False)
    again = (line(2, 9e9 + 1), line(3, 1000.0), line(4, 1001.0))
    assert taken(progress, *again) == [4]
    # The next file repeats lines of the old clock.
    segment = line(5, 1002.0, wire.Segment(segment=1))
    assert taken(progress, segment) == [5]
    progress.begin(whole=True)
    assert taken(progress, segment, line(1, 9e9), line(6, 1003.0)) == [6]
    assert progress.complaint == ""


def test_another_file_under_the_old_name_is_read_from_its_start(progress: Progress) -> None:
    numbers = range(1, 2 * REMEMBERED)
    assert len(taken(progress, *map(line, numbers))) == len(numbers)
    progress.begin(whole=True)
    with pytest.raises(RereadError):
        progress.take(line(1, 7.0))
    progress.begin(whole=True)
    assert taken(progress, line(1, 7.0), line(2, 8.0)) == [1, 2]


def test_two_writers_at_one_file_for_a_moment_do_not_make_it_another(progress: Progress) -> None:
    both = (line(1), line(2), line(2, 5.0), line(3), line(3, 6.0), line(4))
    assert taken(progress, *both) == [1, 2, 3, 4]
    for _ in range(2):
        progress.begin(whole=True)
        assert taken(progress, *both) == []


def test_a_gap_in_the_end_of_a_file_asks_for_all_of_it(progress: Progress) -> None:
    assert taken(progress, line(1)) == [1]
    progress.begin(whole=False)
    with pytest.raises(RereadError):
        progress.take(line(5))
    progress.begin(whole=True)
    assert taken(progress, line(1), line(2), line(5)) == [2, 5]
    assert progress.complaint == "2 records missing in the stream"


def test_remembered_sequence_numbers_are_limited(progress: Progress) -> None:
    for number in range(1, 3 * REMEMBERED):
        progress.take(line(number))
    assert len(progress._came) == REMEMBERED + 1


def test_one_number_that_is_wrong_by_far_costs_one_line(progress: Progress) -> None:
    far = 50 * REMEMBERED
    assert taken(progress, line(1), line(far), line(2), line(3), line(4)) == [1, far, 2, 3, 4]
    assert progress.seq == 4
    assert progress.complaint == ""


def test_many_that_are_missing_indeed_are_reported(progress: Progress) -> None:
    far = 50 * REMEMBERED
    assert taken(progress, line(1), line(far), line(far + 1)) == [1, far, far + 1]
    assert progress.missing == far - 2


def test_a_number_out_of_all_reason_does_not_make_the_reader_deaf() -> None:
    progress = Progress()
    progress.begin(whole=True)
    run = wire.Run(run="r")
    assert progress.take(wire.encode(wire.Record(1, 1.0, run)).encode()) is not None
    far = wire.Record(MOST_AHEAD + 2, 1.0, run)
    assert progress.take(wire.encode(far).encode()) is None
    assert progress.take(wire.encode(wire.Record(2, 1.0, run)).encode()) is not None
    assert progress.complaint == f"1 line skipped (numbered {MOST_AHEAD + 2} after 1)"


def test_a_ranks_notice_is_a_warning_of_its_run() -> None:
    notice = wire.Notice(run="r", attempt=2, rank=0, reason="Damaged", message="c\nd\x1b[m")
    event = event_of(wire.Record(1, 1.0, notice))
    assert isinstance(event, Notice)
    assert (event.kind, event.name, event.warning) == ("Run", "r", True)
    assert (event.reason, event.message) == ("Damaged", "rank 0: c d")


def test_a_ranks_notice_of_its_resume_is_information() -> None:
    notice = wire.Notice(run="r", attempt=2, rank=0, reason="Resumed", message="from memory")
    event = event_of(wire.Record(1, 1.0, notice))
    assert isinstance(event, Notice)
    assert not event.warning


def test_names_of_the_future_are_reported_as_unknown_or_not_at_all() -> None:
    phase = wire.Phase(run="r", attempt=1, phase="dreaming")
    assert event_of(wire.Record(1, 1.0, phase)) is None
    trials = wire.Trials(experiment="e", trials=(wire.Trial(id="t", status="DREAMING"),))
    assert event_of(wire.Record(1, 1.0, trials)) is not None


def test_line_of_a_newer_version_is_skipped_and_reported(progress: Progress) -> None:
    newer = line(2).replace(f'"v":{wire.VERSION}'.encode(), f'"v":{wire.VERSION + 1}'.encode())
    assert newer != line(2)
    assert taken(progress, line(1), newer, line(3)) == [1, 3]
    why = f"written by version {wire.VERSION + 1}, this cockpit reads up to {wire.VERSION}"
    assert progress.complaint == f"1 line skipped ({why}: update cockpit)"
