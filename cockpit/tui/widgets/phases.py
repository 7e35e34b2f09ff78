"""How a run comes back from a drill, phase by phase. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.model.drill import Recovery
from cockpit.tui import format
from cockpit.tui.cells import width_of
from cockpit.tui.symbols import Symbols

LEAST_SCALE_S = 10.0
LEAST_SAID_S = 0.05
"""A phase that took less is drawn, if it fills a cell, but not named."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What the run does from one instant to the next; seconds since the injection."""

    name: str
    style: str
    start_s: float
    end_s: float
    done: bool
    """Whether its end has been seen."""


_ENDS = (
    # What the time until then is called, while it goes on, its colour.
    ("detect", "bad"),
    ("end attempt", "warning"),
    ("restart", "accent"),
    ("first step", "curve-1"),
)


def phases(recovery: Recovery, now_s: float) -> tuple[Phase, ...]:
    """From the fault to the first new step; the last one is unfinished until that is made.

    An instant that was never seen though a later one was takes no time of its own. `now_s` is in
    Unix seconds.
    """
    seen = (
        recovery.detected_s,
        recovery.attempt_ended_s,
        recovery.restarted_s,
        recovery.first_step_s,
    )
    found: list[Phase] = []
    start_s = 0.0
    for number, ((name, style), at_s) in enumerate(zip(_ENDS, seen, strict=True)):
        if at_s is None:
            if any(later is not None for later in seen[number:]):
                continue
            since_s = max(start_s, now_s - recovery.drill.injected_s)
            found.append(Phase(name, style, start_s, since_s, False))
            break
        end_s = max(start_s, at_s)
        found.append(Phase(name, style, start_s, end_s, True))
        start_s = end_s
    return tuple(found)


def bar(
    found: tuple[Phase, ...], width: int, symbols: Symbols, scale_s: float | None = None
) -> list[tuple[str, str]]:
    """The phases side by side as (text, style), `width` cells for `scale_s` seconds.

    Each has its seconds in it where there is room. Without a scale the bar is as wide as it can
    be; while it grows, its scale grows in steps, so that it is seen to grow.
    """
    total_s = found[-1].end_s if found else 0.0
    if scale_s is None:
        scale_s = total_s if found and found[-1].done else LEAST_SCALE_S
        while scale_s < total_s:
            scale_s *= 2
    scale_s = max(scale_s, total_s, 1e-9)
    parts: list[tuple[str, str]] = []
    drawn = 0
    for phase in found:
        end = round(phase.end_s / scale_s * width)
        cells = max(0, end - drawn)
        if cells:
            parts.append((_inside(phase, cells, symbols), f"reverse {phase.style}"))
        drawn = max(drawn, end)
    if drawn < width:
        rest = "." if symbols is Symbols.ASCII else "·"
        parts.append((rest * (width - drawn), "muted"))
    return parts


def legend(found: tuple[Phase, ...], width: int, symbols: Symbols) -> list[tuple[str, str]]:
    """The name and the seconds of each phase in its colour, as many as there is room for."""
    dot = "*" if symbols is Symbols.ASCII else "■"
    parts: list[tuple[str, str]] = []
    x = 0
    for phase in found:
        if phase.done and phase.end_s - phase.start_s < LEAST_SAID_S:
            continue
        took = format.duration(phase.end_s - phase.start_s)
        text = f" {phase.name} {took}" + ("" if phase.done else " …") + "  "
        if x + 1 + width_of(text.rstrip()) > width:
            break
        parts += [(dot, phase.style), (text, "" if phase.done else "bold")]
        x += 1 + width_of(text)
    return parts


def summary(recovery: Recovery, now_s: float) -> str:
    """One line: what was done to what, and when which phase was reached."""
    drill = recovery.drill
    reached = [
        f"{name} {format.duration(at_s)}"
        for name, at_s in (
            ("detected", recovery.detected_s),
            ("restarted", recovery.restarted_s),
            ("first step", recovery.first_step_s),
        )
        if at_s is not None
    ]
    if recovery.steps_lost is not None:
        lost = recovery.steps_lost
        reached.append(f"{lost:,} step{'' if lost == 1 else 's'} lost")
    if not recovery.recovered:
        waited = format.duration(max(0.0, now_s - drill.injected_s))
        reached.append(f"not recovered after {waited}")
    return f"{drill.fault} {drill.target}: {', '.join(reached)}"


def _inside(phase: Phase, cells: int, symbols: Symbols) -> str:
    for text in (
        f" {phase.name} {format.duration(phase.end_s - phase.start_s)} ",
        f" {format.duration(phase.end_s - phase.start_s)} ",
    ):
        if width_of(text) <= cells:
            return text.ljust(cells)
    return " " * cells
