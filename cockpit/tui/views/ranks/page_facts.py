"""All facts about one rank, in groups, and the parts of its step. Pure."""

from __future__ import annotations

from msgspec import Struct

from cockpit import format
from cockpit.model.run import RankSample
from cockpit.model.text import one_line
from cockpit.model.tracking import GpuActivity
from cockpit.store.run import RankView
from cockpit.tui.terminal.cells import width_of
from cockpit.tui.terminal.symbols import Symbols, symbols
from cockpit.tui.views.ranks.columns import RankLine, warning_of

REPORTED_SHOWN = 24
"""Metrics of a report; a job may report hundreds."""
_MARKED = {"NaN", "∞", "-∞"}
Part = tuple[str, str]
"""Text, and its style."""


class Fact(Struct, frozen=True):
    name: str
    text: str
    is_bad: bool = False


class Section(Struct, frozen=True):
    """A part of a step."""

    name: str
    seconds: float
    share: float
    """Of the step; of the sum of the sections where they lie over one another."""
    style: str


_SECTIONS = (
    ("data", "data_wait_s", "curve-1"),
    ("forward", "forward_s", "curve-2"),
    ("backward", "backward_s", "curve-3"),
    ("comm", "comm_s", "curve-4"),
    ("optimizer", "optimizer_s", "curve-5"),
    ("checkpoint", "checkpoint_s", "curve-6"),
)
_LETTERS = {
    "data": "d",
    "forward": "f",
    "backward": "b",
    "comm": "c",
    "optimizer": "o",
    "checkpoint": "k",
    "other": ".",
}


def sections(sample: RankSample) -> tuple[Section, ...]:
    """The parts of the mean step; `other` is the time without a section.

    A checkpoint is reported in total and divided by the number of steps in the record.
    Communication may overlap with the backward pass: if the sections add up to more than the step,
    they are shares of their sum. Empty without sections.
    """
    steps = max(1, sample.step - sample.first_step + 1)
    found: list[tuple[str, float, str]] = []
    for name, attribute, style in _SECTIONS:
        seconds: float | None = getattr(sample, attribute)
        if seconds is None or not seconds > 0:
            continue
        found.append((name, seconds / steps if attribute == "checkpoint_s" else seconds, style))
    if not found or not sample.step_time_s:
        return ()
    measured_s = sum(seconds for _, seconds, _ in found)
    whole = max(measured_s, sample.step_time_s)
    if whole - measured_s > 0.005 * whole:
        found.append(("other", whole - measured_s, "muted"))
    return tuple(Section(name, seconds, seconds / whole, style) for name, seconds, style in found)


def section_bar(found: tuple[Section, ...], width: int) -> list[Part]:
    """The sections side by side in `width` cells, each by its letter in ASCII."""
    parts: list[Part] = []
    drawn, upto = 0, 0.0
    for section in found:
        upto += section.share
        end = round(upto * width)
        if end > drawn:
            letter = _LETTERS[section.name] if symbols() is Symbols.ASCII else "█"
            parts.append((letter * (end - drawn), section.style))
            drawn = end
    return parts


def section_legend(found: tuple[Section, ...], width: int) -> list[list[Part]]:
    """Name, share and time of each, on as many lines of `width` cells as it takes."""
    lines: list[list[Part]] = [[]]
    used = 0
    for section in found:
        took = format.duration(section.seconds)
        text = f" {section.name} {100 * section.share:.0f} % {took}  "
        if lines[-1] and used + 1 + width_of(text.rstrip()) > width:
            lines.append([])
            used = 0
        mark = _LETTERS[section.name] if symbols() is Symbols.ASCII else "■"
        lines[-1] += [(mark, section.style), (text, "")]
        used += 1 + width_of(text)
    return lines


def groups(line: RankLine, rank: RankView) -> list[tuple[str, list[Fact]]]:
    """Groups of facts, those without any left out."""
    sample = rank.sample
    found = []
    if sample is not None:
        found += [
            ("Step", _step(sample, rank)),
            ("GPU", _gpu(sample, line)),
            ("Process", _process(sample, rank)),
        ]
    elif rank.placement is not None:
        found.append(("Process", [Fact("pid", str(rank.placement.pid))]))
    reported = sorted(rank.reported.items())
    facts = [_fact(one_line(name, 40), format.reported(value)) for name, value in reported]
    if (more := len(facts) - REPORTED_SHOWN) > 0:
        facts = [*facts[:REPORTED_SHOWN], Fact("and", f"{more:,} more")]
    found.append(("Reported", facts))
    return [(name, facts) for name, facts in found if facts]


def _step(sample: RankSample, rank: RankView) -> list[Fact]:
    facts = [
        _fact("step", format.count(sample.step)),
        _fact("loss", format.number(sample.loss)),
        _fact("step time", format.duration(sample.step_time_s)),
        _fact("samples/s", format.si(sample.samples_per_s)),
        _fact("tokens/s", format.si(sample.tokens_per_s)),
        _fact("MFU", format.percent(sample.mfu_percent)),
        _fact("grad norm", format.number(sample.grad_norm, 3)),
        _fact("learning rate", format.number(sample.learning_rate, 3)),
        _fact("epoch", format.number(sample.epoch, 3)),
        _fact("steps done", format.count(rank.steps)),
    ]
    return [fact for fact in facts if fact.text != format.DASH]


def _gpu(sample: RankSample, line: RankLine) -> list[Fact]:
    memory = format.bytes_text(sample.gpu_memory_bytes)
    if sample.gpu_memory_total_bytes and sample.gpu_memory_bytes is not None:
        share = 100 * sample.gpu_memory_bytes / sample.gpu_memory_total_bytes
        memory += f" of {format.bytes_text(sample.gpu_memory_total_bytes)} ({share:.0f} %)"
    facts = [
        _fact("busy", format.percent(sample.gpu_utilization_percent)),
        _fact("memory", memory),
        _fact("power", _unit(sample.gpu_power_w, "W")),
        _fact("temperature", _unit(sample.gpu_temperature_c, "°C")),
        _fact("clock", _unit(sample.gpu_clock_mhz, "MHz")),
        *_active(line.rank.activity),
        _fact("NVLink in", _rate(sample.gpu_nvlink_rx_bytes_per_s)),
        _fact("out", _rate(sample.gpu_nvlink_tx_bytes_per_s)),
        _fact("PCIe in", _rate(sample.gpu_pcie_rx_bytes_per_s)),
        _fact("out", _rate(sample.gpu_pcie_tx_bytes_per_s)),
    ]
    facts = [fact for fact in facts if fact.text != format.DASH]
    if warning := warning_of(line):
        facts.append(Fact("warning", one_line(warning), True))
    return facts


def _active(found: GpuActivity | None) -> list[Fact]:
    """DCGM's numbers."""
    if found is None:
        return []
    return [
        _fact("SM active", format.percent(found.sm_active_percent)),
        _fact("tensor active", format.percent(found.tensor_active_percent)),
        _fact("memory bandwidth", format.percent(found.dram_active_percent)),
        _fact("NVLink", _rate(found.nvlink_bytes_per_s)),
        _fact("PCIe", _rate(found.pcie_bytes_per_s)),
    ]


def _process(sample: RankSample, rank: RankView) -> list[Fact]:
    facts = [
        _fact("CPU", format.percent(sample.cpu_percent)),
        _fact("memory", format.bytes_text(sample.memory_bytes)),
    ]
    facts = [fact for fact in facts if fact.text != format.DASH]
    if rank.placement is not None:
        facts.append(Fact("pid", str(rank.placement.pid)))
        if rank.placement.gpus:
            facts.append(Fact("device", ", ".join(rank.placement.gpus)))
    return facts


def _fact(name: str, text: str) -> Fact:
    return Fact(name, text, text in _MARKED)


def _unit(value: float | None, unit: str) -> str:
    return format.DASH if value is None else f"{value:.0f} {unit}"


def _rate(value: float | None) -> str:
    return format.DASH if value is None else f"{format.bytes_text(value)}/s"
