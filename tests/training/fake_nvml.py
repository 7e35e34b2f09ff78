"""NVML in the part of the hardware, with the names and the ways of the module `pynvml`."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

TIMEOUT, LOST, UNSUPPORTED, NOT_FOUND = 10, 15, 3, 6


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml:
    """Two GPUs "0" and "1", and a slice "MIG-a" of the first. A test changes the numbers."""

    NVMLError: type[Exception] = NVMLError
    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_PCIE_UTIL_TX_BYTES = 0
    NVML_PCIE_UTIL_RX_BYTES = 1
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139
    NVML_ERROR_TIMEOUT = TIMEOUT
    NVML_ERROR_GPU_IS_LOST = LOST
    NVML_SUCCESS = 0
    nvmlMemory_v2 = 0x2000028
    nvmlEventTypeXidCriticalError = 8

    def __init__(self) -> None:
        self.opened: list[object] = []
        self.asked: list[tuple[str, object]] = []
        self.unsupported: set[str] = set()
        self.lost: set[object] = set()
        self.silent = False
        """Every call fails, as when a container has lost its devices."""
        self.utilization = {0: 80, 1: 40}
        self.reasons = {0: 0, 1: 0}
        self.links_kib = {139: 0, 138: 0}
        self.xids: list[tuple[int, int]] = []
        """Xid and GPU instance."""
        self._listening: list[object] = []

    def _ask(self, name: str, device: object) -> None:
        self.asked.append((name, device))
        if device in self.lost:
            raise NVMLError(LOST)
        if self.silent or name in self.unsupported:
            raise NVMLError(UNSUPPORTED)

    def nvmlInit(self) -> None:
        self._ask("nvmlInit", None)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        self.opened.append(index)
        if index not in self.utilization:
            raise NVMLError(NOT_FOUND)
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        self.opened.append(uuid)
        return {"GPU-7f": 1, "MIG-a": "MIG-a"}[uuid]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, migDevice: Any) -> Any:
        self._ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", migDevice)
        return 0

    def nvmlDeviceGetGpuInstanceId(self, device: Any) -> int:
        self._ask("nvmlDeviceGetGpuInstanceId", device)
        return 7

    def nvmlDeviceGetName(self, handle: Any) -> str:
        self._ask("nvmlDeviceGetName", handle)
        return "NVIDIA H200 MIG 1g.18gb" if handle == "MIG-a" else "NVIDIA H200"

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        self._ask("nvmlDeviceGetUtilizationRates", handle)
        return SimpleNamespace(gpu=self.utilization[handle])

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        self._ask("nvmlDeviceGetMemoryInfo", handle)
        if version is not None:
            self._ask("nvmlDeviceGetMemoryInfo_v2", handle)
        total = 16 << 30 if handle == "MIG-a" else 140 << 30
        return SimpleNamespace(used=(5 if version == self.nvmlMemory_v2 else 6) << 30, total=total)

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetPowerUsage", handle)
        return 650_500

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        self._ask("nvmlDeviceGetTemperature", handle)
        return 61 + int(handle)

    def nvmlDeviceGetClockInfo(self, handle: Any, type: int) -> int:
        self._ask("nvmlDeviceGetClockInfo", handle)
        return 1980 - 100 * int(handle)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        return self.reasons[handle]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:
        self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return self.reasons[handle]

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, errorType: int, counterType: int) -> int:
        self._ask("nvmlDeviceGetTotalEccErrors", handle)
        return 1 if (errorType, counterType) == (1, 0) else 99

    def nvmlDeviceGetPcieThroughput(self, device: Any, counter: int) -> int:
        self._ask("nvmlDeviceGetPcieThroughput", device)
        return {self.NVML_PCIE_UTIL_RX_BYTES: 3_000, self.NVML_PCIE_UTIL_TX_BYTES: 1_000}[counter]

    def nvmlDeviceGetFieldValues(
        self, handle: Any, fieldIds: Sequence[tuple[int, int]]
    ) -> Sequence[Any]:
        self._ask("nvmlDeviceGetFieldValues", handle)
        assert all(scope == 0xFFFFFFFF for _, scope in fieldIds)
        wrong = UNSUPPORTED if "links" in self.unsupported else 0
        return [
            SimpleNamespace(
                nvmlReturn=wrong,
                valueType=3,
                value=SimpleNamespace(ullVal=self.links_kib[field], uiVal=0, dVal=0.0),
            )
            for field, _ in fieldIds
        ]

    def nvmlEventSetCreate(self) -> Any:
        self._ask("nvmlEventSetCreate", None)
        return self._listening

    def nvmlDeviceRegisterEvents(self, handle: Any, eventTypes: int, eventSet: Any) -> None:
        self._ask("nvmlDeviceRegisterEvents", handle)
        assert eventTypes == 8
        eventSet.append(handle)

    def nvmlEventSetWait_v2(self, eventSet: Any, timeoutms: int) -> Any:
        assert timeoutms == 0, "nobody waits for an Xid"
        if any(device in self.lost for device in eventSet):
            raise NVMLError(LOST)
        if not self.xids:
            raise NVMLError(TIMEOUT)
        xid, instance = self.xids.pop(0)
        return SimpleNamespace(eventData=xid, gpuInstanceId=instance, eventType=8)
