"""The messages between the replicas and the server of their quorum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from training.connection import Address
from training.replicas.membership import Decision, Heal, Lost, Quorum


@dataclass(frozen=True, slots=True)
class QuorumAddress:
    """Of a `QuorumServer`."""

    server: Address
    store_port: int
    """Of torch's store on the same host, in which the members of a quorum find each other."""


@dataclass(frozen=True, slots=True)
class Join:
    replica: int
    address: str


@dataclass(frozen=True, slots=True)
class Vote:
    number: int
    step: int
    ok: bool
    final: bool = False
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """This replica cannot train."""

    result: Mapping[str, Any]


Message = Join | Vote | Refuse | Decision | Lost
_KINDS = {kind.__name__: kind for kind in (Join, Vote, Refuse, Decision, Lost)}


def encode(message: Message) -> dict[str, Any]:
    """For `connection.send`."""
    return {"kind": type(message).__name__, **asdict(message)}


def decode(raw: Mapping[str, Any]) -> Message:
    """Raises ValueError, KeyError or TypeError for what is no message."""
    fields = {name: value for name, value in raw.items() if name != "kind"}
    kind = _KINDS[raw["kind"]]
    if kind is Decision:
        fields["quorum"] = _quorum(fields["quorum"])
    found: Message = kind(**fields)
    return found


def _quorum(raw: Mapping[str, Any]) -> Quorum:
    return Quorum(
        int(raw["number"]),
        int(raw["step"]),
        tuple(tuple(int(replica) for replica in members) for members in raw["rounds"]),
        tuple(Heal(**heal) for heal in raw["heals"]),
    )
