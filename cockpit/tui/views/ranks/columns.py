"""The columns of ranks: what each shows, what it sorts by, and what a filter calls it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from cockpit import format
from cockpit.model.run import RankSample
from cockpit.model.text import one_line
from cockpit.store.run import RankView, RunView
from cockpit.tui.rows import fields
from cockpit.tui.rows.filter import Value
from cockpit.tui.terminal.cells import width_of
from cockpit.tui.widgets.chart.sparkline import sparkline
from cockpit.tui.widgets.table.table import Cell, Column

SPARK_CELLS = 10
PAST_POINTS = 60
"""The earlier values of a rank, for its trend."""
MOST_REPORTED = 6
"""A job may report hundreds of numbers."""


class RankLine(Struct, frozen=True):
    """One rank with what is known of it from elsewhere."""

    rank: RankView
    now_s: float
    pod: str = ""
    age_s: float | None = None
    is_stale: bool = False
    is_stale_rank: bool = False
    """The stream itself reports it as stale."""
    straggler: float | None = None
    checkpoint_s: float | None = None
    """Seconds since the run's newest checkpoint."""

    @property
    def sample(self) -> RankSample | None:
        return self.rank.sample

    @property
    def style(self) -> str:
        return "muted" if self.is_stale else ""

    @property
    def node(self) -> str:
        return self.rank.placement.node_ip if self.rank.placement else ""


class Field(fields.Field[RankLine], frozen=True):
    text: Callable[[Value], str] = field(default=lambda value: str(value or format.DASH))
    """What is shown of a value, where it is not in a cell."""
    attribute: str = ""
    """The field of `RankSample` that it shows unchanged, if there is one."""
    low_is_bad: bool = False
    is_number: bool = True


def _measured(
    column: Column,
    value: Callable[[RankLine], Value],
    text: Callable[[float | None], str],
    *names: str,
    attribute: str = "",
    low_is_bad: bool = False,
) -> Field:
    def text_of(number: Value) -> str:
        return text(number if isinstance(number, float) else None)

    def cell(line: RankLine) -> Cell:
        shown = text_of(value(line))
        return Cell(shown, "bad" if shown in ("NaN", "∞", "-∞") else line.style)

    return Field(column, value, cell, names, text_of, attribute, low_is_bad)


def _number(
    key: str,
    title: str,
    width: int,
    attribute: str,
    text: Callable[[float | None], str],
    *names: str,
    priority: int = 0,
    low_is_bad: bool = False,
) -> Field:
    def value(line: RankLine) -> Value:
        found = getattr(line.rank.sample, attribute) if line.rank.sample else None
        return None if found is None else float(found)

    column = Column(key, title, width=width, align="right", priority=priority)
    return _measured(column, value, text, *names, attribute=attribute, low_is_bad=low_is_bad)


def _share(key: str, title: str, attribute: str, *names: str) -> Field:
    def value(line: RankLine) -> Value:
        sample = line.rank.sample
        if sample is None or not sample.step_time_s:
            return None
        part: float | None = getattr(sample, attribute)
        return None if part is None else 100 * part / sample.step_time_s

    column = Column(key, title, width=5, align="right", priority=1)
    return _measured(column, value, format.percent, *names)


def _unit(unit: str) -> Callable[[float | None], str]:
    return lambda value: format.DASH if value is None else f"{value:.0f} {unit}"


def _count(value: float | None) -> str:
    return format.count(None if value is None else int(value))


RANK = Field(
    Column("rank", "RANK", width=5, align="right"),
    lambda line: float(line.rank.rank),
    cell=lambda line: Cell(str(line.rank.rank), line.style or "bold"),
)
POD = Field(
    Column("pod", "POD", min_width=14, cut="middle"),
    lambda line: line.pod,
    cell=lambda line: Cell(line.pod or format.DASH, line.style),
    is_number=False,
)
NODE = Field(
    Column("node", "NODE", priority=5),
    lambda line: line.node,
    cell=lambda line: Cell(line.node or format.DASH, "muted"),
    names=("ip",),
    is_number=False,
)
AGE = Field(
    Column("age", "AGE", width=5, align="right"),
    lambda line: line.age_s,
    cell=lambda line: Cell(
        format.age(line.age_s),
        "warning" if line.is_stale and line.age_s is not None else "muted",
    ),
)
LOSS = _number("loss", "LOSS", 9, "loss", format.number)
STEP_TIME = _number("step_time_s", "STEP TIME", 9, "step_time_s", format.duration, "step_time")
SPEED = (
    LOSS,
    _number(
        "samples_per_s", "SAMPLES/S", 9, "samples_per_s", format.si, "samples", low_is_bad=True
    ),
    STEP_TIME,
)
TOKENS = _number(
    "tokens_per_s", "TOKENS/S", 8, "tokens_per_s", format.si, "tokens", priority=3, low_is_bad=True
)
DATA = _share("data_wait", "DATA", "data_wait_s", "data")
COMM = _share("comm", "COMM", "comm_s")
MFU = _number("mfu", "MFU", 5, "mfu_percent", format.percent, priority=2, low_is_bad=True)
STEP = _number("step", "STEP", 8, "step", _count, low_is_bad=True)
GPU = _number("gpu", "GPU", 5, "gpu_utilization_percent", format.percent, low_is_bad=True)
TEMPERATURE = _number(
    "temperature", "TEMP", 5, "gpu_temperature_c", _unit("°C"), "temp", priority=3
)
GPUS = (
    GPU,
    _number(
        "gpu_memory", "GPU MEM", 9, "gpu_memory_bytes", format.bytes_text, "gpu_mem", priority=2
    ),
    _number("power", "POWER", 6, "gpu_power_w", _unit("W"), priority=3),
    TEMPERATURE,
)


def _active(key: str, title: str, attribute: str, width: int = 6) -> Field:
    def value(line: RankLine) -> Value:
        found = line.rank.activity
        number: float | None = None if found is None else getattr(found, attribute)
        return number

    column = Column(key, title, width=width, align="right", priority=3)
    text = format.bytes_text if attribute.endswith("_s") else format.percent
    return _measured(column, value, text, low_is_bad=True)


SM_ACTIVE = _active("sm", "SM", "sm_active_percent", 5)
TENSOR_ACTIVE = _active("tensor", "TENSOR", "tensor_active_percent")
ACTIVE = {
    "sm_active_percent": SM_ACTIVE,
    "tensor_active_percent": TENSOR_ACTIVE,
    "dram_active_percent": _active("dram", "MEM BW", "dram_active_percent"),
    "nvlink_bytes_per_s": _active("nvlink", "NVLINK/S", "nvlink_bytes_per_s", 9),
    "pcie_bytes_per_s": _active("pcie", "PCIE/S", "pcie_bytes_per_s", 9),
}
"""DCGM's numbers."""
PROCESS = (
    _number("cpu", "CPU", 5, "cpu_percent", format.percent, priority=4),
    _number("memory", "MEMORY", 8, "memory_bytes", format.bytes_text, "mem", priority=4),
)
STRAGGLER = _measured(
    Column("straggler", "STRAGGLER", width=9, align="right", priority=2),
    lambda line: line.straggler,
    lambda score: format.DASH if score is None else score_text(score),
    "score",
)
CHECKPOINT = _measured(
    Column("checkpoint", "CKPT", width=5, align="right", priority=6),
    lambda line: line.checkpoint_s,
    format.age,
    "ckpt",
)
TREND = Field(
    Column("trend", "STEP TREND", width=SPARK_CELLS, priority=4),
    lambda line: _trend(line.rank),
    cell=lambda line: Cell(
        sparkline(line.rank.curves["step_time_s"].values[-SPARK_CELLS:], SPARK_CELLS)
        if line.sample
        else "",
        "muted" if line.is_stale else "curve-1",
    ),
)
WARNING = Field(
    Column("warning", "WARNING", min_width=9, priority=1),
    lambda line: warning_of(line),
    cell=lambda line: _warning_cell(line),
    names=("xid", "throttle", "ecc"),
    is_number=False,
)
COLOURS = (STEP_TIME, GPU, SM_ACTIVE, TENSOR_ACTIVE, MFU, LOSS, DATA, COMM, TEMPERATURE, STRAGGLER)
"""The columns that can colour a heat map, in this order."""


def score_text(score: float) -> str:
    """With its sign; `-0.0` is shown as 0."""
    return f"{score:+.1f}" if abs(score) >= 0.05 else "0.0"


def warning_of(line: RankLine) -> str:
    """Problems of the rank or its device, most severe first; empty without any."""
    sample = line.sample
    found = ["silent"] if line.is_stale_rank else []
    if sample is not None:
        if sample.gpu_xid is not None:
            found.append(f"Xid {sample.gpu_xid}")
        if sample.gpu_ecc_errors:
            found.append(f"ECC {sample.gpu_ecc_errors}")
        if sample.gpu_throttle:
            found.append(f"throttled: {sample.gpu_throttle}")
    return ", ".join(found)


def _warning_cell(line: RankLine) -> Cell:
    text = warning_of(line)
    sample = line.sample
    bad = line.is_stale_rank or (
        sample is not None and (sample.gpu_xid is not None or bool(sample.gpu_ecc_errors))
    )
    return Cell(text, "bad" if bad else "warning")


def _trend(rank: RankView) -> float | None:
    """The newest step time as a share of the mean of its earlier ones."""
    values = rank.curves["step_time_s"].values[-PAST_POINTS:]
    mean = sum(values) / len(values) if values else 0.0
    return values[-1] / mean if mean else None


def fields_of(run: RunView | None, *, straggler: bool = False) -> tuple[Field, ...]:
    """The columns that have a value in some row."""
    there = _known(run)
    found: list[Field] = [RANK, POD, AGE, *SPEED]
    found += [TOKENS] if "tokens_per_s" in there else []
    found += [DATA, COMM]
    found += [MFU] if "mfu_percent" in there else []
    found += [STRAGGLER] if straggler else []
    found.append(STEP)
    found += GPUS if "gpu_utilization_percent" in there else ()
    found += [active for name, active in ACTIVE.items() if run is not None and name in run.curves]
    found += PROCESS
    found += [CHECKPOINT] if run is not None and run.checkpoint_s is not None else []
    found += [WARNING] if "warning" in there else []
    return (*found, TREND, NODE)


def _known(run: RunView | None) -> set[str]:
    """The optional columns for which any rank has a value."""
    if run is None:
        return set()
    found = {
        name
        for name in ("tokens_per_s", "mfu_percent", "gpu_utilization_percent")
        if name in run.curves or name in run.spreads
    }
    samples = [rank.sample for rank in run.ranks.values() if rank.sample is not None]
    if any(s.gpu_utilization_percent is not None for s in samples):
        found.add("gpu_utilization_percent")
    if run.silent or any(
        s.gpu_throttle or s.gpu_xid is not None or s.gpu_ecc_errors for s in samples
    ):
        found.add("warning")
    return found


def reported_fields(run: RunView) -> tuple[Field, ...]:
    """The columns of ranks whose script reports nothing by step."""
    names = dict.fromkeys(name for rank in run.ranks.values() for name in rank.reported)
    return (RANK, POD, AGE, *map(_reported_field, list(names)[:MOST_REPORTED]), CHECKPOINT, NODE)


def _reported_field(name: str) -> Field:
    def value(line: RankLine) -> Value:
        return line.rank.reported.get(name)

    title = one_line(name, 16).upper()
    return _measured(
        Column(f"reported {name}", title, width=max(9, width_of(title)), align="right"),
        value,
        format.reported,
        name.replace(" ", "_").lower(),
    )
