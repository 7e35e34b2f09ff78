"""The one screen that carries the views and their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from cockpit.tui import keymap, keys
from cockpit.tui.main.alert_keys import Alerting
from cockpit.tui.main.change_keys import Changing
from cockpit.tui.main.chart_keys import Charting
from cockpit.tui.main.drill_keys import Drilling
from cockpit.tui.main.frame import DrillLine, KeyBar, StatusLine, Tabs, views_of
from cockpit.tui.main.inspect_keys import Inspecting
from cockpit.tui.view_state import HEIGHTS, WIDTHS, ViewState
from cockpit.tui.views import registry

if TYPE_CHECKING:  # each is imported on first use, so that the first paint is not delayed
    from cockpit.tui.dialogs.prompt import Prompt
    from cockpit.tui.views.ranks.view import RanksView
    from cockpit.tui.widgets.table.table import LineTable


class MainScreen(Charting, Alerting, Drilling, Inspecting, Changing):
    DEFAULT_CSS = """
    MainScreen { layout: vertical; }
    MainScreen > #view { height: 1fr; background: $surface; }
    MainScreen.-tiny > Tabs { display: none; }
    """
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings()]

    def __init__(self) -> None:
        super().__init__()
        keymap.rebind(self._bindings)
        self.prompt: Prompt | None = None

    def compose(self) -> ComposeResult:
        yield Tabs()
        yield StatusLine()
        yield DrillLine()
        yield Container(id="view")
        yield KeyBar()

    async def on_mount(self) -> None:
        await self._show(self.view_name)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw_now)

    def redraw(self, state: ViewState, *, also_paused: bool = False) -> None:
        """Redraw the frame, and the view unless the screen is paused; with `also_paused` always."""
        self.query_one(Tabs).draw(state, self.view_name)
        self.query_one(StatusLine).draw(state)
        self.query_one(DrillLine).draw(state, self.view_name)
        here = self.keys_here(state)
        refused = frozenset(key.id for key in here if self.cockpit.refusal(key.verb))
        self.query_one(KeyBar).draw(here, refused)
        view = self.views.get(self.shown)
        if view is not None and view.is_mounted and (also_paused or not state.paused):
            view.draw(state)

    def keys_here(self, state: ViewState) -> tuple[keys.Key, ...]:
        """The footer's keys of this view."""
        of_view = keys.keys_of(self.view_name, kubernetes=state.on_kubernetes)
        if self.shown == "starting":  # there is nothing yet that the other keys could change
            return tuple(key for key in of_view if key.id in ("command", "help", "quit"))
        view = self.views.get(self.shown)
        return of_view if view is None else view.usable(of_view)

    # -- moving between views

    async def action_view(self, name: str) -> None:
        await self._show(name)
        self.view.to_start()
        self.draw_now()

    async def _show(self, name: str) -> None:
        """Show that view; each is created when it is first shown."""
        self.view_name = name
        # Without a cluster only the fleet and the recordings have data.
        there = self.cockpit.session is not None or name == "runs"
        there = there or (name == "fleet" and self.cockpit.connection is not None)
        self.shown = shown = name if there else "starting"
        if shown not in self.views:
            self.views[shown] = view = registry.make(shown)
            await self.query_one("#view").mount(view)
        # Another view may have been requested during the creation of this one.
        for other, view in self.views.items():
            view.display = other == self.shown
        self.draw_now()
        self.call_after_refresh(self.draw_now)
        if self.app.screen is self:
            self.view.take_focus()

    async def action_turn(self, by: int) -> None:
        names = views_of(self.cockpit.view_state())
        at = names.index(self.view_name) if self.view_name in names else 0
        await self.action_view(names[(at + by) % len(names)])

    async def check_and_redraw(self, *, switched: bool) -> None:
        """Another cluster, or the first one: drop everything of the previous one."""
        if switched:
            for view in self.views.values():
                if view.is_mounted:
                    view.forget()
            for name in keys.ONE_CLUSTER:
                self.filters.pop(name, None)
        name = "overview" if switched and self.view_name == "fleet" else self.view_name
        await self._show(name if self.cockpit.session is not None else "fleet")

    def draw_now(self) -> None:
        """Also while the UI is paused: the user has changed the selection."""
        self.redraw(self.cockpit.view_state(), also_paused=True)

    def action_back(self) -> None:
        if not self.view.back():
            self.set_filter("")
        self.draw_now()

    def action_heat(self) -> None:
        self._ranks(lambda view: view.toggle_heat())

    def action_color(self) -> None:
        self._ranks(lambda view: view.next_colour())

    def action_stack(self) -> None:
        from cockpit.tui.views.ranks import stack

        if (target := self.target()) is not None and target.kind == "rank":
            self.cockpit.attempt(stack.show_stack(self.cockpit, int(target.name)))

    def action_profile(self) -> None:
        from cockpit.tui.views.ranks import stack

        if (target := self.target()) is not None and target.kind == "rank":
            self.cockpit.attempt(stack.show_profile(self.cockpit, int(target.name)))

    def _ranks(self, change: Callable[[RanksView], None]) -> None:
        from cockpit.tui.views.ranks.view import RanksView

        if isinstance(self.view, RanksView):
            change(self.view)
            self.draw_now()

    def action_pane(self) -> None:
        self.view.next_pane()

    # -- what is selected

    async def on_line_table_selected(self, message: LineTable.Selected) -> None:
        message.stop()
        await self.open_target()

    async def show_log(self, stream: str) -> None:
        from cockpit.tui.views.jobs.view import JobsView

        await self._show("jobs")
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
        from cockpit.tui.changes import changes

        self.cockpit.attempt(changes.leave(self.cockpit))

    def action_help(self) -> None:
        from cockpit.tui.dialogs.help import help_text
        from cockpit.tui.dialogs.reading import Reading

        name = self.view_name
        heading = f"Keys · {keys.TITLES[name]}"
        self.app.push_screen(Reading(heading, lambda width: help_text(name, width)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in keys.OPENS_PROMPT and self.prompt is not None and self.focused is self.prompt:
            return False  # the key is a part of the line
        return super().check_action(action, parameters)

    async def action_command(self) -> None:
        await self.ask(":")

    async def action_filter(self) -> None:
        await self.ask("/")

    async def ask(self, mode: str, line: str = "") -> None:
        if self.prompt is None:
            from cockpit.tui.dialogs.prompt import Prompt

            history = self.cockpit.memory
            self.prompt = Prompt(self._completions, lambda: history.now.commands)
            await self.mount(self.prompt)
        self.query_one(KeyBar).display = False
        self.prompt.ask(mode, line)

    def on_prompt_entered(self, message: Prompt.Entered) -> None:
        from cockpit.tui.main import command_runner

        if message.mode == "/":
            self.set_filter(message.line)
        elif message.mode == "#":
            self.annotate(message.line)
        else:
            self.cockpit.remember(lambda now: now.with_command(message.line))
            self.cockpit.attempt(command_runner.run(self, message.line))

    def on_prompt_closed(self) -> None:
        self.query_one(KeyBar).display = True
        self.view.take_focus()

    def _completions(self, line: str) -> list[str]:
        from cockpit.tui.commands import commands

        state = self.cockpit.view_state()
        now, table = self.cockpit.memory.now, self.focused_table()
        names = commands.Names(
            sorted(self.app.available_themes),
            state.fleet,
            (*now.favorites, *now.recent),
            sorted(now.filters.get(self.view_name, ())),
            ("all", *(column.key for column in table.columns)) if table else (),
        )
        return commands.completions(line, state.store, names)
