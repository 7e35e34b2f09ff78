"""The part of NVML that is used, under the names of the module `pynvml`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

ALL_LINKS = 0xFFFFFFFF
"""The scope of a field that requests the sum over all NVLinks (nvml.h, NVLink throughput)."""

ANY_INSTANCE = 0xFFFFFFFF
"""The GPU instance of an event that is not specific to a slice."""

_HELD = (
    # nvml.h, nvmlClocksEventReason…, called …ThrottleReason… before. Bit 0x1 means that the device
    # is idle: its clocks are not reduced.
    (0x002, "application clocks"),
    (0x004, "power cap"),
    (0x010, "sync boost"),
    (0x020, "software thermal slowdown"),
    (0x040, "hardware thermal slowdown"),
    (0x080, "power brake"),
    (0x100, "display clocks"),
    (0x200, "board limit"),
    (0x400, "reliability"),
)
_HARDWARE = 0x008
_IDLE = 0x001


class Nvml(Protocol):
    """The module. Every function raises its NVMLError: not supported, not permitted, GPU lost …"""

    NVMLError: type[Exception]
    NVML_TEMPERATURE_GPU: int
    NVML_CLOCK_SM: int
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int
    NVML_VOLATILE_ECC: int
    NVML_PCIE_UTIL_TX_BYTES: int
    NVML_PCIE_UTIL_RX_BYTES: int
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: int
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: int
    NVML_ERROR_TIMEOUT: int
    NVML_ERROR_GPU_IS_LOST: int
    NVML_SUCCESS: int
    nvmlMemory_v2: int
    nvmlEventTypeXidCriticalError: int

    def nvmlInit(self) -> None: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any: ...
    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, migDevice: Any) -> Any: ...
    def nvmlDeviceGetGpuInstanceId(self, device: Any) -> int: ...
    def nvmlDeviceGetName(self, handle: Any) -> str: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any: ...
    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int: ...
    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int: ...
    def nvmlDeviceGetClockInfo(self, handle: Any, type: int) -> int: ...
    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int: ...
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int: ...
    def nvmlDeviceGetTotalEccErrors(self, handle: Any, errorType: int, counterType: int) -> int: ...
    def nvmlDeviceGetPcieThroughput(self, device: Any, counter: int) -> int: ...
    def nvmlDeviceGetFieldValues(
        self, handle: Any, fieldIds: Sequence[tuple[int, int]]
    ) -> Sequence[Any]: ...
    def nvmlEventSetCreate(self) -> Any: ...
    def nvmlDeviceRegisterEvents(self, handle: Any, eventTypes: int, eventSet: Any) -> None: ...
    def nvmlEventSetWait_v2(self, eventSet: Any, timeoutms: int) -> Any: ...


def load() -> Nvml:
    """Raises ImportError if nvidia-ml-py is not installed."""
    import pynvml

    found: Nvml = pynvml
    return found


def throttle_reasons(reasons: int) -> str:
    """Why the clocks are reduced, separated by commas; "" if they are not."""
    terms = [text for bit, text in _HELD if reasons & bit]
    if reasons & _HARDWARE and not reasons & (0x040 | 0x080):
        terms.append("hardware slowdown")  # the two above are more specific
    known = _IDLE | _HARDWARE
    for bit, _ in _HELD:
        known |= bit
    if rest := reasons & ~known:
        terms.append(f"reason {rest:#x}")
    return ", ".join(terms)


def value_of(field: Any) -> float:
    """The value of an nvmlFieldValue_t, which is a union: nvmlValueType_t selects the member."""
    member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[field.valueType]
    return float(getattr(field.value, member))
