"""The server of a quorum: one for a run, next to Ray Train's controller.

A replica is connected for as long as its process lives: the kernel closes the connection of a
killed process at once, and a lost host does not acknowledge what the kernel sends: data or
keep-alive probes.
"""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType

from torch._C._distributed_c10d import TCPStore

from training.connection import Address, Listener, keep_alive, new_token, on_host, receive, send
from training.replicas.membership import Decision, Lost, Member, Membership, Quorum
from training.replicas.messages import Join, Message, QuorumAddress, Refuse, Vote, decode, encode

log = logging.getLogger(__name__)

CHECK_EVERY_S = 0.5
LATE_S = 1.0
"""How late a check may be before the server counts as stopped in between."""
LOST_S = 5
"""After that a host that does not answer is lost."""


class QuorumServer:
    def __init__(
        self,
        replicas: int,
        patience_s: float,
        host: str = "127.0.0.1",
        on_change: Callable[[Quorum], None] = lambda quorum: None,
    ) -> None:
        """`patience_s`: how long a member may vote later than another one: more than a step takes.
        `on_change` is called with each new quorum, on a thread of the server."""
        self._membership = Membership(replicas, self, patience_s, on_change)
        self._lock = threading.RLock()
        self._connections: dict[int, socket.socket] = {}
        self._numbers = itertools.count(1)
        self._end = threading.Event()
        # The rendezvous of the replicas' process groups: it outlives each of them.
        # It would listen on all addresses of the host.
        at = socket.create_server((host, 0))
        self._store = TCPStore(
            host,
            at.getsockname()[1],
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=at.detach(),
        )
        listening, token = on_host(host), new_token()
        self.address = QuorumAddress(
            Address(host, listening.getsockname()[1], token), self._store.port
        )
        self._listener = Listener(listening, token, self._serve, "quorum")
        threading.Thread(target=self._check, name="quorum", daemon=True).start()

    def __enter__(self) -> QuorumServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._listener.close()
        with self._lock:
            self._end.set()
            for connection in list(self._connections):
                self.close(connection)

    def send(self, connection: int, message: Decision | Lost) -> None:
        """A failure is that of the connection, whose reader notices it."""
        found = self._connections.get(connection)
        if found is None:
            return
        try:
            send(found, encode(message))
        except OSError:
            log.debug("quorum: connection %s is closed", connection, exc_info=True)

    def close(self, connection: int) -> None:
        found = self._connections.pop(connection, None)
        if found is not None:
            try:
                found.shutdown(socket.SHUT_RDWR)
            except OSError:
                log.debug("quorum: connection %s is closed", connection, exc_info=True)

    def _serve(self, link: socket.socket) -> None:
        link.settimeout(None)
        keep_alive(link, LOST_S)
        # No probe is sent while data is not acknowledged; this limits that, in ms (man 7 tcp).
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1_000 * LOST_S)
        with self._lock:
            if self._end.is_set():
                return
            connection = next(self._numbers)
            self._connections[connection] = link
        try:
            while True:
                self._take(connection, decode(receive(link)))
        finally:
            with self._lock:
                self._connections.pop(connection, None)
                self._membership.leave(connection)

    def _take(self, connection: int, message: Message) -> None:
        with self._lock:
            match message:
                case Join():
                    self._membership.join(Member(message.replica, message.address, connection))
                case Refuse():
                    self._membership.refuse(connection, message.result)
                case Vote():
                    self._membership.vote(
                        connection,
                        message.number,
                        message.step,
                        ok=message.ok,
                        final=message.final,
                        result=message.result,
                    )

    def _check(self) -> None:
        before_s = time.monotonic()
        while not self._end.wait(CHECK_EVERY_S):
            now_s = time.monotonic()
            late_s, before_s = now_s - before_s - CHECK_EVERY_S, now_s
            with self._lock:
                if late_s > LATE_S:
                    self._membership.excuse(late_s)
                self._membership.expire()
