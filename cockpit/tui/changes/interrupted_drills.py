"""Faults that a killed cockpit process left: shown once connected, and undone on confirmation."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.drills.engine.interrupted import Undone, described, outcome
from cockpit.format import plural
from cockpit.model.error import CockpitError
from cockpit.tui.app_base import AppBase
from cockpit.tui.changes.changes import confirmation

QUESTION = "Undo the faults of earlier drills?"


async def offer(app: AppBase) -> None:
    """Offer to undo what is too old, or from another host, to be undone without confirmation."""
    actions = app.connection.actions if app.connection is not None else None
    if app.read_only or actions is None or app.session is None:
        return
    try:
        left = await app.submit(actions.entries_to_confirm())
        if not left:
            return
        lines = [described(entry, app.now_s) for entry in left]
        lines.append("A fault is undone only if its target has not changed since.")
        if not await app.push_screen_wait(confirmation(app, QUESTION, lines, "Undo")):
            return
        results = await app.submit(actions.undo_entries(left))
        failed = [undone for undone in results if undone.error is not None]
        if failed:  # first: it removes the messages before it
            app.trouble(_not_undone(failed))
        for undone in results:
            if undone.error is None:
                app.notify(outcome(undone), title="Undone", markup=False)
    except CockpitError as error:
        app.trouble(error)


def _not_undone(failed: Sequence[Undone]) -> CockpitError:
    """The error of the only one that failed, or one error for all of them."""
    errors = [undone.error for undone in failed if undone.error is not None]
    if len(errors) == 1:
        return errors[0]
    return CockpitError(
        f"{plural(len(errors), 'fault')} could not be undone.",
        "\n".join(outcome(undone) for undone in failed),
        "To undo them, run: cockpit drill undo",
    )
