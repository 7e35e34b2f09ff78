"""The files that a search writes beside its trials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SEARCH, BEST = "search.json", "best.json"


@dataclass(frozen=True)
class Folder:
    place: str
    """A path or an object store's address."""

    def write(self, name: str, data: Mapping[str, Any]) -> str:
        """Returns the address of the file."""
        filesystem, path = self._open()
        filesystem.create_dir(path)
        with filesystem.open_output_stream(f"{path}/{name}") as stream:
            stream.write((json.dumps(data, indent=1) + "\n").encode())
        return f"{self.place}/{name}"

    def read(self, name: str) -> dict[str, Any]:
        """Empty if there is none."""
        filesystem, path = self._open()
        if not filesystem.get_file_info(f"{path}/{name}").is_file:
            return {}
        with filesystem.open_input_stream(f"{path}/{name}") as stream:
            data: dict[str, Any] = json.loads(stream.read())
        return data

    def _open(self) -> tuple[Any, str]:
        from pyarrow.fs import FileSystem  # type: ignore[import-untyped]

        filesystem, path = FileSystem.from_uri(self.place)
        return filesystem, path


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How a resumed search differs from its start, as text; '' if it does not."""
    other = [name for name in now if name in before and before[name] != now[name]]
    return "; ".join(f"{name} was {before[name]!r} and is {now[name]!r}" for name in other)
