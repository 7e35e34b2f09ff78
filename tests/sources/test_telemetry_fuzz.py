"""Whatever is in the files, the reader reads on."""

from __future__ import annotations

import pytest

from cockpit.model.event import Notice
from cockpit.sources.records import MOST_AHEAD, Progress
from cockpit.sources.telemetry_events import event_of
from tests.sources.mutated import feed
from training.telemetry import wire


@pytest.mark.parametrize("seed", [1, 2])
def test_no_broken_line_breaks_the_reader_or_the_store(seed: int) -> None:
    became = feed(25_000, seed)
    assert sum(became.values()) == 25_000
    assert became["taken"] > 1_000
    assert became["skipped"] > 1_000
    assert became["dropped"] > 1_000


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


def test_names_of_the_future_are_told_as_unknown_or_not_at_all() -> None:
    phase = wire.Phase(run="r", attempt=1, phase="dreaming")
    assert event_of(wire.Record(1, 1.0, phase)) is None
    trials = wire.Trials(experiment="e", trials=(wire.Trial(id="t", status="DREAMING"),))
    assert event_of(wire.Record(1, 1.0, trials)) is not None
