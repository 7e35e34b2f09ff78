"""Does what was typed after `:`. Coroutines for `AppBase.attempt`."""

from __future__ import annotations

from cockpit import format
from cockpit.model.cluster import ClusterRef
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

_MAY_BE_ALONE = ("theme", "describe", "drill", "logs", "filter", "favorite", "columns")


async def run(screen: Viewing, line: str) -> None:
    app = screen.cockpit
    command, text = commands.parse(line)
    first = text[0] if text else ""
    if command.takes and not first and command.name not in _MAY_BE_ALONE:
        raise UsageError(f"{command.name} needs an argument.", f"Usage: {command.usage}")
    most = command.most_arguments
    if most is not None and len(text) > most:
        takes = f"at most {format.plural(most, 'argument')}" if most else "no argument"
        raise UsageError(f"{command.name} takes {takes}.", f"Usage: {command.usage}")
    match command.name:
        case "kill":
            from cockpit.tui.changes import drills

            await drills.kill(app, first, commands.seconds(text[1:]))
        case "scale":
            if len(text) != 2:
                raise UsageError("scale takes 2 arguments.", f"Usage: {command.usage}")
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
            app.push_screen(RankScreen(_rank(current_run(app.store), first)))
        case "cluster":
            app.switch(_cluster(app, first))
        case "favorite":
            favorite(app, _cluster(app, first) if first else app.view_state().ref)
        case "filter" if first:
            screen.set_filter(_saved(screen, first))
        case "keep":
            _keep(screen, first)
        case "drop":
            _saved(screen, first)
            app.remember(lambda now: now.with_filter(screen.view_name, first, ""))
        case "columns":
            _columns(screen, text)
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


def favorite(app: AppBase, ref: ClusterRef | None) -> None:
    """List the cluster first in the fleet, or no longer."""
    if ref is None:
        raise UsageError("No cluster is chosen.", todo="Type its name: favorite CLUSTER")
    app.remember(lambda now: now.with_favorite(ref))
    is_one = ref in app.memory.now.favorites
    app.notify(f"{ref.name} is {'now' if is_one else 'no longer'} a favorite.", markup=False)
    app.redraw()


def _cluster(app: AppBase, name: str) -> ClusterRef:
    """The cluster of that name; `-`: the one that was open before. Raises UsageError."""
    state = app.view_state()
    if name != "-":
        return cluster_name.named(clusters(state.fleet), name, state.ref)
    found = next((ref for ref in app.memory.now.recent if ref != state.ref), None)
    if found is None:
        todo = f"See the view Fleet: {keys.NUMBERS['fleet']}"
        raise UsageError("No other cluster was open before.", todo=todo)
    return found


def _saved(screen: Viewing, name: str) -> str:
    """The saved filter of the view. Raises UsageError."""
    found = screen.cockpit.memory.now.filters.get(screen.view_name, {})
    if name not in found:
        names = ", ".join(sorted(found)) or "none"
        what = f"{keys.TITLES[screen.view_name]} has no filter {name!r}."
        todo = f"Filter with {keys.shown_key('filter')}, then save it: keep NAME"
        raise UsageError(what, f"Saved: {names}.", todo)
    return found[name]


def _keep(screen: Viewing, name: str) -> None:
    text = screen.filters.get(screen.view_name, "")
    if not text:
        todo = f"Filter with {keys.shown_key('filter')}, then type: keep NAME"
        raise UsageError("There is no filter to save.", todo=todo)
    screen.cockpit.remember(lambda now: now.with_filter(screen.view_name, name, text))
    title = keys.TITLES[screen.view_name]
    screen.cockpit.notify(f"Saved for {title}: filter {name}", markup=False)


def _columns(screen: Viewing, chosen: tuple[str, ...]) -> None:
    """Choose the columns of the table with the focus; without any, show their names."""
    table = screen.focused_table()
    if table is None:
        raise UsageError(f"{keys.TITLES[screen.view_name]} has no table.")
    known = [column.key for column in table.columns]
    if not chosen:
        shown = table.visible_columns
        hidden = ", ".join(key for key in known if key not in shown) or "none"
        message = f"Shown: {', '.join(shown)}\nHidden: {hidden}"
        screen.cockpit.notify(message, title="Columns", timeout=12, markup=False)
        return
    for key in chosen if chosen != ("all",) else ():
        if key not in known:
            raise UsageError(f"There is no column {key!r}.", f"Columns: {', '.join(known)}.")
    wanted = () if chosen == ("all",) else tuple(dict.fromkeys(chosen))
    name = f"{screen.view_name}/{table.id}"
    screen.cockpit.remember(lambda now: now.with_columns(name, wanted))
    screen.draw_now()


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


def _rank(run: RunView | None, number: str) -> int:
    """A rank of the run, also one whose pod no longer exists. Raises UsageError."""
    number = number.removeprefix("rank:")
    if run is None or not number.isdecimal() or int(number) not in run.ranks:
        known = f"The run has {format.ranks(run.ranks)}." if run and run.ranks else ""
        todo = f"See the view Ranks: {keys.NUMBERS['ranks']}"
        raise UsageError(f"There is no rank {number!r}.", known or "No rank is known yet.", todo)
    return int(number)


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
