"""A stream of many files is read as one, while files are created and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    Event,
    MetricsReported,
    PhaseEntered,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import Phase, RunState
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.telemetry.source import TelemetrySource
from tests.sources.fake_dashboard import FakeDashboard, Fault
from tests.sources.test_telemetry import FILE, STREAM, at_step, is_health, steps, until
from training.telemetry import names, wire
from training.telemetry.head.stream import StreamFile

JOB = "01000000"
RUN = "ab12"


class Driver:
    """Writes a stream of small files, which the fake head serves from disk."""

    def __init__(self, fake: FakeDashboard, directory: Path, segments: int = 4) -> None:
        self._fake, self._directory = fake, directory
        self.stream = StreamFile(directory / names.file_name(JOB), 2_000 * segments, segments)

    def say(self, body: wire.Body, t: float = 1000.0) -> None:
        self.stream.append(t, body)
        found = {
            str(path.relative_to(self._directory)): path
            for path in self._directory.glob(names.FILE_PATTERN)
        }
        for name in set(self._fake.files) - set(found):
            del self._fake.files[name]
        for name, path in found.items():
            data = path.read_bytes()
            if len(self._fake.files.get(name, b"")) != len(data):
                self._fake.files[name] = bytearray(data)

    def tick(self, step: int) -> None:
        row = wire.Steps(
            rank=0, attempt=1, t=1000.0 + step, step=step, first_step=step, steps_total=step
        )
        self.say(wire.Tick(run=RUN, ranks=(row,)), 1000.0 + step)

    def story(self) -> None:
        self.say(wire.Run(run=RUN, name="digits", state="RUNNING", job=JOB, world_size=1))
        self.say(wire.AttemptStart(run=RUN, attempt=1, workers=(wire.Worker(rank=0),)))
        self.say(wire.Phase(run=RUN, attempt=1, phase="running"))
        self.say(wire.Report(run=RUN, attempt=1, metrics={"step": 4.0}, checkpoint="/c4"))


@pytest.fixture
def driver(fake: FakeDashboard, tmp_path: Path) -> Driver:
    fake.add_job("one")
    return Driver(fake, tmp_path)


def source(dashboard: Dashboard, find_s: float = 0.05) -> TelemetrySource:
    return TelemetrySource(dashboard, find_s=find_s, idle_s=0.5)


def errors(events: Sequence[Event]) -> list[str]:
    return [event.error for event in events if isinstance(event, SourceHealth)]


async def test_the_newest_files_alone_show_the_right_state(
    driver: Driver, fake: FakeDashboard, dashboard: Dashboard
) -> None:
    driver.story()
    for step in range(1, 501):
        driver.tick(step)
    assert len(fake.files) == 4
    async with aclosing(source(dashboard).events()) as events:
        seen = await until(events, is_health)
    run = next(event for event in seen if isinstance(event, RunSeen))
    assert (run.name, run.state, run.at_s) == ("digits", RunState.RUNNING, 1000.0)
    assert [event.attempt for event in seen if isinstance(event, AttemptStarted)] == [1]
    assert [event.phase for event in seen if isinstance(event, PhaseEntered)] == [Phase.RUNNING]
    (report,) = [event for event in seen if isinstance(event, MetricsReported)]
    assert report.checkpoint is not None
    assert report.checkpoint.path == "/c4"
    there = steps(seen)
    assert there == list(range(there[0], 501))
    assert there[0] > 400
    assert errors(seen) == [""], "what has been dropped is not missing"


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (Fault(after_bytes=0),) * 3,
        (Fault(after_bytes=900), Fault(after_bytes=7), Fault(after_bytes=1500)) * 3,
        (Fault(after_bytes=1000, clean=False), Fault(status=500, text="boom")) * 2,
    ],
    ids=["none", "empty ends", "clean ends", "cuts"],
)
async def test_every_record_comes_once_and_in_order_over_many_files(
    driver: Driver, fake: FakeDashboard, dashboard: Dashboard, faults: tuple[Fault, ...]
) -> None:
    driver.story()
    driver.tick(1)
    fake.fail(STREAM, *faults)
    fake.fail(FILE, *faults[:1])

    async with aclosing(source(dashboard).events()) as events:
        seen = await until(events, at_step(1))
        for first in range(2, 302, 20):
            # At most one file further at a time: faults must not let the reader fall behind.
            for step in range(first, first + 10):
                driver.tick(step)
            seen += await until(events, at_step(first + 9))
            for step in range(first + 10, first + 20):
                driver.tick(step)
            seen += await until(events, at_step(first + 19))
        driver.say(wire.AttemptEnd(run=RUN, attempt=1, reason="finished"))
        seen += await until(events, lambda event: isinstance(event, AttemptEnded))
        seen += await until(events, is_health)
    assert steps(seen) == list(range(1, 302))
    for kind in (RunSeen, AttemptStarted, MetricsReported):
        assert len([event for event in seen if isinstance(event, kind)]) == 1
    assert not any("missing" in error or "skipped" in error for error in errors(seen))


async def test_following_reader_continues_in_the_next_file_before_it_lists_files(
    driver: Driver, fake: FakeDashboard, dashboard: Dashboard
) -> None:
    driver.story()
    async with aclosing(source(dashboard, find_s=3600).events()) as events:
        await until(events, is_health)
        await fake.until_asked(STREAM, 1)
        seen: list[Event] = []
        for step in range(1, 101):
            driver.tick(step)
            seen += await until(events, at_step(step), limit_s=5)
    assert steps(seen) == list(range(1, 101))


async def test_reader_that_falls_behind_reports_lost_lines_and_continues(
    driver: Driver, fake: FakeDashboard, dashboard: Dashboard
) -> None:
    driver.story()
    driver.tick(1)
    async with aclosing(source(dashboard).events()) as events:
        seen = await until(events, at_step(1))
        for step in range(2, 501):
            driver.tick(step)
        driver.say(wire.AttemptEnd(run=RUN, attempt=1, reason="finished"))
        driver.tick(501)
        seen += await until(events, at_step(501))
        health = (await until(events, is_health))[-1]
    there = steps(seen)
    assert there == [1, *range(there[1], 502)]
    assert len([event for event in seen if isinstance(event, AttemptEnded)]) == 1
    assert isinstance(health, SourceHealth)
    lost = there[1] - 2
    # The lines that lead from file to file are records too.
    reported = int(health.error.split(": ")[1].split()[0])
    assert lost <= reported <= lost + 60
    assert "missing in the stream" in health.error


async def test_a_stream_that_is_begun_again_under_its_name_is_read_from_its_start(
    driver: Driver, fake: FakeDashboard, dashboard: Dashboard, tmp_path: Path
) -> None:
    driver.story()
    for step in range(1, 201):
        driver.tick(step)
    async with aclosing(source(dashboard).events()) as events:
        await until(events, at_step(200))
        fake.files.clear()
        again = Driver(fake, tmp_path / "again")
        again.tick(7)
        assert steps(await until(events, at_step(7))) == [7]
