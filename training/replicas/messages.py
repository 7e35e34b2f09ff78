"""The messages between the replicas and the server of their quorum: one line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from training.replicas.membership import Decision, Heal, Lost, Quorum


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


def encode(message: Message) -> bytes:
    line = {"kind": type(message).__name__, **asdict(message)}
    return json.dumps(line).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Raises ValueError, KeyError or TypeError for a line that is no message."""
    raw = json.loads(line)
    kind = _KINDS[raw.pop("kind")]
    if kind is Decision:
        raw["quorum"] = _quorum(raw["quorum"])
    found: Message = kind(**raw)
    return found


def _quorum(raw: Mapping[str, Any]) -> Quorum:
    return Quorum(
        int(raw["number"]),
        int(raw["step"]),
        tuple(tuple(int(replica) for replica in members) for members in raw["rounds"]),
        tuple(Heal(**heal) for heal in raw["heals"]),
    )
