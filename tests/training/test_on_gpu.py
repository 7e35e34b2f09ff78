"""Sections and GPU numbers on a real device, where there is one."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from training.telemetry.gpu.gpu import Gpu
from training.telemetry.worker.flops import peak_flops
from training.telemetry.worker.timers import Sections

pytestmark = pytest.mark.gpu


def multiply(size: int, times: int) -> None:
    matrix = torch.ones(size, size, device="cuda", dtype=torch.bfloat16)
    for _ in range(times):
        matrix = matrix @ matrix


def taken(sections: Sections) -> dict[str, float]:
    """As the pushing thread takes them."""
    found: list[dict[str, float]] = []
    thread = threading.Thread(target=lambda: found.append(sections.take()))
    thread.start()
    thread.join()
    return found[0]


def test_a_section_is_the_devices_time_and_nothing_waits_for_it() -> None:
    multiply(8192, 3)
    torch.cuda.synchronize()
    sections = Sections()
    sections.end_step()
    began = time.perf_counter()
    with sections.by_name["forward"]:
        multiply(8192, 200)
    sections.end_step()
    queued_s = time.perf_counter() - began
    assert taken(sections) == {}, "the device is still at it"
    torch.cuda.synchronize()
    whole_s = time.perf_counter() - began
    forward_s = taken(sections)["forward"]
    assert queued_s < forward_s / 2
    assert 0.8 * (whole_s - queued_s) < forward_s <= whole_s


def test_data_is_how_long_the_device_stood_idle() -> None:
    multiply(8192, 3)
    torch.cuda.synchronize()
    sections = Sections()
    sections.end_step()
    with sections.by_name["data"]:
        time.sleep(0.05)  # the device has nothing to do
    sections.end_step()
    torch.cuda.synchronize()
    assert taken(sections)["data"] == pytest.approx(0.05, abs=0.01)
    multiply(8192, 400)  # about 0.5 s on a fast device
    with sections.by_name["data"]:
        time.sleep(0.02)
    sections.end_step()
    torch.cuda.synchronize()
    assert taken(sections)["data"] < 0.01, "it was hidden"


def test_nvml_reports_a_busy_device() -> None:
    gpu = Gpu(("0",))
    gpu.read()
    multiply(8192, 2000)
    numbers = gpu.read()
    torch.cuda.synchronize()
    print(numbers)
    assert gpu.names == (torch.cuda.get_device_name(0),)
    free, total = torch.cuda.mem_get_info(0)
    assert numbers.memory_total_bytes is not None
    assert numbers.memory_total_bytes == pytest.approx(total, rel=0.05)
    assert numbers.memory_bytes is not None
    assert numbers.memory_bytes == pytest.approx(total - free, rel=0.5)
    for value in (numbers.power_w, numbers.temperature_c, numbers.clock_mhz):
        assert value is not None
        assert value > 10
    assert numbers.throttle is not None


def test_a_busy_devices_share_of_its_peak_is_below_one() -> None:
    peak = peak_flops(torch.cuda.get_device_name(0))
    assert peak is not None, f"add the peak of {torch.cuda.get_device_name(0)} to flops.py"
    size, times = 8192, 100
    multiply(size, 3)
    torch.cuda.synchronize()
    began = time.perf_counter()
    multiply(size, times)
    torch.cuda.synchronize()
    share = 2 * size**3 * times / (time.perf_counter() - began) / peak
    assert 0.2 < share < 1.0
