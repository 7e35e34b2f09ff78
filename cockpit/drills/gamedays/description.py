"""The steps of a game day, described before it begins: what it does here, and what not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from cockpit.drills.faults import catalog
from cockpit.drills.faults.catalog import why_not
from cockpit.drills.gamedays.gameday import Expect, GameDay, Inject, Launch, Step
from cockpit.drills.gamedays.runner import missing
from cockpit.drills.plan.plan import ProbeSpec
from cockpit.format import in_seconds
from cockpit.launch.capacity import beside
from cockpit.model.cluster import Capability
from cockpit.model.run import Job
from cockpit.model.text import one_line
from cockpit.store.selectors import going_run
from cockpit.store.store import Store

MOST = 10_000
"""Characters of a command: its end is never hidden from the plan."""


class Here(Struct, frozen=True):
    """The properties of a cluster that decide how a game day proceeds."""

    backend: str
    rights: Mapping[str, Capability]
    run: str = ""
    """The active recovery profile, which is the default of a game day; empty: none."""
    jobs: Sequence[Job] = ()


def here(store: Store, backend: str, rights: Mapping[str, Capability]) -> Here:
    """The cluster at present."""
    run = going_run(store)
    return Here(backend, rights, run.name if run else "", tuple(store.jobs.values()))


def step_lines(day: GameDay, at: Here | None) -> list[str]:
    """Describe each step in a line, and add a line if this cluster differs. None: no cluster."""
    lines = [f"Game day {day.name}: {day.about}" if day.about else f"Game day {day.name}."]
    for number, step in enumerate(day.steps, start=1):
        faults = ""
        if isinstance(step.doing, Inject):
            faults = ", ".join(spec.fault for spec in step.doing.plan.faults)
            faults = f" ({faults})" if faults != step.name else ""
        lines.append(f"{number:3}. {step.name}{faults}")
        lines += [f"     {line}" for line in commands_of(_probes(step))]
        lines += [f"     {one_line(mark, 300)}" for mark in (_marks(step, at) if at else ())]
    return lines


def commands_of(probes: Iterable[ProbeSpec]) -> list[str]:
    """A line with each command that these probes run on this host, unabbreviated."""
    commands = dict.fromkeys(probe.query for probe in probes if probe.kind == "command")
    return [f"Runs on this machine: {one_line(command, MOST)}" for command in commands]


def _probes(step: Step) -> tuple[ProbeSpec, ...]:
    """All probes of the step: before, during and after its fault."""
    match step.doing:
        case Expect():
            return step.doing.probes
        case Inject():
            return (*step.doing.plan.hypothesis, *step.doing.plan.abort)
    return ()


def _marks(step: Step, at: Here) -> Iterator[str]:
    if isinstance(step.doing, Launch):
        yield from _of_launch(step.doing, at)
    elif isinstance(step.doing, Inject):
        why = missing(step.doing, at.backend)
        if why and step.doing.optional:
            yield f"Left out: {why}."
        elif why := why or _forbidden(step.doing, at):
            yield f"This step cannot run, so the game day will fail: {why}."


def _of_launch(launch: Launch, at: Here) -> Iterator[str]:
    if at.run and not launch.always:
        yield f"Nothing is launched: run {at.run} continues, and the drills hit that one."
    elif text := beside(at.jobs):
        yield f"Note: {text}"
        yield f"The day ends if it has no checkpoint within {in_seconds(launch.within_s)}."


def _forbidden(inject: Inject, at: Here) -> str:
    """A capability that one of the faults requires and that this user lacks."""
    for spec in inject.plan.faults:
        if why := why_not(catalog.fault(spec.fault), at.backend, at.rights):
            return f"{spec.fault} needs the permission to {why}"
    return ""
