"""From the flags of `cockpit drill run` to a drill's plan."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from cockpit.config import file
from cockpit.drills.faults.catalog import fault as fault_named
from cockpit.drills.gamedays.gameday import GameDay, Inject, Launch, Step
from cockpit.drills.plan.plan import (
    BlastRadius,
    DrillPlan,
    FaultSpec,
    TargetSpec,
    Timeouts,
    checked_blast_radius,
    parse_blast_radius,
)
from cockpit.drills.probes import hypothesis
from cockpit.format import verb
from cockpit.launch.submission import bundled_spec
from cockpit.model.error import UsageError


def plan(args: argparse.Namespace) -> DrillPlan:
    """Raises UsageError for a fault, parameter or probe that there is not."""
    kind = fault_named(args.name)
    given = dict(_pair(text) for text in args.set)
    if args.for_s is not None:
        if not any(one.name == "for_s" for one in kind.parameters):
            raise UsageError(f"Fault {kind.name} has no duration: it has no parameter for_s.")
        given["for_s"] = f"{args.for_s:g}"
    target = TargetSpec(args.target, args.count, tuple(args.group), args.allow_head)
    timeouts = Timeouts()
    if args.timeout is not None:
        timeouts = replace(timeouts, recover_s=args.timeout)
    return DrillPlan(
        name=kind.name,
        faults=(FaultSpec(kind.name, given, target),),
        hypothesis=(
            *(hypothesis.probe(text) for text in args.probe),
            *(hypothesis.probe(text, ("during",)) for text in args.probe_during),
        ),
        abort=tuple(hypothesis.probe(text) for text in args.abort_unless),
        recover_within_s=args.recover_within,
        max_steps_lost=args.max_steps_lost,
        max_time_lost_s=args.max_time_lost,
        seed=args.seed,
        timeouts=timeouts,
        blast_radius=limits(args),
    )


def limits(args: argparse.Namespace) -> BlastRadius:
    """Those of --max-pods and --max-share. Raises UsageError."""
    return checked_blast_radius(args.max_pods, args.max_share)


def configured_limits(args: argparse.Namespace) -> BlastRadius:
    """Those of the configuration, where no flag sets another. Raises UsageError."""
    found = parse_blast_radius(file.read().tables.get("drills", {}))
    return BlastRadius(
        found.max_pods if args.max_pods is None else None,
        found.max_share if args.max_share is None else None,
    )


FLAGS = {
    "--for": "for_s", "--count": "count", "--group": "group",
    "--target": "target", "--allow-head": "allow_head", "--seed": "seed",
    "--recover-within": "recover_within", "--max-steps-lost": "max_steps_lost",
    "--max-time-lost": "max_time_lost",
    "--probe": "probe", "--probe-during": "probe_during", "--abort-unless": "abort_unless",
    "--timeout": "timeout",
}  # fmt: skip
"""Arguments of a single fault, and their argparse destinations."""
DEFAULTS = {"count": 1, "target": "random"}


def require_no_flags_of_a_fault(args: argparse.Namespace) -> None:
    """A game day's file sets all of that itself. Raises UsageError."""
    given = [
        flag
        for flag, name in FLAGS.items()
        if getattr(args, name) and getattr(args, name) != DEFAULTS.get(name)
    ]
    if given:
        raise UsageError(
            f"{', '.join(given)} {verb(len(given), 'are')} for a fault by itself.",
            "The file of a game day has the targets of its drills and what has to hold.",
            "Copy the file, change it, and run: cockpit drill run FILE",
        )


def with_settings(args: argparse.Namespace, day: GameDay) -> GameDay:
    """Return the game day with the limits of the flags and the `--set` settings of its jobs.

    Raises UsageError.
    """
    day = _limited(day, limits(args))
    given = dict(_pair(text) for text in args.set)
    if not given:
        return day
    launched = [step.doing.job for step in day.steps if isinstance(step.doing, Launch)]
    if not launched:
        raise UsageError(f"Game day {day.name} launches no job that --set could be for.")
    for name in launched:
        bundled_spec(name, given)  # complains of what the job has not
    return replace(
        day,
        steps=tuple(
            replace(step, doing=replace(step.doing, settings={**step.doing.settings, **given}))
            if isinstance(step.doing, Launch)
            else step
            for step in day.steps
        ),
    )


def _limited(day: GameDay, flags: BlastRadius) -> GameDay:
    """Apply the limits of the flags to each drill of the day."""

    def limited(step: Step) -> Step:
        if not isinstance(step.doing, Inject):
            return step
        plan = step.doing.plan
        plan = replace(plan, blast_radius=flags.over(plan.blast_radius))
        return replace(step, doing=replace(step.doing, plan=plan))

    return replace(day, steps=tuple(map(limited, day.steps)))


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UsageError(f"--set {text!r} is not KEY=VALUE.", todo="For example: --set grace_s=10")
    return key, value
