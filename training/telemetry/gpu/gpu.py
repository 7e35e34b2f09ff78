"""The numbers of one rank's GPUs, from NVML; all None without NVML or a GPU."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from training.telemetry.gpu.card import Card, GpuNumbers
from training.telemetry.gpu.nvml import Nvml, load

log = logging.getLogger(__name__)

__all__ = ["Gpu", "GpuNumbers", "by_name", "together"]


class Gpu:
    """All GPUs of a rank. `ids` are Ray's: physical indices, or UUIDs.

    CUDA_VISIBLE_DEVICES is not used, because Ray Train sets it to all devices of the node for every
    rank (AcceleratorSetupCallback), for NCCL.
    """

    def __init__(
        self,
        ids: Sequence[str],
        load: Callable[[], Nvml] = load,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ids, self._load, self._clock = tuple(ids), load, clock
        self._cards: tuple[Card, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the devices that were found, after the first read."""
        return tuple(card.name for card in self._cards or ())

    def read(self) -> GpuNumbers:
        """Takes some 40 ms a device, most of it for PCIe traffic. Does not raise NVML's errors."""
        if not self._ids:
            return GpuNumbers()
        if self._cards is None:
            self._cards = self._open()
        return together([card.read() for card in self._cards])

    def _open(self) -> tuple[Card, ...]:
        """Logged once if there are none; not tried again every second."""
        try:
            nvml = self._load()
        except ImportError:
            log.warning("no GPU numbers: nvidia-ml-py is not installed on this node")
            return ()
        device = ", ".join(self._ids)
        try:
            nvml.nvmlInit()
            return tuple(Card(nvml, id, self._clock) for id in self._ids)
        except nvml.NVMLError as error:
            log.warning("no GPU numbers for device %s: %s", device, error)
            return ()


def by_name(ids: Iterable[int | str]) -> dict[str, Any]:
    """Ray's ids of GPUs as the fields of `wire.Worker`: indices and UUIDs."""
    names = [str(id) for id in ids]
    return {
        "gpu_ids": tuple(int(name) for name in names if name.isdigit()),
        "gpu_uuids": tuple(name for name in names if not name.isdigit()),
    }


def together(cards: Sequence[GpuNumbers]) -> GpuNumbers:
    """Combine one rank's GPUs.

    Memory, power, errors and traffic are sums and utilisation is a mean, None unless every GPU
    reports it. The temperature is the hottest, the clock the slowest; all throttle reasons and one
    of the Xids are included, because each of them shows a problem of a GPU.
    """
    if len(cards) < 2:
        return cards[0] if cards else GpuNumbers()
    temperatures = [card.temperature_c for card in cards if card.temperature_c is not None]
    clocks = [card.clock_mhz for card in cards if card.clock_mhz is not None]
    reasons = [card.throttle for card in cards if card.throttle is not None]
    xids = [card.xid for card in cards if card.xid is not None]
    utilizations = _all([card.utilization_percent for card in cards])
    return GpuNumbers(
        utilization_percent=None if utilizations is None else fmean(utilizations),
        memory_bytes=_whole_sum([card.memory_bytes for card in cards]),
        power_w=_sum([card.power_w for card in cards]),
        temperature_c=max(temperatures, default=None),
        memory_total_bytes=_whole_sum([card.memory_total_bytes for card in cards]),
        clock_mhz=min(clocks, default=None),
        throttle=_distinct(reasons) if reasons else None,
        ecc_errors=_whole_sum([card.ecc_errors for card in cards]),
        xid=xids[-1] if xids else None,
        nvlink_rx_bytes_per_s=_sum([card.nvlink_rx_bytes_per_s for card in cards]),
        nvlink_tx_bytes_per_s=_sum([card.nvlink_tx_bytes_per_s for card in cards]),
        pcie_rx_bytes_per_s=_sum([card.pcie_rx_bytes_per_s for card in cards]),
        pcie_tx_bytes_per_s=_sum([card.pcie_tx_bytes_per_s for card in cards]),
    )


def _distinct(reasons: Sequence[str]) -> str:
    """Each reason once, in the order of first occurrence."""
    return ", ".join(dict.fromkeys(text for held in reasons for text in held.split(", ") if text))


def _all(values: Sequence[float | None]) -> list[float] | None:
    found = [value for value in values if value is not None]
    return found if len(found) == len(values) else None


def _sum(values: Sequence[float | None]) -> float | None:
    found = _all(values)
    return None if found is None else sum(found)


def _whole_sum(values: Sequence[int | None]) -> int | None:
    found = _all(values)
    return None if found is None else int(sum(found))
