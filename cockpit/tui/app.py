"""The application: it connects, drains the session on a clock, and redraws the screen.

Data flows one way. At most ten times a second the session's events are applied to the store. Then
the visible view is drawn from it, if the store has changed or a second has passed (ages change).
Nothing here waits for a socket: blocking work runs on the session's loop.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand
from textual.filter import LineFilter
from textual.screen import Screen

from cockpit.config.theme_files import theme_named
from cockpit.model.alert import Severity
from cockpit.model.cluster import is_protected
from cockpit.model.error import CockpitError
from cockpit.tui import theme
from cockpit.tui.changes.actions import Connect
from cockpit.tui.connecting import Connecting
from cockpit.tui.keys import TITLES, VIEWS, keys_of
from cockpit.tui.terminal.backlog import is_behind
from cockpit.tui.terminal.line_filters import ASCII, PRINTABLE, chain
from cockpit.tui.terminal.notification import clipboard, window_title
from cockpit.tui.terminal.symbols import Symbols, symbols
from cockpit.tui.theme import DEFAULT_THEME
from cockpit.tui.view_state import Live, ViewState

if TYPE_CHECKING:
    from cockpit.model.cluster import ClusterPattern

TICK_S = 0.125
THEME_EVERY_S = 1.0
"""How often the file of the theme is checked for a change."""
AT_LEAST_EVERY_S = 1.0
"""The redraw interval without new events: ages change and a source may have become stale."""

log = logging.getLogger(__name__)


class CockpitApp(Connecting):
    """`connect` is called in a thread after the first paint; see `cockpit.tui.changes.actions`.

    `run()` returns the exit code. The caller closes `connection` afterwards.
    """

    TITLE = "cockpit"
    ENABLE_COMMAND_PALETTE = True
    CSS = """
    SearchIcon { display: none; }  /* an emoji: not in all fonts, and two cells or one */
    """

    def __init__(
        self,
        connect: Connect,
        *,
        read_only: bool = False,
        protected: Sequence[ClusterPattern] = (),
        cluster: str = "",
        theme_name: str = DEFAULT_THEME,
        context_themes: Mapping[str, str] = {},
    ) -> None:
        """`cluster` names what is being connected to, for the screen until the cluster answers.

        `theme_name`: empty to choose one by the colours of the terminal.
        `context_themes`: by a pattern of contexts, the theme of their clusters.
        """
        super().__init__(connect, read_only=read_only, protected=protected)
        self.theme_name = theme_name or theme.default_theme(self.console.color_system)
        self.context_themes = context_themes
        self._begin_with_theme()
        self.animation_level = "none"
        self.cluster = cluster
        self._drawn: tuple[int, int, int] = (-1, -1, -1)
        self._drawn_at = 0.0
        self._reported: set[str] = set()
        self._window_title = ""
        self._theme_file: tuple[str, int] = ("", 0)
        self._loud: Mapping[str, Severity] = {}

    # -- what is shown

    def view_state(self) -> ViewState:
        connection = self.connection
        fleet = connection.fleet if connection else None
        ref = self.store.ref or (self.session.backend.ref if self.session else None)
        return ViewState(
            self.store,
            self.now_s,
            connected=connection is not None,
            progress=tuple(self.progress),
            failure=self.failure,
            cluster=str(ref or self.cluster),
            ref=ref,
            paused=self.paused,
            read_only=self.read_only,
            protected=ref is not None and is_protected(ref, self.protected),
            chosen=connection is None or connection.session is not None,
            switching=str(self.switching or ""),
            fleet=fleet.store if fleet else None,
            route=self.route,
        )

    # -- its life

    def _begin_with_theme(self) -> None:
        """Before the first paint, so that nothing is parsed and painted twice."""
        for found in theme.load_themes([self.theme_name])[0]:
            self.register_theme(found)
            if found.ansi:
                return  # Textual must also change its filters: `on_mount` sets it.
            self.set_reactive(CockpitApp.theme, found.name)
            self.stylesheet.set_variables(self.get_css_variables())
            self.set_class(found.dark, "-dark-mode", update=False)
            self.set_class(not found.dark, "-light-mode", update=False)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return theme.semantic_variables(self.current_theme)

    def get_line_filters(self) -> Sequence[LineFilter]:
        last = (PRINTABLE, ASCII) if symbols() is Symbols.ASCII else (PRINTABLE,)
        return [chain(*super().get_line_filters(), *last)]

    def get_default_screen(self) -> Screen[Any]:
        from cockpit.tui.main.screen import MainScreen

        return MainScreen()

    def on_mount(self) -> None:
        if self.theme_name in self.available_themes:
            self.theme = self.theme_name
        self.set_interval(TICK_S, self.tick)
        self.set_interval(THEME_EVERY_S, self.reload_theme)
        self.call_after_refresh(self._painted)

    def _painted(self) -> None:
        """After the first paint: work that it did not need."""
        self.start()
        good, bad = theme.load_themes()
        for found in good:
            if found.name not in self.available_themes:
                self.register_theme(found)
        for error in bad:
            self.trouble(error)

    def reload_theme(self) -> None:
        """Show the theme in use again after its file was changed; report what is wrong in it."""
        try:
            file = theme_named(self.theme)
            changed = (self.theme, file.path.stat().st_mtime_ns)
        except (CockpitError, OSError):
            return  # One of Textual's, or a file that an editor replaces at this moment.
        before, self._theme_file = self._theme_file, changed
        if before[0] != changed[0] or before == changed:
            return
        try:
            self.register_theme(theme.textual_theme(file))
        except CockpitError as error:
            self.trouble(error)
        else:
            self.mutate_reactive(CockpitApp.theme)

    async def show_cluster(self, *, switched: bool) -> None:
        from cockpit.tui.main.screen import MainScreen

        self._drawn = (-1, -1, -1)
        if self.context_themes and (ref := self.view_state().ref) is not None:
            named = (name for pattern, name in self.context_themes.items()
                     if fnmatchcase(ref.context, pattern))  # fmt: skip
            self.theme = next(named, self.theme_name)
        here = self.view_state().ref
        if here is not None and self.connection is not None and self.connection.fleet is not None:
            self.remember(lambda now: now.with_cluster(here))
        if switched:
            self._reported.clear()
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen):
                await screen.check_and_redraw(switched=switched)
        self.tick()

    async def offer_undo(self) -> None:
        from cockpit.tui.changes import interrupted_drills

        await interrupted_drills.offer(self)

    async def action_quit(self) -> None:
        """Ctrl+q and the palette leave by the same door as `q`."""
        from cockpit.tui.changes import changes

        self.attempt(changes.leave(self))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The entries of ctrl+p: the views, the keys of the view, and Textual's choice of themes.

        Textual's other entries repeat a key of cockpit (quit, save, help) or change the layout.
        """
        from cockpit.tui.main.screen import MainScreen

        if isinstance(screen, MainScreen):
            for name in VIEWS:
                show = partial(self.call_next, screen.action_view, name)
                yield SystemCommand(TITLES[name], f"Show the view {TITLES[name]}", show)
            for key in keys_of(screen.view_name):
                if key.id != "theme":
                    act = partial(self.call_next, screen.run_action, key.id)
                    yield SystemCommand(f"{key.label.capitalize()} ({key.shown})", key.help, act)
        yield SystemCommand("Theme", "Select a theme", self.action_change_theme)

    # -- the clock

    def tick(self) -> None:
        connection = self.connection
        if connection is not None:
            try:
                if connection.session is not None:
                    connection.session.drain()
                if connection.fleet is not None:
                    connection.fleet.drain()
                self._notify_recoveries()
                if not self.lent:  # else the bell rings once the terminal is back
                    self._ring()
            except Exception as error:
                if self.is_new("events", error):
                    log.exception("events could not be processed")
        if self.lent or is_behind(self._driver):
            return
        if connection is not None:
            self.watch_route()
        fleet = connection.fleet.store.version if connection and connection.fleet else 0
        state = (self.store.version, fleet, len(self.progress) + bool(self.failure))
        now = time.monotonic()
        if state != self._drawn or now - self._drawn_at >= AT_LEAST_EVERY_S:
            self._drawn, self._drawn_at = state, now
            self.redraw()

    def copy_to_clipboard(self, text: str) -> None:
        """Also through tmux, which passes it on where `allow-passthrough` is on."""
        super().copy_to_clipboard(text)
        if self._driver is not None and (sequence := clipboard(text, os.environ)):
            self._driver.write(sequence)

    def _entitle(self, state: ViewState) -> None:
        """The title of the terminal's window, or of tmux' pane."""
        parts = (state.cluster, state.store.health.value if state.store.ref else "")
        text = " · ".join(("cockpit", *filter(None, parts)))
        if text != self._window_title and self._driver is not None and not self.is_headless:
            self._window_title = text
            self._driver.write(window_title(text, os.environ))

    def redraw(self) -> None:
        """Every mounted screen of the stack; the one below a dialog is still drawn."""
        view_state = self.view_state()
        self._entitle(view_state)
        for screen in self.screen_stack:
            # A screen counts as mounted before its parts are there, and while they are removed.
            is_whole = screen.is_mounted and screen.is_running and screen.children
            if isinstance(screen, Live) and is_whole:
                try:
                    screen.redraw(view_state)
                except Exception as error:
                    if self.is_new(type(screen).__name__, error):
                        log.exception("%s could not be drawn", type(screen).__name__)

    def _notify_recoveries(self) -> None:
        if not self.store.drills:
            return
        from cockpit.insight.recovery.measurement import is_settled, recovery

        for drill in self.store.drills:
            # That of an experiment is reported with its verdict, by `cockpit.tui.changes.drills`.
            if drill.id in self._reported or drill.id.partition(".")[0] in self.store.drilling:
                continue
            measured = recovery(self.store, drill)
            if is_settled(self.store, measured):
                self._reported.add(drill.id)
                self.notify_recovery(measured)

    def _ring(self) -> None:
        """Once for each alert that is new or has got worse."""
        if not (self.store.alerts or self._loud):
            return
        from cockpit.alerts.bell import loud, new_or_worse

        before, self._loud = self._loud, loud(self.store.alerts, self.now_s)
        if worse := new_or_worse(before, self._loud):
            more = f" and {len(worse) - 1} more" if len(worse) > 1 else ""
            self.ring(self.store.alerts[worse[0]].alert.finding.what + more)
