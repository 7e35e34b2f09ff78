"""What the UI keeps between its starts: commands, clusters, filters and columns.

A file of the state directory, which is replaced as a whole. It holds no more than the user typed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from cockpit.config import paths
from cockpit.model.cluster import ClusterRef

MOST_COMMANDS = 100
MOST_RECENT = 10

log = logging.getLogger(__name__)


class Remembered(Struct, frozen=True):
    commands: tuple[str, ...] = ()
    """Typed after `:`, the newest last."""
    recent: tuple[ClusterRef, ...] = ()
    """Opened clusters, the newest first."""
    favorites: tuple[ClusterRef, ...] = ()
    filters: dict[str, dict[str, str]] = field(default_factory=dict)
    """By view and name."""
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The chosen columns in their order, by `VIEW/TABLE`."""

    def with_command(self, line: str) -> Remembered:
        others = (one for one in self.commands if one != line)
        return msgspec.structs.replace(self, commands=(*others, line)[-MOST_COMMANDS:])

    def with_cluster(self, ref: ClusterRef) -> Remembered:
        others = (one for one in self.recent if one != ref)
        return msgspec.structs.replace(self, recent=(ref, *others)[:MOST_RECENT])

    def with_favorite(self, ref: ClusterRef) -> Remembered:
        """The cluster as a favorite, or no longer as one."""
        others = tuple(one for one in self.favorites if one != ref)
        found = others if ref in self.favorites else (*others, ref)
        return msgspec.structs.replace(self, favorites=found)

    def with_filter(self, view: str, name: str, text: str) -> Remembered:
        """An empty text removes the filter."""
        found = {key: dict(filters) for key, filters in self.filters.items()}
        found.setdefault(view, {})[name] = text
        if not text:
            del found[view][name]
        return msgspec.structs.replace(self, filters=found)

    def with_columns(self, table: str, keys: tuple[str, ...]) -> Remembered:
        """No keys: all columns again."""
        found = {name: chosen for name, chosen in self.columns.items() if name != table}
        return msgspec.structs.replace(self, columns=found | ({table: keys} if keys else {}))


class Memory:
    """The file. Another UI may change it, so that it is read again before each change."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or paths.state_dir() / "ui.json"
        self._is_unwritten = False
        """The last change is not in the file."""
        self.now = self._read() or Remembered()
        """What is remembered now."""

    def change(self, change: Callable[[Remembered], Remembered]) -> None:
        """Change it, and write it. Raises OSError where it cannot be written."""
        before = None if self._is_unwritten else self._read()
        self.now, self._is_unwritten = change(before or self.now), True
        paths.make_private(self._path.parent)
        paths.replace_file(self._path, msgspec.json.encode(self.now))
        self._is_unwritten = False

    def _read(self) -> Remembered | None:
        """None where it cannot be read."""
        try:
            return _decoded(self._path.read_bytes())
        except FileNotFoundError:
            return Remembered()
        except (OSError, msgspec.DecodeError) as error:
            log.warning("%s is not readable: %s", self._path, error)
            return None


def _decoded(data: bytes) -> Remembered:
    """Of a file of another version, the fields that are the same in this one."""
    try:
        return msgspec.json.decode(data, type=Remembered)
    except msgspec.ValidationError as error:
        raw = msgspec.json.decode(data)
        if not isinstance(raw, dict):
            raise
        log.warning("not all that was remembered is readable: %s", error)
    kept: dict[str, Any] = {}
    for one in msgspec.structs.fields(Remembered):
        with suppress(msgspec.ValidationError, KeyError):
            kept[one.name] = msgspec.convert(raw[one.encode_name], one.type)
    return Remembered(**kept)
