"""The part of DDP's all-reduce that its backward pass does not hide, from DDP's own timers.

DDP reduces one bucket of gradients while the backward pass computes the next. At the end of the
pass it waits for the rest, inside `backward()`, where a training loop has no section. DDP's logger
times the collectives from the first's start to the last's end (`backward_comm_time`), and the part
of it that overlapped with computing (`backward_compute_comm_overlap_time`), in nanoseconds, in the
first 10 steps and then in one of 100 (torch/csrc/distributed/c10d/logger.cpp).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

RATE_ON_GPU = 100
"""DDP's own interval. A timed step waits for an event of the device, so it is not shortened."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """In one step."""

    seconds: float
    share: float
    """The share of the backward pass and the wait at its end, 0 to 1."""


class Overlap:
    """The timers of one DDP module, which is not kept alive.

    Do not call it on the training thread or the one that pushes: DDP responds when no collective is
    in progress.
    """

    def __init__(self, ddp: Any) -> None:
        """Raises AttributeError for a module that is not DDP of a supported torch."""
        self._ddp = weakref.ref(ddp)
        self._on_cpu = ddp.device_type == "cpu"
        _ = ddp._get_ddp_logging_data, ddp._set_ddp_runtime_logging_sample_rate
        self._rate = RATE_ON_GPU

    def pace(self, step_time_s: float | None, interval_s: float) -> None:
        """On a CPU the timers only read a clock: have one step of each interval timed."""
        ddp = self._ddp()
        if ddp is None or not self._on_cpu or not step_time_s:
            return
        rate = max(1, min(RATE_ON_GPU, int(interval_s / step_time_s)))
        if rate != self._rate:
            self._rate = rate
            ddp._set_ddp_runtime_logging_sample_rate(rate)

    def read(self) -> Exposed | None:
        """The newest timed step; None before the first."""
        ddp = self._ddp()
        if ddp is None:
            return None
        reported = ddp._get_ddp_logging_data()
        comm_ns, hidden_ns, compute_ns = (
            int(reported.get(name, 0))
            for name in (
                "backward_comm_time",
                "backward_compute_comm_overlap_time",
                "backward_compute_time",
            )
        )
        if comm_ns <= 0 or compute_ns <= 0:
            return None
        exposed_ns = max(0, comm_ns - hidden_ns)
        return Exposed(exposed_ns / 1e9, exposed_ns / (compute_ns + exposed_ns))
