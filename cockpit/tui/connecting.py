"""Connect to a cluster, and switch to another, while the UI keeps running."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual import work

from cockpit.model.error import CockpitError
from cockpit.sources.polling.thread import in_thread
from cockpit.tui.app_base import AppBase
from cockpit.tui.changes.actions import Connect, Connection, Quit
from cockpit.tui.keys import shown_key

if TYPE_CHECKING:
    from cockpit.model.cluster import ClusterPattern, ClusterRef


log = logging.getLogger(__name__)


class Connecting(AppBase):
    """An application that connects after its first paint, and can switch clusters later."""

    def __init__(
        self,
        connect: Connect,
        *,
        read_only: bool = False,
        protected: Sequence[ClusterPattern] = (),
    ) -> None:
        super().__init__(read_only=read_only, protected=protected)
        self.connect = connect
        self.progress: list[str] = []
        self.switching: ClusterRef | None = None
        """The cluster to which it connects."""
        self.route = ""
        """How the dashboard is reached; empty until it is known."""
        self._ray_was_ok = False

    def show_step(self, line: str) -> None:
        """One line of a start. Raises Quit once the user has left."""
        if not self.is_running:
            raise Quit
        self.progress.append(line)

    @work(thread=True, exit_on_error=False, name="connect")
    def start(self) -> None:
        try:
            connection = self.connect(self.show_step)
        except CockpitError as error:
            log.warning("cannot connect: %s", error)
            self.failure = error
            return
        except Quit:
            return
        self.connection = connection
        if self.is_running:
            self.call_from_thread(self.connected)

    @work(exit_on_error=False, name="capabilities")
    async def connected(self, *, switched: bool = False) -> None:
        """Show what there is, then learn what may be done here."""
        await self.show_cluster(switched=switched)
        await self.ask_again()
        await self.offer_undo()

    async def show_cluster(self, *, switched: bool) -> None:
        """The connection is another one: draw from it, and drop the previous one."""
        raise NotImplementedError

    async def offer_undo(self) -> None:
        """Offer to undo what killed cockpit processes have left on this cluster."""
        raise NotImplementedError

    async def ask_again(self) -> None:
        """The capabilities, and the route to the dashboard."""
        session = self.session
        if session is None:
            return
        try:
            found = await self.submit(session.backend.capabilities())
        except CockpitError as error:
            if session is self.session:
                self.trouble(error)
        else:
            if session is self.session:
                self.capabilities = found
        await self._ask_route()

    async def _ask_route(self) -> None:
        session = self.session
        if session is None:
            return
        try:
            via = (await self.submit(session.backend.dashboard())).via
        except CockpitError:
            via = ""  # The source `ray` reports why there is none.
        if session is self.session:
            self.route = via

    def watch_route(self) -> None:
        """A dashboard that answers again may be reached another way now."""
        ray = self.store.sources.get("ray")
        is_ok = ray is not None and ray.ok and not ray.absent
        if is_ok and not self._ray_was_ok:
            self.run_worker(self._ask_route(), name="route", exit_on_error=False)
        self._ray_was_ok = is_ok

    def switch(self, ref: ClusterRef) -> None:
        if self._drills():
            return
        reconnect = self.connection.reconnect if self.connection else None
        if reconnect is None:
            self.trouble(CockpitError("There is no other cluster to switch to."))
            return
        self.switching = ref
        to = reconnect
        self.run_worker(
            self._switch(ref, lambda: to(ref, self.show_step)), name="switch", exit_on_error=False
        )

    def _drills(self) -> bool:
        """Whether a drill runs, which is reported: its measurement and its undo need the
        connection.
        """
        if self.conducting is None:
            return False
        todo = f"Wait for it, or abort it with {shown_key('abort')}."
        self.trouble(CockpitError(f"A drill is running: {self.conducting.name}.", todo=todo))
        return True

    async def _switch(self, ref: ClusterRef, reconnect: Callable[[], Connection]) -> None:
        try:
            made = await in_thread(reconnect, "cockpit-switch")
        except Quit:
            return
        except CockpitError as error:
            if self.switching is ref:
                self.switching = None
                self.progress.clear()
                self.trouble(error)
            return
        except BaseException:
            self.switching = None
            raise
        if self.switching is not ref or not self.is_running:
            # The user has cancelled it, or has quit.
            close = made.session.close if made.session else None
        elif self._drills():  # it has begun since
            self.switching = None
            self.progress.clear()
            close = made.session.close if made.session else None
        else:
            close = await self._take(made)
        if close is not None:
            await in_thread(close, "cockpit-switch")

    async def _take(self, made: Connection) -> Callable[[], None] | None:
        """Show the new connection; returns what ends the session before it."""
        before = self.connection
        assert before is not None
        # A question about the cluster before must not be answered for the next one.
        while len(self.screen_stack) > 1:
            await self.screen.dismiss(None)
        self.connection = replace(
            made,
            fleet=made.fleet or before.fleet,
            reconnect=made.reconnect or before.reconnect,
            ends_with_screen=made.ends_with_screen or before.ends_with_screen,
        )
        self.switching, self.failure = None, None
        self.capabilities, self.route, self._ray_was_ok = {}, "", False
        self.progress.clear()
        self.connected(switched=True)
        return before.session.close if before.session else None
