"""The size of a checkpoint is part of its report, if its storage responds."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from training.telemetry.ray_train.checkpoint_size import Sizes
from training.telemetry.wire import Report

PLAIN = Report(run="r", attempt=1)
SAVED = Report(run="r", attempt=1, checkpoint="/c")


@dataclass
class Sent:
    reports: list[tuple[float, Report]] = field(default_factory=list)

    def __call__(self, t: float, report: Report) -> None:
        self.reports.append((t, report))


def test_a_report_without_a_checkpoint_does_not_wait() -> None:
    sent = Sent()
    Sizes(sent).take(1.0, PLAIN, None)
    assert sent.reports == [(1.0, PLAIN)]


def test_reports_come_in_order_each_with_its_size() -> None:
    sent, may = Sent(), threading.Event()

    def measure(checkpoint: Any) -> int:
        assert may.wait(10)
        return int(checkpoint)

    sizes = Sizes(sent, measure, timeout_s=10)
    sizes.take(1.0, SAVED, 11)
    sizes.take(2.0, PLAIN, None)
    sizes.take(3.0, SAVED, 33)
    assert not sizes.drain(0)
    assert not sent.reports
    may.set()
    assert sizes.drain(10)
    found = [(t, report.checkpoint_bytes) for t, report in sent.reports]
    assert found == [(1.0, 11), (2.0, None), (3.0, 33)]


def test_a_storage_that_fails_or_does_not_answer_costs_the_size_alone() -> None:
    sent, never = Sent(), threading.Event()

    def measure(checkpoint: Any) -> int:
        if checkpoint == "gone":
            raise OSError("no such bucket")
        never.wait(30)
        return 1

    sizes = Sizes(sent, measure, timeout_s=0.05)
    sizes.take(1.0, SAVED, "gone")
    sizes.take(2.0, SAVED, "mute")
    assert sizes.drain(10)
    never.set()
    assert [report.checkpoint_bytes for _, report in sent.reports] == [None, None]
