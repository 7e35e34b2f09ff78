"""GPU numbers, with NVML in the part of the hardware."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pytest

from training.telemetry.gpu import Gpu, GpuNumbers


class NVMLError(Exception):
    pass


def nvml(opened: list[object]) -> SimpleNamespace:
    def unsupported(_: object) -> int:
        raise NVMLError("Not Supported")

    def open_one(device: object) -> object:
        opened.append(device)
        return device

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=open_one,
        nvmlDeviceGetHandleByUUID=open_one,
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=87),
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=5 << 30),
        nvmlDeviceGetPowerUsage=unsupported,
        nvmlDeviceGetTemperature=lambda _, kind: 61,
    )


@pytest.mark.parametrize(("ids", "device"), [(("3", "4"), 3), (("GPU-7f",), "GPU-7f")])
def test_the_ranks_own_device_is_read_and_what_it_lacks_is_none(
    ids: tuple[str, ...], device: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setitem(sys.modules, "pynvml", nvml(opened))
    gpu = Gpu(ids)
    assert gpu.read() == gpu.read() == GpuNumbers(87.0, 5 << 30, None, 61.0)
    assert opened == [device]


def test_without_nvml_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpu = Gpu(("0",))
    with caplog.at_level(logging.WARNING):
        assert gpu.read() == gpu.read() == GpuNumbers()
    assert len(caplog.records) == 1


def test_a_rank_without_a_gpu_asks_nobody() -> None:
    assert Gpu(()).read() == GpuNumbers()
