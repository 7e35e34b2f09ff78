"""A log of a run, and a row of the merged logs."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from cockpit.format import inflected


class Kind(StrEnum):
    """What writes a log."""

    RANK = "rank"
    DRIVER = "driver"
    CONTROLLER = "controller"
    RAYLET = "raylet"
    GCS = "gcs"
    POD = "pod"

    @property
    def is_application(self) -> bool:
        """Whether its errors are of the run. Ray's own processes log errors in healthy runs."""
        return self in (Kind.RANK, Kind.DRIVER, Kind.CONTROLLER)


class Log(Struct, frozen=True):
    kind: Kind
    name: str
    """Unique in the run: `rank 3`, `driver`, `raylet 10.0.0.4`."""
    rank: int | None = None


class Row(Struct, frozen=True):
    """A line of one log, or an equal line of several logs folded into one."""

    at_s: float | None
    """None where neither the line nor one before it in its log has a time."""
    text: str
    level: str
    """`bad`, `warning` or nothing."""
    logs: tuple[Log, ...]
    count: int = 1
    """How many lines it represents."""
    first_error: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({log.rank for log in self.logs if log.rank is not None}))

    @property
    def writers(self) -> str:
        """`ranks 0-3, 7, driver`."""
        if len(self.logs) == 1 and (rank := self.logs[0].rank) is not None:
            return f"rank {rank}"
        ranks = self.ranks
        others = sorted(log.name for log in self.logs if log.rank is None)
        named = [f"{inflected(len(ranks), 'rank')} {ranges(ranks)}"] if ranks else []
        return ", ".join(named + others)


def ranges(numbers: tuple[int, ...]) -> str:
    """Sorted numbers with each sequence as its ends: `0-3, 7`."""
    parts: list[str] = []
    start = 0
    for at, number in enumerate(numbers):
        if at + 1 == len(numbers) or numbers[at + 1] != number + 1:
            parts.append(str(number) if at == start else f"{numbers[start]}-{number}")
            start = at + 1
    return ", ".join(parts)
