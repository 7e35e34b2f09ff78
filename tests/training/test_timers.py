"""Sections of a step, on clocks that the test holds: the host's and a device's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import pytest

from training.telemetry.worker.section_times import DEPTH, ENTRIES
from training.telemetry.worker.timed_loader import TimedLoader
from training.telemetry.worker.timers import EVENTS, FULL, Sections


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeEvent:
    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self._at_s = 0.0
        self._number = -1

    def record(self) -> None:
        if self._device.error is not None:
            raise self._device.error
        self._at_s, self._number = self._device.now, next(self._device.numbers)

    def query(self) -> bool:
        assert threading.current_thread() is not self._device.training, "training asks nothing"
        assert self._number >= 0
        if self._device.error is not None:
            raise self._device.error
        return self._number < self._device.done

    def elapsed_time(self, end_event: FakeEvent) -> float:
        assert self.query()
        assert end_event.query()
        return (end_event._at_s - self._at_s) * 1000


class FakeDevice:
    """Its clock, `now`, is stamped in order; `done` of its stamps can be read."""

    def __init__(self) -> None:
        self.now = 0.0
        self.numbers = count()
        self.done = 0
        self.made = 0
        self.capturing = False
        self.error: RuntimeError | None = None
        self.training: threading.Thread | None = None

    def event(self) -> FakeEvent:
        self.made += 1
        return FakeEvent(self)

    def is_capturing(self) -> bool:
        return self.capturing

    def enter(self) -> None:
        return

    def finish(self) -> None:
        self.done = 1 << 60


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sections(clock: Clock) -> Sections:
    found = Sections(clock, lambda: None)
    found.end_step()  # the first step's time is not reported
    return found


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def on_gpu(clock: Clock, device: FakeDevice) -> Sections:
    found = Sections(clock, lambda: device)
    found.end_step()
    return found


def spend(sections: Sections, clock: Clock, **seconds: float) -> None:
    for name, took in seconds.items():
        with sections.by_name[name]:
            clock.now += took


def test_each_section_is_a_mean_over_the_steps_and_the_checkpoint_a_total(
    sections: Sections, clock: Clock
) -> None:
    for _ in range(4):
        spend(sections, clock, data=0.1, forward=0.2, backward=0.4, optimizer=0.05)
        spend(sections, clock, checkpoint=1.0)
        clock.now += 9  # in no section
        sections.end_step()
    assert sections.take() == pytest.approx(
        {"data": 0.1, "forward": 0.2, "backward": 0.4, "optimizer": 0.05, "checkpoint": 4.0}
    )
    assert sections.take() == {}


def test_a_section_that_is_entered_often_adds_up_and_now_and_then_is_averaged(
    sections: Sections, clock: Clock
) -> None:
    for step in range(4):
        for _ in range(3):  # gradient accumulation
            spend(sections, clock, forward=0.1)
        if step == 3:
            spend(sections, clock, communication=0.8)
        sections.end_step()
    assert sections.take() == pytest.approx({"forward": 0.3, "communication": 0.2})


def test_only_the_checkpoint_of_the_first_step_is_timed(clock: Clock) -> None:
    sections = Sections(clock, lambda: None)
    spend(sections, clock, forward=60.0, checkpoint=2.0)
    sections.end_step()
    assert sections.take() == {"checkpoint": 2.0}


def test_a_section_within_another_takes_its_time_from_it(sections: Sections, clock: Clock) -> None:
    with sections.by_name["backward"]:
        clock.now += 1
        with sections.by_name["communication"]:
            clock.now += 2
            with sections.by_name["communication"]:
                clock.now += 4
        clock.now += 8
    sections.end_step()
    assert sections.take() == {"backward": 9.0, "communication": 6.0}


def test_an_exception_ends_the_section_and_passes(sections: Sections, clock: Clock) -> None:
    def fail() -> None:
        with sections.by_name["forward"]:
            clock.now += 1
            with sections.by_name["data"]:
                clock.now += 2
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    clock.now += 4
    sections.end_step()
    assert sections.take() == {"forward": 1.0, "data": 2.0}


def test_a_section_that_is_never_left_ends_with_the_one_around_it(
    sections: Sections, clock: Clock
) -> None:
    with sections.by_name["backward"]:
        sections.by_name["forward"].__enter__()
        clock.now += 1
    clock.now += 2
    sections.by_name["forward"].__exit__()  # no receiver
    sections.end_step()
    assert sections.take() == {"backward": 0.0, "forward": 1.0}


def test_a_section_that_is_open_at_the_end_of_a_step_is_split(
    sections: Sections, clock: Clock
) -> None:
    with sections.by_name["data"]:
        clock.now += 1
        sections.end_step()
        clock.now += 2
    sections.end_step()
    assert sections.take() == {"data": 1.5}


def test_unread_entries_are_bounded(sections: Sections, clock: Clock) -> None:
    for step in range(2 * FULL):
        spend(sections, clock, forward=0.5)
        if step % 2:
            sections.end_step()
    assert len(sections.written) <= FULL + ENTRIES
    assert sections.take() == {"forward": 1.0}, "and none of it is lost"
    for _ in range(FULL):
        sections.end_step()
    assert len(sections.written) <= FULL + ENTRIES


def test_a_thread_that_reads_does_not_hold_up_the_one_that_trains(
    sections: Sections, clock: Clock
) -> None:
    with sections._lock:
        for _ in range(FULL):
            spend(sections, clock, forward=0.5)
            sections.end_step()
    assert sections.take() == {"forward": 0.5}


def test_sections_that_are_read_while_they_are_written_are_whole() -> None:
    sections = Sections(device=lambda: None)
    steps, over = 5_000, threading.Event()
    on_step_end: list[object] = []
    sections.on_step_end = lambda at_s, step_values: on_step_end.append(step_values)

    def read() -> None:
        while not over.is_set():
            sections.read()

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(steps):
        with sections.by_name["forward"], sections.by_name["communication"]:
            pass
        sections.end_step(step)
    over.set()
    reader.join()
    found = sections.take()
    assert on_step_end == list(range(steps))
    assert set(found) == {"forward", "communication"}
    assert all(0 < took < 1 for took in found.values())


def test_sections_that_are_never_left_do_not_pile_up(sections: Sections, clock: Clock) -> None:
    for _ in range(1000):
        sections.by_name["forward"].__enter__()
    sections.read()
    assert len(sections._borders.open) == DEPTH


def test_another_threads_sections_do_not_count(sections: Sections, clock: Clock) -> None:
    def prefetch() -> None:
        with sections.by_name["data"]:
            clock.now += 5

    thread = threading.Thread(target=prefetch)
    with sections.by_name["forward"]:
        thread.start()
        thread.join()
    sections.end_step()
    assert sections.take() == {"forward": 5.0}


def test_the_thread_that_steps_is_the_one_that_counts(clock: Clock) -> None:
    sections = Sections(clock, lambda: None)
    spend(sections, clock, data=1.0)

    def train() -> None:
        for _ in range(3):
            spend(sections, clock, forward=2.0)
            sections.end_step()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert sections.take() == {"forward": 2.0}


def test_a_clock_that_goes_back_takes_no_time(sections: Sections, clock: Clock) -> None:
    spend(sections, clock, forward=-50.0, data=1.0)
    sections.end_step()
    assert sections.take() == {"data": 1.0}


def taken(sections: Sections) -> dict[str, float]:
    """As the pushing thread takes them."""
    found: list[dict[str, float]] = []
    thread = threading.Thread(target=lambda: found.append(sections.take()))
    thread.start()
    thread.join()
    return found[0]


def step_on(
    sections: Sections, device: FakeDevice, clock: Clock, forward: float = 0.3, data: float = 0.1
) -> None:
    """The host queues everything within a millisecond; the device takes its time."""
    for name, took in (("data", data), ("forward", forward)):
        with sections.by_name[name]:
            clock.now += 0.0005
            device.now += took
    sections.end_step()


def test_on_a_gpu_its_own_time_counts_and_not_the_hosts(
    on_gpu: Sections, device: FakeDevice, clock: Clock
) -> None:
    device.training = threading.current_thread()
    for _ in range(2):
        step_on(on_gpu, device, clock)
    device.finish()
    assert taken(on_gpu) == pytest.approx({"data": 0.1, "forward": 0.3})


def test_unfinished_gpu_section_is_reported_later(
    on_gpu: Sections, device: FakeDevice, clock: Clock
) -> None:
    device.training = threading.current_thread()
    step_on(on_gpu, device, clock, forward=0.5)
    device.done = 3
    assert taken(on_gpu) == {}
    device.done = 5
    step_on(on_gpu, device, clock, forward=0.7)
    assert taken(on_gpu) == pytest.approx({"data": 0.1, "forward": 0.5})
    device.finish()
    assert taken(on_gpu) == pytest.approx({"data": 0.1, "forward": 0.7})


def test_on_a_gpu_a_checkpoint_is_the_hosts_time(
    on_gpu: Sections, device: FakeDevice, clock: Clock
) -> None:
    with on_gpu.by_name["checkpoint"]:
        clock.now += 3.0
    on_gpu.end_step()
    device.finish()
    assert taken(on_gpu) == {"checkpoint": 3.0}


def test_nested_and_open_sections_hold_on_a_gpu_too(
    on_gpu: Sections, device: FakeDevice, clock: Clock
) -> None:
    device.training = threading.current_thread()
    with on_gpu.by_name["backward"]:
        device.now += 1
        with on_gpu.by_name["communication"]:
            device.now += 2
        device.now += 4
        on_gpu.end_step()
        device.now += 8
    device.now += 16
    on_gpu.end_step()
    device.finish()
    assert taken(on_gpu) == pytest.approx({"backward": 13 / 2, "communication": 2 / 2})


def test_a_device_that_lags_behind_costs_no_more_events_than_the_pool(
    on_gpu: Sections, device: FakeDevice, clock: Clock
) -> None:
    device.training = threading.current_thread()
    for _ in range(3 * EVENTS):
        step_on(on_gpu, device, clock)
    assert device.made <= EVENTS
    device.finish()
    assert taken(on_gpu) == pytest.approx({"data": 0.1, "forward": 0.3}), "of those it timed"
    made = device.made
    step_on(on_gpu, device, clock)  # began when no event was free
    for _ in range(10):
        step_on(on_gpu, device, clock, forward=0.9)
        assert taken(on_gpu) == pytest.approx({"data": 0.1, "forward": 0.9})
    assert device.made == made, "events are used again"


def test_a_step_with_more_sections_than_the_pool_has_events_goes_untimed(
    on_gpu: Sections, device: FakeDevice, clock: Clock
) -> None:
    for _ in range(3):
        for _ in range(EVENTS):
            with on_gpu.by_name["forward"]:
                device.now += 1
        on_gpu.end_step()
    device.finish()
    assert taken(on_gpu) == {}
    assert device.made <= EVENTS
    step_on(on_gpu, device, clock)
    step_on(on_gpu, device, clock)
    assert taken(on_gpu) == pytest.approx({"data": 0.1, "forward": 0.3})


def test_a_step_in_which_a_graph_is_captured_goes_untimed(
    on_gpu: Sections, device: FakeDevice, clock: Clock
) -> None:
    with on_gpu.by_name["data"]:
        device.capturing = True
        with on_gpu.by_name["forward"]:
            device.now += 1
        device.capturing = False
    on_gpu.end_step()
    step_on(on_gpu, device, clock)
    device.finish()
    assert taken(on_gpu) == pytest.approx({"data": 0.1, "forward": 0.3})


@pytest.mark.parametrize("when", ["recording", "reading"])
def test_a_device_in_trouble_is_reported_once_and_its_sections_are_left_out(
    when: str,
    on_gpu: Sections,
    device: FakeDevice,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    step_on(on_gpu, device, clock)
    device.finish()
    device.error = RuntimeError("CUDA error: device-side assert triggered")
    if when == "recording":
        step_on(on_gpu, device, clock)
    assert taken(on_gpu) == {}
    device.error = None
    for _ in range(3):
        step_on(on_gpu, device, clock)
        with on_gpu.by_name["checkpoint"]:
            clock.now += 1
    assert taken(on_gpu) == {"checkpoint": 2.0}, "no launch times in the place of the device's"
    assert len(caplog.records) == 1


def test_a_gpu_that_comes_into_use_later_is_found(clock: Clock, device: FakeDevice) -> None:
    found: list[FakeDevice] = []
    sections = Sections(clock, lambda: found[0] if found else None)
    sections.end_step()
    spend(sections, clock, forward=1.0)
    found.append(device)
    sections.end_step()
    assert sections.take() == {"forward": 1.0}
    sections.end_step()  # it is checked once per interval
    assert sections.take() == {}
    step_on(sections, device, clock)
    device.finish()
    assert taken(sections) == pytest.approx({"data": 0.1, "forward": 0.3})


def test_a_wrapped_loader_is_timed_and_otherwise_itself(sections: Sections, clock: Clock) -> None:
    class Loader:
        sampler = "its own"

        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[str]:
            clock.now += 1.0  # workers start
            for batch in "ab":
                clock.now += 0.25
                yield batch
            clock.now += 0.5  # its end is waited for too

    loader: TimedLoader[str] = TimedLoader(Loader(), lambda: sections.by_name["data"])
    for _ in range(2):
        seen = []
        for batch in loader:
            seen.append(batch)
            clock.now += 9.0
        assert seen == ["a", "b"]
        sections.end_step()
    assert (len(loader), loader.sampler) == (2, "its own")
    assert sections.take() == {"data": 2.0}
    with pytest.raises(AttributeError):
        _ = loader.nothing


def test_a_wrapped_loader_that_breaks_passes_its_error_on(sections: Sections, clock: Clock) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("a shard is gone")

    loader: TimedLoader[int] = TimedLoader(broken(), lambda: sections.by_name["data"])
    with pytest.raises(OSError, match="a shard is gone"):
        list(loader)
    sections.read()
    assert sections._borders.open == []
