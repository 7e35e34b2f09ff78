"""One GPU, or one slice of one, by NVML.

Do not read it on the training thread: NVML counts PCIe traffic over 20 ms, for each direction,
while the caller waits (nvmlDeviceGetPcieThroughput), and a faulty driver may not respond.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from training.telemetry.gpu.nvml import ALL_LINKS, ANY_INSTANCE, Nvml, throttle_reasons, value_of

log = logging.getLogger(__name__)

KIB = 1024
_XIDS = 64
"""The maximum number of events that one read takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNumbers:
    """Named as in `wire.Steps`, without `gpu_`. None: the device does not report it."""

    utilization_percent: float | None = None
    memory_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    memory_total_bytes: int | None = None
    clock_mhz: int | None = None
    throttle: str | None = None
    ecc_errors: int | None = None
    xid: int | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    pcie_tx_bytes_per_s: float | None = None


class Card:
    """One device, or one slice of one (MIG), which owns only its memory.

    A slice reports the temperature, clock, throttling, ECC and Xid of its card; the card's
    utilisation, power and traffic are not those of the slice and are omitted.
    """

    def __init__(self, nvml: Nvml, id: str, clock: Callable[[], float]) -> None:
        """Raises NVMLError if there is no such device."""
        self._nvml, self._id, self._clock = nvml, id, clock
        self._is_lost = False
        self._own = (
            nvml.nvmlDeviceGetHandleByIndex(int(id))
            if id.isdigit()
            else nvml.nvmlDeviceGetHandleByUUID(id)
        )
        self._is_slice = id.startswith("MIG-")
        self._card, self._instance = self._own, None
        if self._is_slice:
            parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle
            self._card = self._one(lambda: parent(self._own))
            self._instance = self._one(lambda: nvml.nvmlDeviceGetGpuInstanceId(self._own))
        self.name: str = self._one(lambda: nvml.nvmlDeviceGetName(self._own)) or ""
        self._links: tuple[float, tuple[float | None, float | None]] | None = None
        self._xid: int | None = None
        self._answers = True
        self._events = self._one(self._listen)

    def read(self) -> GpuNumbers:
        self._read_events()
        if self._is_lost:
            return GpuNumbers(xid=self._xid)
        nvml, own, card = self._nvml, self._own, self._card
        # As nvidia-smi does. The first version counts what the driver reserves as used: 0.5 GB of
        # an H100.
        memory = self._one(lambda: nvml.nvmlDeviceGetMemoryInfo(own, nvml.nvmlMemory_v2))
        if memory is None:  # drivers before 510
            memory = self._one(lambda: nvml.nvmlDeviceGetMemoryInfo(own))
        of_card = GpuNumbers() if card is None else self._of_card(card)
        whole = GpuNumbers() if self._is_slice else self._of_whole(own)
        numbers = GpuNumbers(
            utilization_percent=whole.utilization_percent,
            memory_bytes=None if memory is None else int(memory.used),
            power_w=whole.power_w,
            temperature_c=of_card.temperature_c,
            memory_total_bytes=None if memory is None else int(memory.total),
            clock_mhz=of_card.clock_mhz,
            throttle=of_card.throttle,
            ecc_errors=of_card.ecc_errors,
            xid=self._xid,
            nvlink_rx_bytes_per_s=whole.nvlink_rx_bytes_per_s,
            nvlink_tx_bytes_per_s=whole.nvlink_tx_bytes_per_s,
            pcie_rx_bytes_per_s=whole.pcie_rx_bytes_per_s,
            pcie_tx_bytes_per_s=whole.pcie_tx_bytes_per_s,
        )
        self._notice(numbers)
        return numbers

    def _of_card(self, card: Any) -> GpuNumbers:
        nvml = self._nvml
        temperature = self._one(
            lambda: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU)
        )
        reasons = self._one(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(card))
        if reasons is None:  # drivers before 535 only know its old name
            reasons = self._one(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card))
        return GpuNumbers(
            temperature_c=None if temperature is None else float(temperature),
            clock_mhz=self._one(lambda: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM)),
            throttle=None if reasons is None else throttle_reasons(reasons),
            ecc_errors=self._one(
                lambda: nvml.nvmlDeviceGetTotalEccErrors(
                    card, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                )
            ),
        )

    def _of_whole(self, device: Any) -> GpuNumbers:
        nvml = self._nvml
        utilization = self._one(lambda: nvml.nvmlDeviceGetUtilizationRates(device))
        milliwatts = self._one(lambda: nvml.nvmlDeviceGetPowerUsage(device))
        received, sent = self._over_links(device)

        def over_pcie(counter: int) -> float | None:
            kilobytes = self._one(lambda: nvml.nvmlDeviceGetPcieThroughput(device, counter))
            return None if kilobytes is None else kilobytes * 1000.0

        return GpuNumbers(
            utilization_percent=None if utilization is None else float(utilization.gpu),
            power_w=None if milliwatts is None else milliwatts / 1000,
            nvlink_rx_bytes_per_s=received,
            nvlink_tx_bytes_per_s=sent,
            pcie_rx_bytes_per_s=over_pcie(nvml.NVML_PCIE_UTIL_RX_BYTES),
            pcie_tx_bytes_per_s=over_pcie(nvml.NVML_PCIE_UTIL_TX_BYTES),
        )

    def _over_links(self, device: Any) -> tuple[float | None, float | None]:
        """Bytes per second received and sent since the last read, payload only, all links."""
        nvml = self._nvml
        asked = (
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
            (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
        )
        answered = self._one(lambda: nvml.nvmlDeviceGetFieldValues(device, asked))
        if answered is None:
            return None, None
        now = self._clock()
        received, sent = (
            value_of(field) if field.nvmlReturn == nvml.NVML_SUCCESS else None for field in answered
        )
        before, self._links = self._links, (now, (received, sent))
        if before is None or now <= before[0]:
            return None, None
        passed_s, (received_before, sent_before) = now - before[0], before[1]
        return (
            _rate(received_before, received, passed_s),
            _rate(sent_before, sent, passed_s),
        )

    def _listen(self) -> Any:
        if self._card is None:
            return None
        events = self._nvml.nvmlEventSetCreate()
        kind = self._nvml.nvmlEventTypeXidCriticalError
        self._nvml.nvmlDeviceRegisterEvents(self._card, kind, events)
        return events

    def _read_events(self) -> None:
        """The Xids since the last call, without waiting for one."""
        if self._events is None:
            return
        for _ in range(_XIDS):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError as error:
                if getattr(error, "value", None) != self._nvml.NVML_ERROR_TIMEOUT:
                    self._events = (
                        None  # the event set of a lost device returns immediately, every time
                    )
                return
            if self._instance is None or event.gpuInstanceId in (self._instance, ANY_INSTANCE):
                self._xid = int(event.eventData)
                log.warning("telemetry: Xid %d of GPU %s", self._xid, self._id)

    def _notice(self, numbers: GpuNumbers) -> None:
        """Log once that a device stopped responding, and once that it responds again."""
        answers = any(
            getattr(numbers, each.name) is not None
            for each in fields(numbers)
            if each.name != "xid"
        )
        if answers != self._answers and not self._is_lost:
            self._answers = answers
            text = "answers again" if answers else "does not answer: its numbers are left out"
            log.warning("telemetry: GPU %s %s", self._id, text)

    def _one(self, read: Callable[[], Any]) -> Any:
        """None if this device, driver or container does not provide it."""
        try:
            return None if self._is_lost else read()
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) == self._nvml.NVML_ERROR_GPU_IS_LOST:
                # Fallen off the bus; only a reset, which ends this process, brings it back.
                self._is_lost = True
                log.warning("telemetry: GPU %s is lost; no more numbers of it", self._id)
            return None


def _rate(before: float | None, now: float | None, passed_s: float) -> float | None:
    """The increase of a counter in KiB; None if it was reset."""
    if before is None or now is None or now < before:
        return None
    return (now - before) * KIB / passed_s
