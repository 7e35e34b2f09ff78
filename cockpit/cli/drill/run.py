"""`cockpit drill run`: inject, watch, undo, and report the result."""

from __future__ import annotations

import argparse
from pathlib import Path

from msgspec import Struct

from cockpit.actions.drills import DrillActions
from cockpit.cli.change.guard import guard_on
from cockpit.cli.drill import plan as drill_plan
from cockpit.cli.drill import result as drill_result
from cockpit.cli.drill.progress import Lines, follow, result_of, waited
from cockpit.cli.options import confirm, connect
from cockpit.cli.output.streams import log
from cockpit.drills.engine import interrupted as orphans
from cockpit.drills.engine.drill import Experiment
from cockpit.drills.engine.journal import Entry, Journal
from cockpit.drills.faults.catalog import NAMES, perhaps
from cockpit.drills.gamedays import file
from cockpit.drills.gamedays.description import commands_of, here, step_lines
from cockpit.drills.gamedays.gameday import GameDay
from cockpit.drills.plan.plan import DrillPlan
from cockpit.guard import settings
from cockpit.model.drill import Verdict
from cockpit.model.error import CockpitError, ExitCode, UnreachableError, UsageError
from cockpit.model.text import one_line
from cockpit.report import drill_junit
from cockpit.session import monitored
from cockpit.session.session import Session
from cockpit.store.store import Store

SOURCES = ("backend", "ray", "telemetry")


def run(args: argparse.Namespace) -> int:
    args.dry_run = args.dry_run or args.what == "plan"
    day, plan = _fault_or_game_day(args)
    _require_writable(args.junit)
    try:
        backend = connect.backend(args)
    except UnreachableError as error:
        if day is None or not args.dry_run or args.where.kind or args.where.cluster:
            raise
        # A game day is a file: its steps can be listed before there is a cluster.
        log(f"{error.what} Which faults are available is therefore unknown.")
        confirm.confirmed(args, step_lines(day, None))
        return int(ExitCode.DONE)
    with monitored.monitored_session_on(backend) as session:
        connect.wait_for(session, SOURCES, connect.TARGET_SETTLE_S)
        limits = drill_plan.configured_limits(args)
        actions = DrillActions(session, monitored.prober_on(session), limits)
        if plan is not None:
            return run_drill(args, session, actions, plan)
        assert day is not None
        return _run_game_day(args, session, actions, day)


class LeftEffects(Struct, frozen=True):
    """Faults that killed cockpit processes left, which would distort this drill's measurement."""

    recent: list[Entry]
    """Undone with the plan, first of all."""
    others: list[Entry]
    """Each needs a confirmation on a terminal."""
    now_s: float

    @property
    def lines(self) -> list[str]:
        """Lines about the leftovers, shown with the plan."""
        return [
            *(f"First undo: {orphans.described(entry, self.now_s)}" for entry in self.recent),
            *(
                f"Note: {orphans.described(entry, self.now_s)}: "
                f"cockpit drill undo {entry.record_id}"
                for entry in self.others
            ),
        ]


def _left_effects(session: Session, actions: DrillActions) -> LeftEffects:
    journal = Journal()
    for bad in journal.unreadable():
        log(f"Note: {bad.line}.")
    for entry in orphans.elsewhere(journal, session.backend.ref):
        log(f"Drill {entry.drill_id} has left {entry.fault} on {entry.cluster}: cockpit drill undo")
    now_s = session.clock()
    return LeftEffects(*orphans.split(actions.left(), now_s), now_s)


def _undo(
    args: argparse.Namespace, session: Session, actions: DrillActions, left: LeftEffects
) -> None:
    """After the confirmation. Raises what is still there: it would be measured with the drill."""
    agreed = [
        entry
        for entry in left.others
        if not args.yes
        and confirm.answered_yes(f"{orphans.described(entry, left.now_s)}. Undo it first?")
    ]
    for undone in session.call(actions.undo_entries([*left.recent, *agreed])):
        log(orphans.outcome(undone))
        if undone.error is not None:
            raise undone.error


def _fault_or_game_day(args: argparse.Namespace) -> tuple[GameDay | None, DrillPlan | None]:
    """A fault of the catalogue, a game day that is shipped, or a file. Raises UsageError."""
    if args.name in NAMES:
        return None, drill_plan.plan(args)
    is_file = "/" in args.name or args.name.endswith(".toml") or Path(args.name).is_file()
    if args.name not in file.shipped() and not is_file:
        near = perhaps(args.name, (*file.shipped(), *NAMES))
        raise UsageError(
            f"There is no fault and no game day {one_line(args.name, 60)!r}{near}",
            todo="cockpit drill list lists them. For your own game day, pass the path of its file.",
        )
    drill_plan.require_no_flags_of_a_fault(args)
    day = file.game_day(args.name)
    settings.parse(day.guard, args.name)
    return drill_plan.with_settings(args, day), None


def run_drill(
    args: argparse.Namespace, session: Session, actions: DrillActions, plan: DrillPlan
) -> int:
    experiment, left = actions.experiment(plan), _left_effects(session, actions)
    lines = [*_plan_lines(session, experiment), *left.lines]
    if not confirm.confirmed(args, lines, session.backend.ref, destroys=True):
        return confirm.not_confirmed(args)
    _undo(args, session, actions, left)
    record, interrupted = follow(
        session, actions.drill(experiment), experiment.abort, Lines(experiment).print_new
    )
    drill_result.show(record, args.output or "table")
    _write_junit(args.junit, record.name, record.began_s, [drill_junit.case_of(record)])
    return _code(interrupted, record.verdict is Verdict.PASSED)


def _run_game_day(
    args: argparse.Namespace, session: Session, actions: DrillActions, day: GameDay
) -> int:
    going, left = actions.game_day(day, log), _left_effects(session, actions)
    rights = session.call(session.backend.capabilities())
    there = here(session.store, session.backend.ref.backend, rights)
    ref = session.backend.ref
    policy = settings.parse(day.guard, day.name).on(ref, args.protected, read_only=args.read_only)
    guarding = ["A guard acts until the end of the day:", *policy.lines] if day.guard else []
    lines = [*step_lines(day, there), *guarding, *left.lines]
    if not confirm.confirmed(args, lines, ref, destroys=True):
        return confirm.not_confirmed(args)
    _undo(args, session, actions, left)
    guard = guard_on(session, policy, "")
    watching = session.submit(guard.watch()) if day.guard else None
    printers: dict[str, Lines] = {}

    def print_more(store: Store) -> None:
        if (experiment := going.experiment) is not None:
            printers.setdefault(experiment.id, Lines(experiment)).print_new(store)

    result, interrupted = follow(session, going.conduct(), going.abort, print_more)
    guard.end()
    drill_result.show_day(result, args.output or "table")
    cases = [
        drill_junit.case_of(step.record, step.name)
        if step.record is not None
        else drill_junit.Case(
            step.name, step.ended_s - step.began_s, step.ok, step.why, broken=True
        )
        for step in result.steps
    ]
    _write_junit(args.junit, result.name, result.began_s, cases)
    if watching is not None:
        result_of(session, watching)  # raises what has ended it during the day
    return _code(interrupted, result.passed)


def _plan_lines(session: Session, experiment: Experiment) -> list[str]:
    """Describe the effects, the targets and the warnings."""

    async def prepared() -> list[str]:
        armed = await experiment.prepare()
        lines = [line for one in armed for line in one.prepared.lines]
        for one in armed:
            lines += [f"Then it is undone: {undo.text}." for undo in one.prepared.undo]
        plan = experiment.plan
        lines += commands_of((*plan.hypothesis, *plan.abort))
        lines.append(f"Seed {experiment.seed}. The same seed selects the same targets.")
        lines += [f"Note: {line}." for line in await experiment.caution(armed)]
        # With a heading, since with --yes the result follows directly.
        return ["The plan:", *(f"  {line}" for line in lines)]

    return waited(session, prepared())


def _code(interrupted: bool, passed: bool) -> int:
    if interrupted:
        return int(ExitCode.INTERRUPTED)
    return int(ExitCode.DONE if passed else ExitCode.FAILED)


def _require_writable(junit: str) -> None:
    """Before anything is broken: the result of a night's drills is not to be lost at its end."""
    if junit and not Path(junit).expanduser().parent.is_dir():
        raise UsageError(
            f"There is no directory for --junit {junit}.", todo="Make it, or name another file."
        )


def _write_junit(path: str, suite: str, began_s: float, cases: list[drill_junit.Case]) -> None:
    if not path:
        return
    try:
        Path(path).expanduser().write_text(drill_junit.junit(suite, began_s, cases), "utf-8")
    except OSError as error:
        raise CockpitError(f"{path} cannot be written.", f"{error.strerror}.") from error
