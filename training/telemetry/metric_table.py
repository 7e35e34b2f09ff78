"""The metrics of a rank's record: name, unit, aggregation, titles and Prometheus name.

`Steps` of the wire and `RankSample` of cockpit have a field of each name. The gauges, the curves of
a run, the queries of Prometheus and the charts of the UI and of reports are generated from this
table. Pure Python, like the wire: cockpit imports both.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Unit: TypeAlias = Literal["", "s", "B", "%", "/s", "W", "°C"]


class Metric(NamedTuple):
    """One number of a rank's record."""

    name: str
    unit: Unit = ""
    title: str = ""
    """The title of its chart; empty for a metric without a curve."""
    gauge: str = ""
    """Its name in Prometheus, after `cockpit_train_`; empty if it is not exported."""
    help: str = ""
    """The description in Prometheus."""
    total: bool = False
    """Whether a run's value is the sum over its ranks; else their mean."""
    band: bool = False
    """Whether a run keeps the 10th and the 90th percentile of its ranks."""
    from_zero: bool = True
    """Whether the axis of its chart starts at 0, so that small changes look small."""
    part: str = ""
    """Its label as a part of a step; empty if it is not one."""

    @property
    def heading(self) -> str:
        """The title of a chart of a whole run."""
        return f"{self.title}, all ranks" if self.total else self.title


METRICS = (
    Metric("loss", "", "Loss", "loss", "Of the last step.", band=True, from_zero=False),
    Metric(
        "samples_per_s",
        "/s",
        "Samples",
        "samples_per_second",
        "Samples that the rank trains on.",
        total=True,
        band=True,
    ),
    Metric(
        "tokens_per_s",
        "/s",
        "Tokens",
        "tokens_per_second",
        "Tokens that the rank trains on.",
        total=True,
    ),
    Metric(
        "step_time_s", "s", "Step time", "step_time_seconds", "Mean wall time of a step.", band=True
    ),
    Metric("mfu_percent", "%", "MFU", "mfu_percent", "Model FLOPs utilisation."),
    Metric("grad_norm", "", "Gradient norm", "grad_norm", "Of the last step."),
    Metric("learning_rate", "", "Learning rate", "learning_rate", "Of the last step."),
    Metric(
        "gpu_utilization_percent",
        "%",
        "GPU",
        "gpu_utilization_percent",
        "As NVML has it.",
        band=True,
    ),
    Metric(
        "gpu_memory_bytes",
        "B",
        "GPU memory",
        "gpu_memory_bytes",
        "Memory in use on the rank's device.",
        total=True,
    ),
    Metric(
        "gpu_power_w",
        "W",
        "GPU power",
        "gpu_power_watts",
        "Power that the rank's device draws.",
        total=True,
    ),
    Metric(
        "gpu_temperature_c",
        "°C",
        "GPU temperature",
        "gpu_temperature_celsius",
        "Of the rank's device.",
        from_zero=False,
    ),
    Metric(
        "memory_bytes",
        "B",
        "Memory",
        "memory_bytes",
        "Resident set of the rank's process.",
        total=True,
    ),
    Metric("cpu_percent", "%", "CPU", "cpu_percent", "Of the rank's process; 100 is one core."),
    Metric(
        "data_wait_s",
        "s",
        "Data wait",
        "data_wait_seconds",
        "Mean of a step: waiting for data.",
        part="data wait",
    ),
    Metric(
        "forward_s",
        "s",
        "Forward",
        "forward_seconds",
        "Mean of a step: forward pass.",
        part="forward",
    ),
    Metric(
        "backward_s",
        "s",
        "Backward",
        "backward_seconds",
        "Mean of a step: backward pass.",
        part="backward",
    ),
    Metric(
        "comm_s",
        "s",
        "Communication",
        "communication_seconds",
        "Mean of a step: in collectives.",
        part="comm",
    ),
    Metric(
        "optimizer_s",
        "s",
        "Optimizer",
        "optimizer_seconds",
        "Mean of a step: optimiser.",
        part="optimizer",
    ),
    # Not a gauge of a rank: cockpit_train_checkpoint_seconds is the run's.
    Metric("checkpoint_s", "s", "Checkpoint stall"),
    Metric("step", gauge="step", help="The last global step done."),
    Metric(
        "gpu_memory_total_bytes",
        "B",
        gauge="gpu_memory_total_bytes",
        help="Memory of the rank's device.",
    ),
    Metric("gpu_clock_mhz", gauge="gpu_clock_mhz", help="Of the streaming multiprocessors."),
    Metric(
        "gpu_ecc_errors",
        gauge="gpu_ecc_errors",
        help="Uncorrected errors since the driver was loaded.",
    ),
)
"""In the order of the charts."""

ACTIVITY = {
    metric.name: metric
    for metric in (
        Metric("sm_active_percent", "%", "SM active"),
        Metric("tensor_active_percent", "%", "Tensor cores active"),
        Metric("dram_active_percent", "%", "GPU memory bandwidth"),
        Metric("nvlink_bytes_per_s", "B", "NVLink, in a second", total=True),
        Metric("pcie_bytes_per_s", "B", "PCIe, in a second", total=True),
    )
}
"""Numbers of DCGM for the GPUs of a rank: fields of cockpit's `GpuActivity`, and not of a record.
"""
CURVES = {metric.name: metric for metric in METRICS if metric.title}
"""The metrics with a curve that is kept and drawn, by name."""
PARTS = {metric.name: metric.part for metric in METRICS if metric.part}
"""The metrics that are parts of a step, in its order: their labels."""
