"""GPU numbers, with NVML in the part of the hardware."""

from __future__ import annotations

import inspect
import logging
import sys

import pynvml
import pytest

from tests.training.fake_nvml import FakeNvml
from training.telemetry.gpu.gpu import Gpu, GpuNumbers, by_name
from training.telemetry.gpu.nvml import Nvml, throttle_reasons
from training.telemetry.wire import Worker
from training.telemetry.worker.background_value import STALE_AFTER_S, Watch

GIB = 1 << 30


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def gpu_of(nvml: FakeNvml, clock: Clock, *ids: str) -> Gpu:
    return Gpu(ids, lambda: nvml, clock)


def test_the_installed_module_has_all_that_is_asked_of_it() -> None:
    for name in Nvml.__annotations__:
        assert hasattr(pynvml, name), name
    for name, ours in inspect.getmembers(Nvml, inspect.isfunction):
        if name.startswith("nvml"):
            theirs = inspect.signature(getattr(pynvml, name)).parameters
            used = list(inspect.signature(ours).parameters)[1:]
            assert used == list(theirs)[: len(used)], name
            needed = [each.name for each in theirs.values() if each.default is each.empty]
            assert set(needed) <= set(used), name


def test_the_fake_stands_where_the_module_does(nvml: FakeNvml) -> None:
    for name in Nvml.__annotations__:
        if name != "NVMLError":
            assert getattr(nvml, name) == getattr(pynvml, name), name


@pytest.mark.parametrize(("id", "device"), [("0", 0), ("GPU-7f", "GPU-7f")])
def test_the_ranks_own_device_is_opened_once_by_index_or_uuid(
    id: str, device: object, nvml: FakeNvml, clock: Clock
) -> None:
    gpu = gpu_of(nvml, clock, id)
    assert gpu.read().memory_bytes == gpu.read().memory_bytes == 5 * GIB
    assert nvml.opened == [device]
    assert gpu.names == ("NVIDIA H200",)


def test_a_gpu_reports_all_of_its_numbers_in_our_units(nvml: FakeNvml, clock: Clock) -> None:
    gpu = gpu_of(nvml, clock, "0")
    nvml.links_kib = {139: 10, 138: 20}
    nvml.reasons[0] = 0x4 | 0x20
    nvml.xids = [(31, 0xFFFFFFFF), (79, 0xFFFFFFFF)]
    gpu.read()
    clock.now += 2.0
    nvml.links_kib = {139: 30, 138: 70}
    assert gpu.read() == GpuNumbers(
        utilization_percent=80.0,
        memory_bytes=5 * GIB,
        power_w=650.5,
        temperature_c=61.0,
        memory_total_bytes=140 * GIB,
        clock_mhz=1980,
        throttle="power cap, software thermal slowdown",
        ecc_errors=1,
        xid=79,
        nvlink_rx_bytes_per_s=20 * 1024 / 2.0,
        nvlink_tx_bytes_per_s=50 * 1024 / 2.0,
        pcie_rx_bytes_per_s=3e6,
        pcie_tx_bytes_per_s=1e6,
    )


def test_an_old_drivers_used_memory_includes_what_it_reserves(nvml: FakeNvml, clock: Clock) -> None:
    nvml.unsupported.add("nvmlDeviceGetMemoryInfo_v2")
    assert gpu_of(nvml, clock, "0").read().memory_bytes == 6 * GIB


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetUtilizationRates", {"utilization_percent"}),
        ("nvmlDeviceGetMemoryInfo", {"memory_bytes", "memory_total_bytes"}),
        ("nvmlDeviceGetPowerUsage", {"power_w"}),
        ("nvmlDeviceGetTemperature", {"temperature_c"}),
        ("nvmlDeviceGetClockInfo", {"clock_mhz"}),
        ("nvmlDeviceGetTotalEccErrors", {"ecc_errors"}),
        ("nvmlDeviceGetPcieThroughput", {"pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"}),
        ("nvmlDeviceGetFieldValues", {"nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"}),
        ("links", {"nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"}),
        ("nvmlEventSetCreate", set()),
        ("nvmlDeviceRegisterEvents", set()),
        ("nvmlDeviceGetCurrentClocksEventReasons", set()),
        ("nvmlDeviceGetName", set()),
    ],
)
def test_unsupported_gpu_metric_is_none_and_others_are_reported(
    function: str, fields: set[str], nvml: FakeNvml, clock: Clock
) -> None:
    nvml.unsupported.add(function)
    gpu = gpu_of(nvml, clock, "0")
    gpu.read()
    clock.now += 1
    numbers = gpu.read()
    missing = {name for name in GpuNumbers.__slots__ if getattr(numbers, name) is None}
    assert missing == fields | {"xid"}


def test_a_slice_has_its_own_memory_and_its_cards_health_and_no_utilisation(
    nvml: FakeNvml, clock: Clock
) -> None:
    nvml.xids = [(31, 3), (43, 7)]
    numbers = gpu_of(nvml, clock, "MIG-a").read()
    assert numbers == GpuNumbers(
        memory_bytes=5 * GIB,
        memory_total_bytes=16 * GIB,
        temperature_c=61.0,
        clock_mhz=1980,
        throttle="",
        ecc_errors=1,
        xid=43,
    ), "the Xid of another slice is not ours"


def test_a_slice_whose_card_is_out_of_sight_still_reports_its_memory(
    nvml: FakeNvml, clock: Clock
) -> None:
    nvml.unsupported.add("nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
    numbers = gpu_of(nvml, clock, "MIG-a").read()
    assert numbers == GpuNumbers(memory_bytes=5 * GIB, memory_total_bytes=16 * GIB)


def test_several_gpus_of_a_rank_are_reported_as_one(nvml: FakeNvml, clock: Clock) -> None:
    nvml.reasons = {0: 0x4, 1: 0x4 | 0x80}
    numbers = gpu_of(nvml, clock, "0", "1").read()
    assert numbers.utilization_percent == 60.0, "a mean"
    assert (numbers.memory_bytes, numbers.power_w) == (10 * GIB, 1301.0), "sums"
    assert (numbers.temperature_c, numbers.clock_mhz) == (62.0, 1880), "the worst"
    assert numbers.throttle == "power cap, power brake"
    assert numbers.ecc_errors == 2


def test_a_sum_over_gpus_of_which_one_does_not_report_is_none(nvml: FakeNvml, clock: Clock) -> None:
    gpu = gpu_of(nvml, clock, "0", "1")
    gpu.read()
    nvml.lost.add(1)
    numbers = gpu.read()
    assert (numbers.memory_bytes, numbers.utilization_percent) == (None, None)
    assert numbers.temperature_c == 61.0


def test_a_gpu_that_falls_off_the_bus_is_reported_once_and_left_in_peace(
    nvml: FakeNvml, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = gpu_of(nvml, clock, "0")
    nvml.xids = [(79, 0xFFFFFFFF)]
    assert gpu.read().utilization_percent == 80.0
    nvml.lost.add(0)
    caplog.clear()
    assert gpu.read() == GpuNumbers(xid=79)
    asked = len(nvml.asked)
    assert gpu.read() == GpuNumbers(xid=79)
    assert len(nvml.asked) == asked
    assert [record.getMessage() for record in caplog.records] == [
        "telemetry: GPU 0 is lost; no more numbers of it"
    ]


def test_nvml_that_goes_away_and_comes_back_is_reported_once_each(
    nvml: FakeNvml, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = gpu_of(nvml, clock, "0")
    for stale in (False, True, True, False, False):
        nvml.silent = stale
        assert (gpu.read() == GpuNumbers()) is stale
    assert [record.getMessage().split("GPU 0 ")[1] for record in caplog.records] == [
        "does not answer: its numbers are left out",
        "answers again",
    ]


def test_a_counter_that_was_set_back_gives_no_rate(nvml: FakeNvml, clock: Clock) -> None:
    gpu = gpu_of(nvml, clock, "0")
    nvml.links_kib = {139: 100, 138: 100}
    gpu.read()
    clock.now += 1
    nvml.links_kib = {139: 5, 138: 101}
    numbers = gpu.read()
    assert (numbers.nvlink_rx_bytes_per_s, numbers.nvlink_tx_bytes_per_s) == (None, 1024.0)
    assert gpu.read().nvlink_tx_bytes_per_s is None, "no time has passed"


def test_a_storm_of_xids_does_not_hold_the_reader_up(nvml: FakeNvml, clock: Clock) -> None:
    nvml.xids = [(13, 0xFFFFFFFF)] * 1000
    gpu_of(nvml, clock, "0").read()
    assert len(nvml.xids) >= 900


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (0, ""),
        (0x1, ""),
        (0x8, "hardware slowdown"),
        (0x8 | 0x40, "hardware thermal slowdown"),
        (0x8 | 0x80 | 0x1, "power brake"),
        (0x2 | 0x8000, "application clocks, reason 0x8000"),
    ],
)
def test_throttling_is_reported_as_text(reasons: int, words: str) -> None:
    assert throttle_reasons(reasons) == words


def test_without_nvml_it_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpu = Gpu(("0",))
    with caplog.at_level(logging.WARNING):
        assert gpu.read() == gpu.read() == GpuNumbers()
    assert len(caplog.records) == 1


def test_a_device_that_is_not_there_is_reported_once(
    nvml: FakeNvml, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = gpu_of(nvml, clock, "9")
    assert gpu.read() == gpu.read() == GpuNumbers()
    assert len(caplog.records) == 1


def test_gpus_are_known_by_index_or_uuid() -> None:
    worker = Worker(rank=0, **by_name(["0", 3, "GPU-7f", "MIG-a"]))
    assert worker.gpu_ids == (0, 3)
    assert worker.gpu_uuids == ("GPU-7f", "MIG-a")


def test_rank_without_a_gpu_calls_no_nvml() -> None:
    def load() -> Nvml:
        raise AssertionError

    assert Gpu((), load).read() == GpuNumbers()


def test_numbers_of_a_device_that_hangs_expire(nvml: FakeNvml, clock: Clock) -> None:
    watch = Watch("gpu", gpu_of(nvml, clock, "0").read, clock)
    assert watch.newest() is None, "before the first read"
    watch.read()
    clock.now += STALE_AFTER_S
    found = watch.newest()
    assert found is not None
    assert found.utilization_percent == 80.0
    clock.now += 0.1
    assert watch.newest() is None
