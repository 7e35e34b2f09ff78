"""Sections and GPU numbers on a real device, where there is one."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest
import torch

from tests.training.memory_nodes import holding
from training.checkpoint.memory import restored, sets
from training.checkpoint.memory.shard import pack
from training.checkpoint.memory.writer import Nodes, Writer
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
    assert numbers.memory_bytes == pytest.approx(total - free, rel=0.1)
    for value in (numbers.power_w, numbers.temperature_c, numbers.clock_mhz):
        assert value is not None
        assert value > 10
    assert numbers.throttle is not None


def test_memory_checkpoint_of_a_gpu_has_what_its_kernels_wrote_before() -> None:
    weights = torch.zeros(64 << 20, device="cuda")
    with holding("a") as started:
        writer = Writer(0, 1, 1, lambda: Nodes(started.nodes.of("a"), None))
        assert writer.connected.wait(60)
        for step in range(1, 7):
            multiply(8192, 20)
            weights += 1
            writer.write(step, partial(pack, {"model.pt": {"weights": weights}}))
            multiply(8192, 20)
            writer.wait_for_copy()
        writer.wait_for_peer()
        assert not writer.why
        assert all(buffer._pinned_at for buffer in writer._buffers.values())
        newest = sets.found(started.nodes.known()).sets[0]
        assert newest.step == 6
        with restored.directory(newest, "a") as directory:
            state = torch.load(directory / "model.pt", weights_only=True)
        assert state["weights"].unique().tolist() == [6]
        writer.close()


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
