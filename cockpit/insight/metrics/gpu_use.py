"""What keeps the GPUs of a run from computing, by DCGM's counters.

NVML's utilisation only counts whether a kernel runs at all. Over the points of the last `window_s`
seconds, of runs whose GPUs are busy (NVML) for at least 70 %:

    memory-bound     the memory interface is active for at least 60 %
    launch-bound     multiprocessors are active for less than 50 % (where the exporter does not
                     have them: tensor cores for less than 25 %): kernels are too small or too few
    no tensor cores  multiprocessors are active, tensor cores for less than 5 %
    compute-bound    otherwise

NVIDIA's DCGM documentation (feature overview, profiling metrics): SM activity below 0.5 likely
indicates ineffective use of the GPU, 0.8 is necessary for an effective one; in practice, 0.8 is
the maximum of DRAM activity.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from cockpit.format import in_seconds
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import newest_s, stepping_since
from cockpit.insight.metrics.robust_statistics import finite, window
from cockpit.model.alert import Finding, Severity
from cockpit.store.run import RunView

BUSY_PERCENT = 70.0
MEMORY_PERCENT = 60.0
SM_PERCENT = 50.0
TENSOR_PERCENT = 25.0
NO_TENSOR_PERCENT = 5.0
FEWEST = 3


class Bound(StrEnum):
    LAUNCH = "launch-bound"
    MEMORY = "memory-bound"
    NO_TENSOR_CORES = "tensor cores unused"
    COMPUTE = "compute-bound"

    @property
    def todo(self) -> str:
        return _TRY[self]


_TRY = {
    Bound.LAUNCH: "torch.compile or CUDA graphs, larger batches, fused kernels and optimizer",
    Bound.MEMORY: "Fused kernels (torch.compile, flash attention), or a smaller data type",
    Bound.NO_TENSOR_CORES: "bfloat16 autocast, or TF32 (torch.set_float32_matmul_precision)",
    Bound.COMPUTE: "The GPUs compute: only a smaller model or more ranks make a step faster",
}


class GpuUse(Struct, frozen=True):
    """Means over the ranks and the window; None: the exporter does not have it."""

    busy_percent: float
    sm_percent: float | None
    tensor_percent: float | None
    dram_percent: float | None
    bound: Bound

    @property
    def text(self) -> str:
        """Such as `83 % busy, 12 % tensor active: launch-bound`."""
        named = (
            ("busy", self.busy_percent),
            ("SM active", self.sm_percent),
            ("tensor active", self.tensor_percent),
            ("memory bandwidth", self.dram_percent),
        )
        parts = ", ".join(
            f"{percent:.0f} % {name}" for name, percent in named if percent is not None
        )
        return f"{parts}: {self.bound.value}"


def gpu_use(run: RunView, window_s: float) -> GpuUse | None:
    """None before three points of DCGM in this attempt, or for GPUs that are not busy."""
    since, newest = stepping_since(run), newest_s(run)
    if since is None or newest is None:
        return None
    begin = max(since, newest - window_s)

    def mean(name: str) -> float | None:
        values = finite(window(run.curves[name], begin)[1]) if name in run.curves else []
        return sum(values) / len(values) if len(values) >= FEWEST else None

    busy = mean("gpu_utilization_percent")
    sm, tensor, dram = map(mean, ("sm_active_percent", "tensor_active_percent",
                                  "dram_active_percent"))  # fmt: skip
    if busy is None or busy < BUSY_PERCENT or (sm is None and tensor is None):
        return None
    idle = sm < SM_PERCENT if sm is not None else (tensor or 0.0) < TENSOR_PERCENT
    if dram is not None and dram >= MEMORY_PERCENT:
        bound = Bound.MEMORY
    elif idle:
        bound = Bound.LAUNCH
    elif tensor is not None and tensor < NO_TENSOR_PERCENT:
        bound = Bound.NO_TENSOR_CORES
    else:
        bound = Bound.COMPUTE
    return GpuUse(busy, sm, tensor, dram, bound)


def find(run: RunView, limits: Thresholds) -> list[Finding]:
    """`gpu-underused`: the GPUs are busy, but most of them waits for launches or memory."""
    found = gpu_use(run, limits.window_s)
    since, newest = stepping_since(run), newest_s(run)
    if found is None or found.bound is Bound.COMPUTE or since is None or newest is None:
        return []
    if newest - since < limits.warmup_s:
        return []
    return [
        Finding(
            "gpu-underused",
            f"run {run.id}",
            Severity.INFO,
            f"The GPUs are {found.text}",
            f"DCGM's counters, the mean of {in_seconds(limits.window_s, 0)} over the ranks",
            found.bound.todo,
            run.id,
        )
    ]
