"""The server of a quorum: one for a run, next to Ray Train's controller.

A replica is connected for as long as its process lives: the kernel closes the connection of a
killed process at once, and keep-alive probes detect a lost host.
"""

from __future__ import annotations

import itertools
import logging
import socket
import threading
from collections.abc import Callable
from types import TracebackType

from torch._C._distributed_c10d import TCPStore

from training.replicas.membership import Decision, Lost, Member, Membership, Quorum
from training.replicas.messages import Join, Refuse, Vote, decode, encode

log = logging.getLogger(__name__)

CHECK_EVERY_S = 0.5
KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3))
"""A host that does not answer is lost after 5 s."""


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
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        self._listener = socket.create_server(("", 0), backlog=replicas + 8)
        self.address = f"{host}:{self._listener.getsockname()[1]}:{self._store.port}"
        """For `QuorumClient`."""
        for act in (self._accept, self._check):
            threading.Thread(target=act, name="quorum", daemon=True).start()

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
        self._end.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in list(self._connections):
                self.close(connection)

    def send(self, connection: int, message: Decision | Lost) -> None:
        """A failure is that of the connection, whose reader notices it."""
        found = self._connections.get(connection)
        if found is None:
            return
        try:
            found.sendall(encode(message))
        except OSError:
            log.debug("quorum: connection %s is closed", connection, exc_info=True)

    def close(self, connection: int) -> None:
        found = self._connections.pop(connection, None)
        if found is not None:
            try:
                found.shutdown(socket.SHUT_RDWR)
            except OSError:
                log.debug("quorum: connection %s is closed", connection, exc_info=True)

    def _accept(self) -> None:
        while not self._end.is_set():
            try:
                found, _ = self._listener.accept()
            except OSError:
                return  # stopped
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, value in KEEP_ALIVE:
                found.setsockopt(socket.IPPROTO_TCP, option, value)
            number = next(self._numbers)
            with self._lock:
                self._connections[number] = found
            threading.Thread(
                target=self._read, args=(number, found), name="quorum", daemon=True
            ).start()

    def _read(self, connection: int, found: socket.socket) -> None:
        try:
            with found, found.makefile("rb") as lines:
                for line in lines:
                    self._take(connection, line)
        except (OSError, ValueError, KeyError, TypeError):
            log.debug("quorum: connection %s has ended", connection, exc_info=True)
        finally:
            with self._lock:
                self._connections.pop(connection, None)
                self._membership.leave(connection)

    def _take(self, connection: int, line: bytes) -> None:
        message = decode(line)
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
        while not self._end.wait(CHECK_EVERY_S):
            with self._lock:
                self._membership.expire()
