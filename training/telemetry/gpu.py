"""The numbers of one rank's GPU, from NVML; all None where there is no NVML or no GPU."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GpuNumbers:
    utilization_percent: float | None = None
    memory_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None


class Gpu:
    """The first of the rank's GPUs. `ids` are Ray's: physical indices, or UUIDs.

    They are Ray's and not CUDA_VISIBLE_DEVICES because Ray Train gives every rank of a node all
    of that node's devices there (AcceleratorSetupCallback), for NCCL's sake.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self._id = ids[0] if ids else None
        self._nvml: Any = None
        self._device: Any = None

    def read(self) -> GpuNumbers:
        if self._id is None:
            return GpuNumbers()
        if self._device is None:
            self._open(self._id)
            if self._device is None:
                self._id = None  # said once; not tried again every second
                return GpuNumbers()
        nvml, device = self._nvml, self._device
        utilization = self._one(lambda: float(nvml.nvmlDeviceGetUtilizationRates(device).gpu))
        memory = self._one(lambda: float(nvml.nvmlDeviceGetMemoryInfo(device).used))
        power = self._one(lambda: nvml.nvmlDeviceGetPowerUsage(device) / 1000)
        temperature = self._one(
            lambda: float(nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU))
        )
        return GpuNumbers(utilization, None if memory is None else int(memory), power, temperature)

    def _open(self, device: str) -> None:
        try:
            import pynvml
        except ImportError:
            log.warning("no GPU numbers: nvidia-ml-py is not installed on this node")
            return
        try:
            pynvml.nvmlInit()
            self._device = (
                pynvml.nvmlDeviceGetHandleByIndex(int(device))
                if device.isdigit()
                else pynvml.nvmlDeviceGetHandleByUUID(device)
            )
        except pynvml.NVMLError as error:
            log.warning("no GPU numbers for device %s: %s", device, error)
        self._nvml = pynvml

    def _one(self, read: Callable[[], float]) -> float | None:
        """A number that this device does not have (a MIG slice has no utilisation) is None."""
        try:
            return read()
        except self._nvml.NVMLError:
            return None
