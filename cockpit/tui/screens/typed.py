"""Does what was typed after `:`. Coroutines for `CockpitApp.attempt`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cockpit.model.error import UsageError
from cockpit.store.run import RunView
from cockpit.store.select import current_run, pod_of_rank
from cockpit.tui import changes, commands, keys
from cockpit.tui.app import CockpitApp
from cockpit.tui.screens.rank import RankScreen

if TYPE_CHECKING:
    from cockpit.tui.screens.main import MainScreen


async def run(screen: MainScreen, line: str) -> None:
    app = screen.cockpit
    command, words = commands.parse(line)
    first = words[0] if words else ""
    if command.takes and not first and command.name != "theme":
        raise UsageError(f"{command.name} needs more.", f"Usage: {command.usage}")
    match command.name:
        case "kill":
            await changes.kill(app, first, commands.seconds(words[1:]))
        case "scale":
            if len(words) != 2:
                raise UsageError("scale needs more.", f"Usage: {command.usage}")
            await scale(screen, first, words[1])
        case "launch":
            await changes.launch(app, first)
        case "stop":
            await changes.stop(app, first)
        case "delete":
            await changes.delete(app, first)
        case "logs":
            await show_log_of(screen, first)
        case "rank":
            _pod_under(app, current_run(app.store), first)
            app.push_screen(RankScreen(int(first)))
        case "mark":
            app.mark(" ".join(words))
        case "theme" if first:
            if first not in app.available_themes:
                names = ", ".join(sorted(app.available_themes))
                raise UsageError(f"There is no theme {first!r}.", f"Themes: {names}.")
            app.theme = first
        case name if name in keys.VIEWS:
            await screen.action_view(name)
        case name:
            await screen.run_action(name)


async def scale(screen: MainScreen, group: str, wanted: str) -> None:
    """To `3`, or by `+1`."""
    known = screen.cockpit.store.groups.get(group)
    pods = commands.replicas(wanted, known.desired if known else 0)
    await changes.scale(screen.cockpit, group, pods)


async def show_log_of(screen: MainScreen, name: str) -> None:
    """The log of a job, a pod or a rank's pod, by its name."""
    store, run = screen.cockpit.store, current_run(screen.cockpit.store)
    if name in store.jobs:
        await screen.show_log(f"job:{name}")
    elif name in store.pods:
        await screen.show_log(f"pod:{name}")
    else:
        await screen.show_log(f"pod:{_pod_under(screen.cockpit, run, name)}")


def _pod_under(app: CockpitApp, run: RunView | None, number: str) -> str:
    """The pod under a rank. Raises UsageError."""
    number = number.removeprefix("rank:")
    rank = run.ranks.get(int(number)) if run and number.isdecimal() else None
    pod = pod_of_rank(app.store, rank) if rank else None
    if pod is None:
        raise UsageError(f"There is no job, pod or living rank {number!r}.")
    return pod.name
