"""Does what was typed after `:`. Coroutines for `AppBase.attempt`."""

from __future__ import annotations

from cockpit.model.error import UsageError
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run, pod_of_rank
from cockpit.tui import keys
from cockpit.tui.app_base import AppBase
from cockpit.tui.changes import changes, cluster, inspection, shell
from cockpit.tui.commands import cluster_name, commands
from cockpit.tui.main.current_view import Viewing
from cockpit.tui.view_state import Target
from cockpit.tui.views.fleet.rows import clusters, contexts
from cockpit.tui.views.fleet.view import FleetView
from cockpit.tui.views.hang.page import HangPage
from cockpit.tui.views.ranks.page import RankScreen

_MAY_BE_ALONE = ("theme", "describe", "drill", "logs")


async def run(screen: Viewing, line: str) -> None:
    app = screen.cockpit
    command, text = commands.parse(line)
    first = text[0] if text else ""
    if command.takes and not first and command.name not in _MAY_BE_ALONE:
        raise UsageError(f"{command.name} needs more.", f"Usage: {command.usage}")
    match command.name:
        case "kill":
            from cockpit.tui.changes import drills

            await drills.kill(app, first, commands.seconds(text[1:]))
        case "scale":
            if len(text) != 2:
                raise UsageError("scale needs more.", f"Usage: {command.usage}")
            await changes.scale(app, first, text[1])
        case "drill" if first:
            from cockpit.tui.changes import drills

            await drills.typed(app, text)
        case "launch":
            await changes.launch(app, first)
        case "stop":
            await changes.stop(app, first)
        case "resume":
            await changes.resume(app, first)
        case "delete":
            await changes.delete(app, first)
        case "logs" if first:
            await show_log_of(screen, first)
        case "logs":
            await screen.action_all_logs()
        case "hang":
            app.push_screen(HangPage())
        case "experiments":
            from cockpit.tui.views.experiments.page import ExperimentsPage

            app.push_screen(ExperimentsPage())
        case "rank":
            _pod_under(app, current_run(app.store), first)
            app.push_screen(RankScreen(int(first)))
        case "cluster":
            app.switch(
                cluster_name.named(clusters(app.view_state().fleet), first, app.view_state().ref)
            )
        case "context" | "namespace":
            await _narrow(screen, command.name, first)
        case "suspend" | "unsuspend":
            await cluster.suspend(app, command.name == "suspend")
        case "cordon" | "uncordon":
            await cluster.cordon(app, first, command.name == "cordon")
        case "shell":
            await shell.open_shell(app, _pod(app, first))
        case "describe" if first:
            await inspection.describe(app, Target("pod", _pod(app, first)))
        case "mark":
            app.mark(" ".join(text))
        case "theme" if first:
            if first not in app.available_themes:
                names = ", ".join(sorted(app.available_themes))
                raise UsageError(f"There is no theme {first!r}.", f"Themes: {names}.")
            app.theme = first
        case name if name in keys.VIEWS:
            await screen.action_view(name)
        case name:
            await screen.run_action(name)


async def show_log_of(screen: Viewing, name: str) -> None:
    """The log of a job, a pod or a rank's pod, by its name."""
    app = screen.cockpit
    await screen.show_log(f"job:{name}" if name in app.store.jobs else f"pod:{_pod(app, name)}")


async def _narrow(screen: Viewing, what: str, name: str) -> None:
    """Open the only cluster of a context or a namespace, else the list of its clusters."""
    state = screen.cockpit.view_state()
    if state.fleet is None:
        raise UsageError("There is no other cluster to switch to.")
    fleet = screen.views.get("fleet")
    narrowed = fleet.context if isinstance(fleet, FleetView) else ""
    context = name if what == "context" else narrowed or (state.ref.context if state.ref else "")
    namespace = "" if what == "context" or name == "all" else name
    found = cluster_name.scope(clusters(state.fleet), contexts(state.fleet), context, namespace)
    if len(found) == 1 and name != "all":
        screen.cockpit.switch(found[0])
        return
    await screen.action_view("fleet")
    if isinstance(view := screen.view, FleetView):
        view.narrow(context, namespace)
        screen.draw_now()


def _pod(app: AppBase, name: str) -> str:
    """The pod of that name, or the one under that rank. Raises UsageError."""
    return name if name in app.store.pods else _pod_under(app, current_run(app.store), name)


def _pod_under(app: AppBase, run: RunView | None, number: str) -> str:
    """The pod under a rank. Raises UsageError."""
    number = number.removeprefix("rank:")
    rank = run.ranks.get(int(number)) if run and number.isdecimal() else None
    pod = pod_of_rank(app.store, rank) if rank else None
    if pod is None:
        raise UsageError(f"There is no job, pod or living rank {number!r}.")
    return pod.name
