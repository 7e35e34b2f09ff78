"""The one screen that carries the five views and their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.screen import Screen

from cockpit.model.error import CockpitError
from cockpit.store.select import current_run
from cockpit.tui import keys
from cockpit.tui.app import CockpitApp
from cockpit.tui.frame import KeyBar, StatusLine, Tabs
from cockpit.tui.look import HEIGHTS, WIDTHS, Look, Target
from cockpit.tui.screens import views
from cockpit.tui.screens.view import View

if TYPE_CHECKING:  # each is imported where it is first used: the first paint waits for none
    from cockpit.tui.dialogs.prompt import Prompt
    from cockpit.tui.screens.charts import ChartsView
    from cockpit.tui.widgets.table import LineTable


class MainScreen(Screen[None]):
    DEFAULT_CSS = """
    MainScreen { layout: vertical; }
    MainScreen > #view { height: 1fr; background: $surface; }
    MainScreen.-tiny > Tabs { display: none; }
    """
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings()]

    @property
    def cockpit(self) -> CockpitApp:
        app = self.app
        assert isinstance(app, CockpitApp)
        return app

    def __init__(self) -> None:
        super().__init__()
        self.view_name = keys.VIEWS[0]
        self.views: dict[str, View] = {}
        self.shown = "starting"
        self.prompt: Prompt | None = None

    def compose(self) -> ComposeResult:
        yield Tabs()
        yield StatusLine()
        yield Container(id="view")
        yield KeyBar()

    async def on_mount(self) -> None:
        await self.action_view(self.view_name)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw_now)

    @property
    def view(self) -> View:
        return self.views[self.shown]

    def redraw(self, look: Look, *, held_too: bool = False) -> None:
        """The frame always; the view only while the screen is not held, or with `held_too`."""
        self.query_one(Tabs).draw(look, self.view_name)
        self.query_one(StatusLine).draw(look)
        here = keys.keys_of(self.view_name)
        refused = frozenset(key.id for key in here if self.cockpit.refusal(key.verb))
        self.query_one(KeyBar).draw(here, refused)
        view = self.views.get(self.shown)
        if view is not None and view.is_mounted and (held_too or not look.paused):
            view.draw(look)

    # -- moving between views

    async def action_view(self, name: str) -> None:
        """Show that view; each is built when it is first looked at."""
        self.view_name = name
        # No view has anything to show before there is a cluster.
        self.shown = shown = name if self.cockpit.connection is not None else "starting"
        if shown not in self.views:
            self.views[shown] = view = views.make(shown)
            await self.query_one("#view").mount(view)
        for other, view in self.views.items():
            view.display = other == shown
        self.draw_now()
        self.call_after_refresh(self.draw_now)
        if self.app.screen is self:
            self.view.take_focus()

    async def action_turn(self, by: int) -> None:
        at = keys.VIEWS.index(self.view_name) + by
        await self.action_view(keys.VIEWS[at % len(keys.VIEWS)])

    def draw_now(self) -> None:
        """Even while the screen is held: the user has asked to see something else."""
        self.redraw(self.cockpit.look(), held_too=True)

    def action_back(self) -> None:
        self.view.filter("")
        self.draw_now()

    def action_aggregate(self) -> None:
        self._charts(lambda view: view.toggle_ranks())

    def action_zoom_in(self) -> None:
        self._charts(lambda view: view.zoom(-1))

    def action_zoom_out(self) -> None:
        self._charts(lambda view: view.zoom(1))

    def action_zoom_all(self) -> None:
        self._charts(lambda view: view.zoom(0))

    def _charts(self, change: Callable[[ChartsView], None]) -> None:
        from cockpit.tui.screens.charts import ChartsView

        if isinstance(self.view, ChartsView):
            change(self.view)
            self.draw_now()

    def action_pane(self) -> None:
        self.view.next_pane()

    # -- what is selected

    async def on_line_table_selected(self, message: LineTable.Selected) -> None:
        message.stop()
        await self.action_open()

    async def action_open(self) -> None:
        target = self.view.target()
        if target is None:
            return
        if target.kind == "rank":
            from cockpit.tui.screens.rank import RankScreen

            self.app.push_screen(RankScreen(int(target.name)))
        elif target.kind == "job":
            await self.show_log(f"job:{target.name}")
        else:
            self.action_object()

    def action_object(self) -> None:
        target = self.view.target()
        found = self._object(target) if target else None
        if target is None or found is None:
            self.notify("Nothing is selected here.", timeout=3)
            return
        from cockpit.tui.dialogs.reading import Reading
        from cockpit.tui.objects import yaml

        self.app.push_screen(Reading(f"{target.kind} {target.name}", yaml(found)))

    def _object(self, target: Target) -> object:
        store, run = self.cockpit.store, current_run(self.cockpit.store)
        match target.kind:
            case "pod":
                return store.pods.get(target.name)
            case "group":
                return store.groups.get(target.name)
            case "job":
                return store.jobs.get(target.name)
            case "rank" if run is not None:
                rank = run.ranks.get(int(target.name))
                return rank and {"placement": rank.placement, "sample": rank.sample}
        return None

    async def action_logs(self) -> None:
        target = self.view.target()
        run = current_run(self.cockpit.store)
        if target is None or target.kind == "group":
            jobs = [run.submission_id] if run and run.submission_id else []
            jobs += list(self.cockpit.store.jobs)
            if jobs:
                await self.show_log(f"job:{jobs[0]}")
            else:
                self.notify("There is no job yet whose log could be shown.", timeout=4)
        elif target.kind == "rank":
            from cockpit.tui.screens import typed

            self.cockpit.attempt(typed.show_log_of(self, f"rank:{target.name}"))
        else:
            await self.show_log(f"{target.kind}:{target.name}")

    async def show_log(self, stream: str) -> None:
        from cockpit.tui.screens.jobs import JobsView

        await self.action_view("jobs")
        view = self.view
        if isinstance(view, JobsView):
            view.follow(stream)
            self.draw_now()

    def action_sort(self) -> None:
        self.view.sort_next()
        self.draw_now()

    def action_reverse(self) -> None:
        self.view.reverse()
        self.draw_now()

    # -- changes

    def action_kill(self) -> None:
        from cockpit.tui import changes

        target = self.view.target()
        if target is not None and target.kind in ("pod", "rank"):
            name = target.name if target.kind == "pod" else f"rank:{target.name}"
            self.cockpit.attempt(changes.kill(self.cockpit, name))
        elif why := self.cockpit.refusal("delete_pod"):
            self.cockpit.trouble(CockpitError("Nothing was killed.", why))
        else:
            self.notify("Select a pod (4) or a rank (2) first.", timeout=4)

    def action_scale_up(self) -> None:
        self._scale("+1")

    def action_scale_down(self) -> None:
        self._scale("-1")

    def _scale(self, by: str) -> None:
        from cockpit.tui.screens import typed

        store = self.cockpit.store
        target = self.view.target()
        group = next(iter(store.groups), "")
        if target is not None and target.kind == "group":
            group = target.name
        elif target is not None and target.kind == "pod" and target.name in store.pods:
            group = store.pods[target.name].group
        self.cockpit.attempt(typed.scale(self, group, by))

    def action_stop(self) -> None:
        from cockpit.tui import changes

        target, run = self.view.target(), current_run(self.cockpit.store)
        job = target.name if target and target.kind == "job" else run.submission_id if run else ""
        if job:
            self.cockpit.attempt(changes.stop(self.cockpit, job))
        else:
            self.notify("There is no job to stop.", timeout=4)

    def action_launch(self, job: str = "") -> None:
        from cockpit.tui import changes

        self.cockpit.attempt(changes.launch(self.cockpit, job))

    # -- the rest

    def action_mark(self) -> None:
        self.cockpit.mark()

    def action_pause(self) -> None:
        self.cockpit.paused = not self.cockpit.paused
        self.cockpit.redraw()

    def action_theme(self) -> None:
        self.cockpit.next_theme()

    def action_save(self) -> None:
        self.cockpit.save_screen()

    def action_quit(self) -> None:
        from cockpit.tui import changes

        self.cockpit.attempt(changes.leave(self.cockpit))

    def action_help(self) -> None:
        from cockpit.tui.dialogs.reading import Reading
        from cockpit.tui.screens.help import help_text

        name = self.view_name
        self.app.push_screen(Reading(f"Keys · {keys.TITLES[name]}", help_text(name)))

    async def action_command(self) -> None:
        await self._ask(":")

    async def action_filter(self) -> None:
        await self._ask("/")

    async def _ask(self, mode: str) -> None:
        if self.prompt is None:
            from cockpit.tui.dialogs.prompt import Prompt

            self.prompt = Prompt(self._completions)
            await self.mount(self.prompt)
        self.query_one(KeyBar).display = False
        self.prompt.ask(mode)

    def on_prompt_entered(self, message: Prompt.Entered) -> None:
        from cockpit.tui.screens import typed

        if message.mode == "/":
            self.view.filter(message.line)
            self.draw_now()
        else:
            self.cockpit.attempt(typed.run(self, message.line))

    def on_prompt_closed(self) -> None:
        self.query_one(KeyBar).display = True
        self.view.take_focus()

    def _completions(self, line: str) -> list[str]:
        from cockpit.tui import commands

        return commands.completions(line, self.cockpit.store, sorted(self.app.available_themes))
