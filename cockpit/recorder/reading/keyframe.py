"""A store kept as it is at a moment, to come back to.

What is frozen is shared, and curves are kept as bookmarks in arrays that only grow, so that a
keyframe of 1,000 ranks costs 2 MB and not 70.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cockpit.store.series import Bookmark, Curves, Series
from cockpit.store.store import Store


@dataclass(frozen=True, slots=True)
class Keyframe:
    at_s: float
    kept: Any

    @classmethod
    def of(cls, at_s: float, store: Store) -> Keyframe:
        return cls(at_s, _kept(store))

    def restore(self, store: Store) -> None:
        """Make `store` what it was, in place: views hold on to it."""
        was = _made(self.kept)
        for item in dataclasses.fields(Store):
            if item.name != "version":
                setattr(store, item.name, getattr(was, item.name))
        store.version += 1  # whoever has drawn a version has not drawn this

    def arrays(self) -> dict[int, int]:
        """The size in bytes of each array that it keeps alive, by identity; many are shared."""
        found: dict[int, int] = {}
        _gather(self.kept, found)
        return found


def bytes_of(frames: Iterable[Keyframe]) -> int:
    """What they keep alive together."""
    found: dict[int, int] = {}
    for frame in frames:
        _gather(frame.kept, found)
    return sum(found.values())


@dataclass(frozen=True, slots=True)
class _Object:
    kind: type[Any]
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Curves:
    marks: tuple[int, dict[str, Bookmark]]


_PLANS: dict[type[Any], tuple[str, ...]] = {}


def _fields(kind: type[Any]) -> tuple[str, ...] | None:
    """Of a dataclass that can change; None of anything else."""
    found = _PLANS.get(kind)
    if found is None:
        settings = getattr(kind, "__dataclass_params__", None)
        if settings is None or settings.frozen:
            return None
        found = _PLANS[kind] = tuple(item.name for item in dataclasses.fields(kind))
    return found


def _kept(value: Any) -> Any:
    if isinstance(value, Curves):
        return _Curves(value.bookmarks())
    if isinstance(value, Series):
        return value.bookmark()
    if isinstance(value, dict):
        return {key: _kept(item) for key, item in value.items()}
    if isinstance(value, (deque, list, set)):
        # Their items are frozen, or done with.
        return value.copy()
    names = _fields(type(value))
    if names is None:
        return value
    return _Object(type(value), tuple(_kept(getattr(value, name)) for name in names))


def _gather(kept: Any, found: dict[int, int]) -> None:
    if isinstance(kept, Bookmark):
        for points in (kept.times, kept.values):
            found[id(points)] = len(points) * points.itemsize
    elif isinstance(kept, _Curves):
        for mark in kept.marks[1].values():
            _gather(mark, found)
    elif isinstance(kept, dict):
        for item in kept.values():
            _gather(item, found)
    elif isinstance(kept, _Object):
        for item in kept.values:
            _gather(item, found)


def _made(kept: Any) -> Any:
    if isinstance(kept, _Curves):
        return Curves.at(kept.marks)
    if isinstance(kept, Bookmark):
        return Series.at(kept)
    if isinstance(kept, dict):
        return {key: _made(item) for key, item in kept.items()}
    if isinstance(kept, (deque, list, set)):
        return kept.copy()
    if not isinstance(kept, _Object):
        return kept
    made = object.__new__(kept.kind)
    for name, item in zip(_PLANS[kept.kind], kept.values, strict=True):
        setattr(made, name, _made(item))
    return made
