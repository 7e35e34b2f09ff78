"""The base class of the application, with what screens and widgets use of it.

It imports no screen, so that every screen can import it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, field
from textual.app import App
from textual.worker import Worker, WorkerState

from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError, ExitCode
from cockpit.store.store import Store
from cockpit.tui.changes.actions import READ_ONLY, Connection
from cockpit.tui.diagnosis_cache import DiagnosisCache
from cockpit.tui.remembered import Memory, Remembered
from cockpit.tui.terminal.driver import TerminalDriver
from cockpit.tui.terminal.notification import notification
from cockpit.tui.view_state import ViewState

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cockpit.actions.drills import DrillActions
    from cockpit.drills.engine.drill import Experiment
    from cockpit.insight.recovery.measurement import Reading
    from cockpit.model.cluster import Capability, ClusterPattern, ClusterRef
    from cockpit.model.drill import Recovery
    from cockpit.session.session import Session

T = TypeVar("T")

log = logging.getLogger(__name__)


class Conducting(Struct):
    """A running drill, or a game day of several."""

    name: str
    abort: Callable[[], None]
    experiment: Callable[[], Experiment | None]
    """The running drill, or the last one."""
    message: str = ""
    """The current step of a game day, in a line."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it is over, and undone."""


class AppBase(App[int]):
    """An application that changes a cluster only through its connection's actions."""

    def __init__(
        self, *, read_only: bool = False, protected: Sequence[ClusterPattern] = ()
    ) -> None:
        super().__init__(driver_class=TerminalDriver)
        self.read_only = read_only
        self.protected = protected
        self.paused = False
        self.lent = False
        """Whether another program has the terminal."""
        self.connection: Connection | None = None
        self.failure: CockpitError | None = None
        self.capabilities: Mapping[str, Capability] = {}
        self.conducting: Conducting | None = None
        """The drill or game day of this screen, from its first stage to its last."""
        self.diagnoses = DiagnosisCache()
        self._memory: Memory | None = None
        self._empty = Store()
        self._faults: set[tuple[str, str]] = set()

    @property
    def session(self) -> Session | None:
        """The session of the cluster on screen."""
        return self.connection.session if self.connection else None

    @property
    def actions(self) -> DrillActions:
        """The changes and reads of the cluster on screen. CockpitError without a cluster."""
        if self.connection is None or self.connection.actions is None:
            raise CockpitError("Not connected yet.", todo="Wait for the cluster to answer.")
        return self.connection.actions

    @property
    def memory(self) -> Memory:
        """What is kept between starts; read at its first use, after the first paint."""
        if self._memory is None:
            self._memory = Memory()
        return self._memory

    def remember(self, change: Callable[[Remembered], Remembered]) -> None:
        """Change what is kept. Where it cannot be written, it is kept until the end."""
        try:
            self.memory.change(change)
        except OSError as error:
            what = "Your choice is kept only until you quit the UI."
            self.trouble(CockpitError(what, f"{error.filename}: {error.strerror}"))
        except CockpitError as error:
            self.trouble(error)

    @property
    def store(self) -> Store:
        return self.session.store if self.session else self._empty

    @property
    def now_s(self) -> float:
        sessions = (self.connection.session, self.connection.fleet) if self.connection else ()
        return next((session.clock() for session in sessions if session), server_time())

    def view_state(self) -> ViewState:
        """Return everything that the screens draw from."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw every screen of the stack again."""
        raise NotImplementedError

    def tick(self) -> None:
        """Fold new events into the store, and draw what they changed."""
        raise NotImplementedError

    def switch(self, ref: ClusterRef) -> None:
        """Show that cluster; the one before stays until the other answers."""
        raise NotImplementedError

    def readings(self, record_id: str) -> Mapping[str, Reading]:
        """How the run was before each fault of that drill, where it is conducted here."""
        mine = self.conducting.experiment() if self.conducting is not None else None
        return mine.readings if mine is not None and mine.id == record_id else {}

    def refusal(self, verb: str) -> str:
        """Why the verb cannot be done here, in one line; empty when it can."""
        if not verb:
            return ""
        if self.connection is None:
            return "Not connected yet."
        if self.connection.session is None:
            return "No cluster is chosen yet."
        if verb not in ("manifest", "describe", "logs"):
            if self.read_only:
                return READ_ONLY
            if self.connection.actions is None:
                return "Nothing can be changed on this cluster from here."
        capability = self.capabilities.get(verb)
        if capability is not None and not capability.allowed:
            from cockpit.model.cluster import ACTIONS

            return capability.why_not or f"You do not have permission to {ACTIONS.get(verb, verb)}."
        return ""

    async def submit(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it on the session's loop and wait for it without holding up the screen."""
        if self.session is None:
            coroutine.close()
            raise CockpitError("Not connected yet.", todo="Wait for the cluster to answer.")
        future: Future[T] = self.session.submit(coroutine)
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
        # The newest counts: one after another they would cover the screen, each for as long.
        self.clear_notifications()
        self.notify(message or error.what, title=title, severity="error", timeout=12, markup=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Report and log a defect of cockpit in a worker; the UI keeps running."""
        error = event.worker.error
        if event.state is WorkerState.ERROR and error is not None:
            log.error("worker %s failed", event.worker.name, exc_info=error)
            what = f"{type(error).__name__}: {error}"
            if event.worker.name == "connect":
                self.failure = CockpitError("Could not connect.", what)
            self.trouble(CockpitError(f"A bug in cockpit ({event.worker.name}).", what))

    def notify_recovery(self, measured: Recovery) -> None:
        from cockpit.insight.recovery.text import LOST, below_outcome, outcome

        self.notify(
            below_outcome(measured),
            title=outcome(measured),
            severity="error" if outcome(measured) == LOST else "information",
            timeout=10,
            markup=False,
        )

    def ring(self, text: str) -> None:
        """Ring the terminal's bell, and show the text as a notification of the desktop."""
        self.bell()
        if self._driver is not None and not self.is_headless:
            self._driver.write(notification(text, os.environ))

    def is_new(self, where: str, error: Exception) -> bool:
        """Report a defect of cockpit once; the application keeps running."""
        what = f"{type(error).__name__}: {error}"
        if (where, what) in self._faults:
            return False
        self._faults.add((where, what))
        self.trouble(CockpitError(f"A bug in cockpit ({where}).", what))
        return True

    @contextmanager
    def lend_terminal(self) -> Iterator[None]:
        """Give the terminal to another program; nothing is painted over it.

        `suspend` deadlocks when something is painted at the same time, hence the batch.
        """
        self.lent = True
        try:
            with self.batch_update(), self.suspend():
                yield
        finally:
            self.lent = False

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:
        """As Textual's, which copies all bindings of the screen to find the few with priority."""
        nodes = (self.focused or self.screen).ancestors_with_self if priority else ()
        found = (each for node in nodes for each in node._bindings.key_to_bindings.get(key, ()))
        if priority and not any(each.priority for each in found):
            return False
        return await super()._check_bindings(key, priority)

    def leave(self) -> None:
        self.exit(ExitCode.DONE, return_code=self.failure.code if self.failure else 0)

    def mark(self, text: str = "") -> None:
        if self.session is not None:
            from cockpit.model.event import Marked

            number = len(self.store.marks) + 1
            marked = Marked(at_s=self.now_s, source="user", text=text or f"mark {number}")
            self.session.dispatch(marked)
            self.notify(f"Marked this moment: {marked.text}", timeout=3, markup=False)

    def next_theme(self) -> None:
        names = [name for name in self.available_themes if not name.startswith("textual")]
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]
        self.redraw()

    def save_screen(self) -> None:
        from cockpit.config import paths
        from cockpit.tui.terminal import screenshot

        try:
            where = screenshot.save(self, Path.cwd(), paths.state_dir())
        except OSError as error:
            self.trouble(CockpitError("The UI could not be saved.", str(error)))
        else:
            self.notify(f"{where}.svg\n{where}.txt", title="UI saved", markup=False)
