"""The application: it connects, drains the session on a clock, and has the screen redraw.

Data goes one way. Ten times a second or less the session's events are folded into the store; then,
only if the store has changed or a second has passed (ages count on), the visible view is drawn
from it. Nothing here waits for a socket: what must wait runs on the session's loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from textual import work
from textual.app import App, SystemCommand
from textual.filter import LineFilter
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from cockpit.model.error import CockpitError, ExitCode
from cockpit.store.store import Store
from cockpit.tui import theme
from cockpit.tui.actions import Connect, Connection, Quit
from cockpit.tui.keys import TITLES, VIEWS, keys_of
from cockpit.tui.look import Live, Look
from cockpit.tui.symbols import Symbols, symbols
from cockpit.tui.theme import DEFAULT_THEME

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cockpit.model.cluster import Capability

T = TypeVar("T")

TICK_S = 0.125
AT_LEAST_EVERY_S = 1.0
"""Drawn again after this with nothing new: ages grow and a source may have fallen silent."""

log = logging.getLogger(__name__)


class CockpitApp(App[int]):
    """`connect` is called in a thread after the first paint; see `cockpit.tui.actions`.

    `run()` returns the exit code. `connection` is there for the caller to close afterwards.
    """

    TITLE = "cockpit"
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        connect: Connect,
        *,
        read_only: bool = False,
        cluster: str = "",
        theme_name: str = DEFAULT_THEME,
    ) -> None:
        """`cluster` names what is being connected to, for the screen until the cluster answers."""
        super().__init__()
        self.theme_name = theme_name
        self._begin_with_theme()
        self.animation_level = "none"
        self.connect = connect
        self.read_only = read_only
        self.cluster = cluster
        self.connection: Connection | None = None
        self.failure: CockpitError | None = None
        self.progress: list[str] = []
        self.capabilities: Mapping[str, Capability] = {}
        self.paused = False
        self._empty = Store()
        self._drawn: tuple[int, int] = (-1, -1)
        self._drawn_at = 0.0
        self._told: set[str] = set()
        self._faults: set[tuple[str, str]] = set()

    # -- what there is to look at

    @property
    def store(self) -> Store:
        return self.connection.session.store if self.connection else self._empty

    @property
    def now_s(self) -> float:
        return self.connection.session.clock() if self.connection else time.time()

    def look(self) -> Look:
        return Look(
            self.store,
            self.now_s,
            connected=self.connection is not None,
            progress=tuple(self.progress),
            failure=self.failure,
            cluster=str(self.store.ref or self.cluster),
            paused=self.paused,
            read_only=self.read_only,
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
        if symbols() is not Symbols.ASCII:
            return super().get_line_filters()
        from cockpit.tui.ascii import ASCII

        return [*super().get_line_filters(), ASCII]

    def get_default_screen(self) -> Screen[Any]:
        from cockpit.tui.screens.main import MainScreen

        return MainScreen()

    def on_mount(self) -> None:
        if self.theme_name in self.available_themes:
            self.theme = self.theme_name
        self.set_interval(TICK_S, self.tick)
        self.call_after_refresh(self._painted)

    def _painted(self) -> None:
        """After the first paint: whatever that did not need."""
        self._start()
        good, bad = theme.load_themes()
        for found in good:
            if found.name not in self.available_themes:
                self.register_theme(found)
        for error in bad:
            self.trouble(error)

    @work(thread=True, exit_on_error=False, name="connect")
    def _start(self) -> None:
        def say(line: str) -> None:
            if not self.is_running:
                raise Quit
            self.progress.append(line)

        try:
            connection = self.connect(say)
        except CockpitError as error:
            log.warning("cannot connect: %s", error)
            self.failure = error
            return
        except Quit:
            return
        self.connection = connection
        if self.is_running:
            self.call_from_thread(self._connected)

    @work(exit_on_error=False, name="capabilities")
    async def _connected(self) -> None:
        from cockpit.tui.screens.main import MainScreen

        self.tick()
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen):
                await screen.action_view(screen.view_name)
        assert self.connection is not None
        try:
            self.capabilities = await self.submit(self.connection.session.backend.capabilities())
        except CockpitError as error:
            self.trouble(error)

    async def action_quit(self) -> None:
        """Ctrl+q and the palette leave by the same door as `q`."""
        from cockpit.tui import changes

        self.attempt(changes.leave(self))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """What ctrl+p offers: the keys of the view, and Textual's own."""
        from cockpit.tui.screens.main import MainScreen

        if isinstance(screen, MainScreen):
            for name in VIEWS:
                show = partial(self.call_next, screen.action_view, name)
                yield SystemCommand(TITLES[name], f"Show the view {TITLES[name]}", show)
            for key in keys_of(screen.view_name):
                if key.id not in ("quit", "theme", "save", "help"):
                    act = partial(self.call_next, screen.run_action, key.id)
                    yield SystemCommand(f"{key.label.capitalize()} ({key.shown})", key.help, act)
        yield from super().get_system_commands(screen)

    def leave(self) -> None:
        self.exit(ExitCode.DONE, return_code=self.failure.code if self.failure else 0)

    # -- the clock

    def tick(self) -> None:
        if self.connection is not None:
            try:
                self.connection.session.drain()
                self._tell_recoveries()
            except Exception as error:
                if self._is_new("events", error):
                    log.exception("events could not be taken in")
        state = (self.store.version, len(self.progress) + bool(self.failure))
        now = time.monotonic()
        if state != self._drawn or now - self._drawn_at >= AT_LEAST_EVERY_S:
            self._drawn, self._drawn_at = state, now
            self.redraw()

    def redraw(self) -> None:
        """Every screen of the stack that lives; a dialog lies over one that goes on living."""
        look = self.look()
        for screen in self.screen_stack:
            if isinstance(screen, Live) and screen.is_mounted:
                try:
                    screen.redraw(look)
                except Exception as error:
                    if self._is_new(type(screen).__name__, error):
                        log.exception("%s could not be drawn", type(screen).__name__)

    def _is_new(self, where: str, error: Exception) -> bool:
        """A fault of cockpit's own is said once, and the application goes on."""
        what = f"{type(error).__name__}: {error}"
        if (where, what) in self._faults:
            return False
        self._faults.add((where, what))
        self.trouble(CockpitError(f"A fault in cockpit itself ({where}).", what))
        return True

    def _tell_recoveries(self) -> None:
        if not self.store.drills:
            return
        from cockpit.insight.recovery import is_settled, recovery
        from cockpit.tui.sentences import recovered

        for drill in self.store.drills:
            if drill.id in self._told:
                continue
            measured = recovery(self.store, drill)
            if is_settled(self.store.runs.get(drill.run_id), measured):
                self._told.add(drill.id)
                self.notify(
                    recovered(measured),
                    title="Recovered" if measured.recovered else "Not recovered",
                    severity="information" if measured.recovered else "error",
                    timeout=10,
                )

    # -- asking for changes

    def refusal(self, verb: str) -> str:
        """Why the verb cannot be done here, in one line; empty when it can."""
        if not verb:
            return ""
        if self.read_only:
            return "This screen is read-only. Start cockpit without --read-only to change things."
        if self.connection is None:
            return "Not connected yet."
        if self.connection.actions is None:
            return "Nothing can be changed on this cluster from here."
        capability = self.capabilities.get(verb)
        if capability is not None and not capability.allowed:
            return capability.why_not or f"You may not {verb} here."
        return ""

    async def submit(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it on the session's loop and wait for it without holding up the screen."""
        if self.connection is None:
            coroutine.close()
            raise CockpitError("Not connected yet.", todo="Wait for the cluster to answer.")
        future: Future[T] = self.connection.session.submit(coroutine)
        return await asyncio.wrap_future(future)

    def attempt(self, change: Coroutine[Any, Any, None]) -> None:
        """Do it in a worker; its CockpitError becomes a message."""

        async def guarded() -> None:
            try:
                await change
            except CockpitError as error:
                self.trouble(error)

        self.run_worker(guarded(), name="change", exit_on_error=False)

    def trouble(self, error: CockpitError) -> None:
        log.warning("%s", error)
        message = "\n".join(line for line in (error.why, error.todo) if line)
        title = error.what if message else ""
        self.notify(message or error.what, title=title, severity="error", timeout=12, markup=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A fault of cockpit's own in a worker: said and logged, and the screen goes on."""
        error = event.worker.error
        if event.state is WorkerState.ERROR and error is not None:
            log.error("worker %s failed", event.worker.name, exc_info=error)
            what = f"{type(error).__name__}: {error}"
            if event.worker.name == "connect":
                self.failure = CockpitError("Could not connect.", what)
            self.trouble(CockpitError(f"A fault in cockpit itself ({event.worker.name}).", what))

    # -- small things

    def mark(self, text: str = "") -> None:
        if self.connection is not None:
            from cockpit.model.event import Marked

            number = len(self.store.marks) + 1
            marked = Marked(at_s=self.now_s, source="user", text=text or f"mark {number}")
            self.connection.session.dispatch(marked)
            self.notify(f"Marked this moment: {marked.text}", timeout=3, markup=False)

    def next_theme(self) -> None:
        names = [name for name in self.available_themes if not name.startswith("textual")]
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]
        self.redraw()

    def save_screen(self) -> None:
        from cockpit import paths
        from cockpit.tui import snapshot

        try:
            where = snapshot.save(self, Path.cwd(), paths.state_dir())
        except OSError as error:
            self.trouble(CockpitError("The screen could not be saved.", str(error)))
        else:
            self.notify(f"{where}.svg\n{where}.txt", title="Screen saved", markup=False)
