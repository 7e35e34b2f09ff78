"""Drills from the UI: choose, preview, confirm, conduct, abort.

Coroutines for `AppBase.attempt`, as those of `cockpit.tui.changes.changes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cockpit.drills.faults.catalog import NAMES, perhaps
from cockpit.drills.faults.catalog import fault as fault_named
from cockpit.drills.gamedays.description import here
from cockpit.drills.gamedays.file import game_day, shipped
from cockpit.drills.gamedays.gameday import GameDay
from cockpit.drills.plan.kill import plan_kill
from cockpit.model.cluster import NodeType
from cockpit.model.drill import DrillRecord, Verdict
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.text import as_sentence, one_line
from cockpit.tui.app_base import AppBase, Conducting
from cockpit.tui.changes.changes import allowed, confirmation
from cockpit.tui.commands import drill_form
from cockpit.tui.commands.drill_form import DrillForm
from cockpit.tui.dialogs.confirm import Confirm
from cockpit.tui.dialogs.drill import DrillDialog
from cockpit.tui.keys import NUMBERS, shown_key
from cockpit.tui.main.current_view import Viewing
from cockpit.tui.views.drills.catalog_rows import fault_rows
from cockpit.tui.views.drills.dry_run import game_day_lines, preview_lines

if TYPE_CHECKING:
    from cockpit.actions.drills import DrillActions

T = TypeVar("T")


async def choose(app: AppBase, fault: str = "", target: str = "random") -> None:
    """Ask for a fault (unless it is given) and its fields, then continue with `inject`."""
    actions = ready(app)
    backend = app.session.backend.ref.backend if app.session is not None else ""
    found = [(one, why) for one, why, _ in fault_rows(backend, app.capabilities)]
    if fault:
        fault_named(fault)
        found = [one for one in found if one[0].name == fault]
        if found[0][1]:
            why = found[0][1]
            raise CockpitError(f"Fault {fault} is not available on this cluster.", as_sentence(why))
    found.sort(key=lambda one: bool(one[1]))
    form = DrillForm(found[0][0].name, target=target)
    trouble: CockpitError | None = None
    while True:
        answer = await app.push_screen_wait(DrillDialog(found, form, trouble))
        if answer is None:
            return
        form = answer
        try:
            if await inject(app, actions, form):
                return
            trouble = None
        except CockpitError as error:
            trouble = error


async def typed(app: AppBase, terms: Sequence[str]) -> None:
    """As typed after `:drill`; a named fault needs only the confirmation."""
    actions = ready(app)
    name = terms[0]
    if name in shipped() or name.endswith(".toml"):
        await hold_day(app, game_day(name))
    elif name in NAMES:
        await inject(app, actions, drill_form.typed(terms))
    else:
        raise UsageError(
            f"There is no fault and no game day {one_line(name, 60)!r}"
            f"{perhaps(name, (*shipped(), *NAMES))}",
            todo=f"The view of drills lists them all: {NUMBERS['drills']}",
        )


async def inject(app: AppBase, actions: DrillActions, form: DrillForm) -> bool:
    """Preview it, confirm, and conduct it; returns whether it was confirmed."""
    experiment = actions.experiment(drill_form.plan(form))
    armed = await app.submit(experiment.prepare())
    notes = await app.submit(experiment.caution(armed))
    heads = [p.name for one in armed for p in one.victims.pods if p.node_type is NodeType.HEAD]
    plan = experiment.plan
    question = confirmation(
        app,
        f"Inject {plan.name}?",
        preview_lines(app.store, plan, experiment.seed, armed, notes),
        "Inject",
        typed=heads[0] if heads else "",
    )
    if not await app.push_screen_wait(question):
        return False
    ready(app)  # another may have begun during the confirmation
    going = Conducting(plan.name, experiment.abort, lambda: experiment)
    notify_verdict(app, await _conducted(app, going, actions.drill(experiment)))
    return True


async def kill(app: AppBase, target: str, grace_s: float = 0.0) -> None:
    """Kill the pod, or the pod of the rank, as a drill without a hypothesis."""
    actions = ready(app, "delete_pod", "Nothing was killed.")
    plan = plan_kill(app.store, target, grace_s)
    typed = plan.pod.name if plan.pod.node_type is NodeType.HEAD else ""
    question = "Kill the head?" if typed else "Kill this pod?"
    if not await app.push_screen_wait(confirmation(app, question, plan.lines, "Kill", typed=typed)):
        return
    ready(app, "delete_pod", "Nothing was killed.")
    experiment = actions.experiment(plan.drill)
    app.notify(f"{plan.pod.name} is being deleted.", title="Killing", markup=False)
    going = Conducting(
        f"{plan.drill.name} of {plan.pod.name}", experiment.abort, lambda: experiment
    )
    record = await _conducted(app, going, actions.drill(experiment), show=False)
    if experiment.error is not None:
        raise experiment.error
    if record.verdict is Verdict.ABORTED:
        notify_verdict(app, record)
        return
    for measured in record.recoveries:
        app.notify_recovery(measured)


async def hold_day(app: AppBase, day: GameDay) -> None:
    """Confirm a complete game day, and run its steps."""
    actions = ready(app)
    backend = app.session.backend.ref.backend if app.session is not None else ""
    there = here(app.store, backend, app.capabilities)
    question = confirmation(app, f"Run game day {day.name}?", game_day_lines(day, there), "Run")
    if not await app.push_screen_wait(question):
        return
    ready(app)

    def log(line: str) -> None:
        going.message = one_line(line, 200)

    run = actions.game_day(day, log)
    going = Conducting(f"game day {day.name}", run.abort, lambda: run.experiment)
    result = await _conducted(app, going, run.conduct())
    app.notify(
        one_line(result.why, 300),
        title=f"Game day {day.name} {'passed' if result.passed else 'failed'}",
        severity="information" if result.passed else "error",
        timeout=20,
        markup=False,
    )


async def _conducted(
    app: AppBase, going: Conducting, work: Coroutine[Any, Any, T], *, show: bool = True
) -> T:
    """Run a drill to its end. With `show`, the screen switches to the view of drills."""
    app.conducting = going
    try:
        for screen in app.screen_stack:
            if show and isinstance(screen, Viewing):
                await screen.action_view("drills")
        # Who leaves the screen leaves by `changes.leave`, which aborts it and waits.
        return await asyncio.shield(app.submit(work))
    finally:
        app.conducting = None
        going.over.set()


def notify_verdict(app: AppBase, record: DrillRecord) -> None:
    """Report its end: a bell, and a message where the view of drills does not show it."""
    app.ring(f"{record.name} {record.verdict.value}")
    if isinstance(app.screen, Viewing) and app.screen.shown == "drills":
        return
    good = record.verdict is Verdict.PASSED
    app.notify(
        one_line(record.why, 300),
        title=f"{record.name} {record.verdict.value}",
        severity="information" if good else "warning" if record.verdict in _ENDED else "error",
        timeout=12,
        markup=False,
    )


_ENDED = (Verdict.ABORTED, Verdict.REFUSED)


async def abort(app: AppBase) -> None:
    """End what this screen conducts; what it did is undone."""
    going = app.conducting
    if going is None:
        raise CockpitError("No drill is running here.", "There is nothing to abort.")
    lines = [f"Abort {going.name}.", "Its fault is undone; its measurements are kept."]
    again = shown_key("abort")
    if await app.push_screen_wait(Confirm("Abort the drill?", lines, "Abort", again=again)):
        going.abort()
        app.notify("Undoing the fault.", title="Aborting", timeout=4, markup=False)


def ready(app: AppBase, verb: str = "drill", what: str = "Nothing was injected.") -> DrillActions:
    """The actions; refused where nothing may be changed, or while another drill runs."""
    actions = allowed(app, verb, what)
    if app.conducting is not None:
        raise UsageError(
            f"A drill is running: {app.conducting.name}.",
            "Only one drill runs at a time, so that no other fault affects its measurement.",
            f"Wait for it, or abort it with {shown_key('abort')}.",
        )
    return actions
