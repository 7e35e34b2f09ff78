"""The phases of a recovery from a drill. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from cockpit import format
from cockpit.insight.recovery.text import so_far
from cockpit.model.drill import Instant, Milestone, Recovery
from cockpit.tui.terminal.cells import width_of
from cockpit.tui.terminal.symbols import Symbols
from cockpit.tui.widgets.few_lines import StyledLine

LEAST_SCALE_S = 10.0
SHORTEST_SHOWN_S = 0.05
"""A phase that took less is drawn, if it fills a cell, but not named."""


class Phase(Struct, frozen=True):
    """The state of the run from one milestone to the next; seconds since the injection."""

    name: str
    style: str
    start_s: float
    end_s: float
    done: bool
    """Whether its end was observed."""


_UNTIL = {
    # The name of the time until then, while it lasts, and its color.
    Milestone.SYMPTOM: ("symptom", "curve-2"),
    Milestone.DETECTED: ("detect", "bad"),
    Milestone.STOPPED: ("stop", "curve-6"),
    Milestone.ATTEMPT_ENDED: ("end attempt", "warning"),
    Milestone.POD_REPLACED: ("replace pod", "muted"),
    Milestone.POD_READY: ("pod ready", "curve-4"),
    Milestone.WORKERS_STARTED: ("start workers", "accent"),
    Milestone.PROCESS_GROUP: ("process group", "curve-7"),
    Milestone.RESTORED: ("restore", "curve-5"),
    Milestone.FIRST_STEP: ("first step", "curve-1"),
    Milestone.CAUGHT_UP: ("catch up", "curve-3"),
    Milestone.THROUGHPUT_BACK: ("full speed", "good"),
}
_ORDER = {milestone: number for number, milestone in enumerate(Milestone)}
_PODS = (Milestone.POD_REPLACED, Milestone.POD_READY)
_AFTER_PODS = (
    Milestone.WORKERS_STARTED,
    Milestone.PROCESS_GROUP,
    Milestone.RESTORED,
    Milestone.FIRST_STEP,
)
_WAITED_FOR = (
    Milestone.DETECTED,
    Milestone.ATTEMPT_ENDED,
    Milestone.WORKERS_STARTED,
    Milestone.FIRST_STEP,
    Milestone.CAUGHT_UP,
    Milestone.THROUGHPUT_BACK,
)
"""The phases of every restart. The others are named once observed: not every job reports its
checkpoint, and not every fault ends a pod."""
ENDS_A_POD = ("pod-kill", "pod-delete", "head-kill", "evict", "spot-preemption", "preemption")
"""Faults after which a pod is missing first, and Ray detects the death of its node; the last is the
name in old recordings."""
_OPEN = ("outcome", "bad")
"""The phase in which it is not clear whether there will be a restart."""


def instants(recovery: Recovery) -> tuple[Instant, ...]:
    """The reached milestones in order of time; those of the drill that measured fewest."""
    if recovery.instants:
        found = list(recovery.instants)
    else:
        moments = (
            (Milestone.DETECTED, recovery.detected_s),
            (Milestone.ATTEMPT_ENDED, recovery.attempt_ended_s),
            (Milestone.POD_READY, recovery.pod_ready_s),
            (Milestone.WORKERS_STARTED, recovery.restarted_s),
            (Milestone.FIRST_STEP, recovery.first_step_s),
        )
        found = [Instant(milestone, at_s, "") for milestone, at_s in moments if at_s is not None]
    return tuple(sorted(found, key=lambda i: (i.after_s, _ORDER[i.milestone])))


def on_the_way(recovery: Recovery) -> tuple[Instant, ...]:
    """The milestones that the run waited for, in sequence.

    A pod that was replaced only after the new workers had started (with a spare, or in an elastic
    run) is left out.
    """
    found = [one for one in instants(recovery) if one.milestone is not Milestone.INJECTED]
    if not recovery.drill.run_id and not any(i.milestone not in _PODS for i in found):
        return tuple(found)
    began_s = min((i.after_s for i in found if i.milestone in _AFTER_PODS), default=None)
    return tuple(
        one
        for one in found
        if one.milestone not in _PODS or began_s is None or one.after_s <= began_s
    )


def waits_for(recovery: Recovery) -> Milestone | None:
    """The next pending milestone; None without one."""
    seen = {one.milestone for one in instants(recovery)}
    if not recovery.drill.run_id and not seen - {Milestone.INJECTED, *_PODS}:
        return next((one for one in _PODS if one not in seen), None)
    if recovery.interrupted is False:
        return None if Milestone.THROUGHPUT_BACK in seen else Milestone.THROUGHPUT_BACK
    last = max((_ORDER[one] for one in seen if one in _WAITED_FOR), default=-1)
    return next((one for one in _WAITED_FOR if _ORDER[one] > last), None)


def is_open(recovery: Recovery) -> bool:
    """Whether the run may still continue in its attempt: then there may be no restart."""
    seen = {one.milestone for one in instants(recovery)}
    return (
        bool(recovery.drill.run_id)
        and recovery.interrupted is None
        and recovery.drill.fault not in ENDS_A_POD
        and not seen.intersection(_WAITED_FOR)
    )


def phases(recovery: Recovery, now_s: float, *, going: bool | None = None) -> tuple[Phase, ...]:
    """The phases up to the last reached milestone; with `going`, the last one is in progress.

    None: in progress until the first new step. A milestone that was not observed, though a later
    one was, has no phase. `now_s` is in Unix seconds.
    """
    found: list[Phase] = []
    start_s = 0.0
    for one in on_the_way(recovery):
        name, style = _UNTIL[one.milestone]
        end_s = max(start_s, one.after_s)
        found.append(Phase(name, style, start_s, end_s, True))
        start_s = end_s
    waited = waits_for(recovery)
    going = not recovery.recovered if going is None else going
    if going and waited is not None:
        name, style = _OPEN if is_open(recovery) else _UNTIL[waited]
        since_s = max(start_s, now_s - recovery.drill.injected_s)
        found.append(Phase(name, style, start_s, since_s, False))
    return tuple(found)


def bar(
    found: tuple[Phase, ...], width: int, symbols: Symbols, scale_s: float | None = None
) -> StyledLine:
    """The phases side by side as (text, style), `width` cells for `scale_s` seconds.

    Each contains its seconds if there is room. Without a scale the bar has the full width; during a
    recovery its scale increases in steps, so that its growth is visible.
    """
    parts: StyledLine = []
    drawn = 0
    for phase, cells in _shares(found, width, scale_s):
        # Without colours, the boundaries would not be visible.
        edge = "|" if symbols is Symbols.ASCII and drawn else ""
        parts.append((edge + _inside(phase, cells - len(edge)), f"reverse {phase.style}"))
        drawn += cells
    if drawn < width:
        rest = "." if symbols is Symbols.ASCII else "·"
        parts.append((rest * (width - drawn), "muted"))
    return parts


def _shares(
    found: tuple[Phase, ...], width: int, scale_s: float | None
) -> Iterator[tuple[Phase, int]]:
    """The phases that fill a cell at least of a bar that is so wide, each with its cells."""
    total_s = found[-1].end_s if found else 0.0
    if scale_s is None:
        scale_s = total_s if found and found[-1].done else LEAST_SCALE_S
        while scale_s < total_s:
            scale_s *= 2
    scale_s = max(scale_s, total_s, 1e-9)
    drawn = 0
    for phase in found:
        end = round(phase.end_s / scale_s * width)
        if end > drawn:
            yield phase, end - drawn
            drawn = end


def named(
    found: tuple[Phase, ...], width: int, symbols: Symbols, scale_s: float | None = None
) -> frozenset[Phase]:
    """Those whose name and seconds are in the bar itself."""
    edge = symbols is Symbols.ASCII
    return frozenset(
        phase
        for phase, cells in _shares(found, width, scale_s)
        if phase.name in _inside(phase, cells - edge)
    )


def legend(
    found: tuple[Phase, ...],
    width: int,
    symbols: Symbols,
    most: int = 1,
    named_elsewhere: Collection[Phase] = (),
) -> list[StyledLine]:
    """The name and the seconds of each phase in its colour, on up to `most` lines.

    Without room for all, those that are `named_elsewhere` are left out first, then the shortest.
    """
    parts = [one for one in found if not one.done or one.end_s - one.start_s >= SHORTEST_SHOWN_S]
    while parts:
        lines = _wrapped(parts, width, symbols)
        if len(lines) <= most and all(_cells(line) <= width for line in lines):
            return lines
        parts.remove(
            min(
                parts,
                key=lambda one: (not one.done, one not in named_elsewhere, one.end_s - one.start_s),
            )
        )
    return [[]]


def _wrapped(parts: Sequence[Phase], width: int, symbols: Symbols) -> list[StyledLine]:
    dot = "*" if symbols is Symbols.ASCII else "■"
    lines: list[StyledLine] = [[]]
    for phase in parts:
        took = format.duration(phase.end_s - phase.start_s)
        text = f" {phase.name} {took}" + ("" if phase.done else " …") + "  "
        entry: StyledLine = [(dot, phase.style), (text, "" if phase.done else "bold")]
        if lines[-1] and _cells([*lines[-1], *entry]) > width:
            lines.append([])
        lines[-1] += entry
    return lines


def _cells(line: StyledLine) -> int:
    """Without the gap that follows."""
    return width_of("".join(text for text, _ in line).rstrip())


def summary(recovery: Recovery, now_s: float) -> str:
    """One line: what was done to what, and when which phase was reached."""
    return so_far(recovery, now_s)


def _inside(phase: Phase, cells: int) -> str:
    took = format.duration(phase.end_s - phase.start_s)
    for text in (f" {phase.name} {took} ", f" {took} ", took):
        if width_of(text) <= cells:
            return text.ljust(cells)
    return " " * cells
