"""The process that owns the shards of one node, and outlives the ranks.

Ranks of the node write into its memory, which it shares with them. It computes the digest of each
shard, sends it to the holder of another node, and serves it to ranks that resume.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from training import connection
from training.checkpoint.memory.digest import digest
from training.checkpoint.memory.slots import Entry, Slot, Slots
from training.connection import Address, Listener, NoAnswer
from training.free_memory import free_bytes

IDLE_S = 24 * 3600.0
"""A connection that is admitted may be idle while the training evaluates."""
STORE_S = 20.0
"""How long a peer may take to receive or send more of a shard."""


class Holder:
    def __init__(self, node: str, host: str, token: bytes) -> None:
        """`host`: the address of this node for other nodes."""
        self._slots = Slots()
        self._token = token
        local = f"training-checkpoints-{secrets.token_hex(8)}"
        tcp = connection.on_host(host)
        self.address = Address(host, tcp.getsockname()[1], token, local, node)
        self._listeners = [
            Listener(listening, token, self._serve, "checkpoints in memory")
            for listening in (tcp, connection.on_node(local))
        ]

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()

    def _serve(self, link: socket.socket) -> None:
        link.settimeout(IDLE_S)
        while True:
            self._answer(link, connection.receive(link))

    def _answer(self, link: socket.socket, message: dict[str, Any]) -> None:
        match message["op"]:
            case "write":
                _Writing(link, message, self._slots, self._token).serve()
            case "store":
                self._store(link, message)
            case "entries":
                found = [asdict(entry) for entry in self._slots.entries()]
                connection.send(link, {"entries": found})
            case "fetch":
                self._fetch(link, message)
            case "keep":
                self._slots.keep(int(message["attempt"]), int(message["step"]))
                connection.send(link, {})
            case other:
                raise ValueError(f"{other} is no request")

    def _store(self, link: socket.socket, message: dict[str, Any]) -> None:
        """A shard of a rank on another node."""
        entry, size_bytes = Entry(**message["entry"]), int(message["size_bytes"])
        slot = self._slots.begin(entry.attempt, entry.rank, size_bytes)
        link.settimeout(STORE_S)
        with memoryview(slot.memory) as memory, memory[:size_bytes] as part:
            connection.receive_into(link, part)
        link.settimeout(IDLE_S)
        slot.entry = entry
        connection.send(link, {"stored": entry.step})

    def _fetch(self, link: socket.socket, message: dict[str, Any]) -> None:
        asked = (int(message["attempt"]), int(message["step"]), int(message["rank"]))
        found = self._slots.find(*asked)
        if found is None:
            connection.send(link, {"size_bytes": 0})
            return
        slot, entry = found
        connection.send_file(link, {"entry": asdict(entry)}, slot.file, entry.size_bytes)


class _Writing:
    """The connection of one rank of this node for its attempt."""

    def __init__(
        self, link: socket.socket, message: dict[str, Any], slots: Slots, token: bytes
    ) -> None:
        self._link, self._slots = link, slots
        self._attempt, self._rank = int(message["attempt"]), int(message["rank"])
        self._world_size = int(message["world_size"])
        peer = message["peer"]
        self._peer = peer and Address(peer["host"], int(peer["port"]), token)
        self._sent = list[Slot]()
        """The slots that the rank has mapped, by the number that it knows them by."""

    def serve(self) -> None:
        with ExitStack() as held:
            try:
                to_peer = (
                    None
                    if self._peer is None
                    else held.enter_context(connection.connected(self._peer))
                )
            except OSError as error:
                assert self._peer is not None
                connection.send(self._link, {"why": f"{self._peer.host} does not answer: {error}"})
                return
            # What the holder has is used again, and counts as free.
            connection.send(self._link, {"free": free_bytes() + self._slots.size_bytes})
            while True:
                message = connection.receive(self._link)
                if message["op"] != "begin":
                    raise ValueError(f"{message['op']} before a slot was begun")
                slot = self._begin(int(message["size_bytes"]))
                if slot is None:
                    return
                message = connection.receive(self._link)
                if message["op"] != "commit":
                    raise ValueError(f"{message['op']} before the slot was written")
                answer = self._commit(slot, message, to_peer)
                connection.send(self._link, answer)
                if answer:
                    return

    def _begin(self, size_bytes: int) -> Slot | None:
        try:
            slot = self._slots.begin(self._attempt, self._rank, size_bytes)
        except OSError as error:
            why = f"no memory for {size_bytes:,} bytes: {error.strerror}"
            connection.send(self._link, {"why": why})
            return None
        known = next((at for at, sent in enumerate(self._sent) if sent is slot), None)
        if known is not None:
            connection.send(self._link, {"slot": known})
            return slot
        self._sent.append(slot)
        message = {"slot": len(self._sent) - 1, "capacity": slot.capacity}
        connection.send_with_descriptor(self._link, message, slot.file.fileno())
        return slot

    def _commit(
        self, slot: Slot, message: dict[str, Any], to_peer: socket.socket | None
    ) -> dict[str, Any]:
        """Complete the shard here and on the peer. Returns {}, or why the peer does not have it."""
        size_bytes = int(message["size_bytes"])
        with memoryview(slot.memory) as memory, memory[:size_bytes] as part:
            written = digest(part)
        entry = Entry(
            self._attempt, int(message["step"]), self._rank, self._world_size, size_bytes, written
        )
        slot.entry = entry
        if to_peer is None:
            return {}
        assert self._peer is not None
        try:
            to_peer.settimeout(STORE_S)
            connection.send_file(
                to_peer, {"op": "store", "entry": asdict(entry)}, slot.file, size_bytes
            )
            if connection.receive(to_peer).get("stored") != entry.step:
                raise NoAnswer("it stored another step")
        except OSError as error:
            return {"why": f"{self._peer.host} did not store a copy: {error}"}
        return {}
