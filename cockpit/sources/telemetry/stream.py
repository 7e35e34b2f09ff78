"""What is known of one driver's telemetry stream while it is read."""

from __future__ import annotations

import asyncio

from msgspec import Struct, field

from cockpit.sources.telemetry.records import Progress
from training.telemetry.names import file_name


class Stream(Struct):
    """The files of one driver, being read."""

    node_id: str
    ray_id: str
    """The Ray job that writes it; empty if it is not in the name."""
    found_s: float
    """By the monotonic clock."""
    files: dict[int, str] = field(default_factory=dict)
    """The known files: by number, the name."""
    at: int = 0
    """The number of the file that is read."""
    progress: Progress = field(default_factory=Progress)
    running: set[str] = field(default_factory=set)
    """Runs in it that have not ended."""
    error: str = ""
    read: asyncio.Event = field(default_factory=asyncio.Event)
    """Its contents at discovery have been read, or have failed to be read."""
    done: bool = False
    lost: bool = False
    """It, or its node, is not there; should it be listed again, it is read on."""

    @property
    def name(self) -> str:
        """Of the file that is read."""
        return self.files.get(self.at) or file_name(self.ray_id, self.at)

    @property
    def next(self) -> int | None:
        """The next file in the row."""
        return min((number for number in self.files if number > self.at), default=None)

    def listed(self, files: dict[int, str]) -> None:
        if self.lost and self.at not in files and not any(n > self.at for n in files):
            self.at, self.progress = min(files), Progress()  # created again under the old name
        self.files = files

    def announced(self) -> bool:
        """Whether the stream announces that it continues in another file."""
        number = self.progress.next_segment
        if number != self.at + 1 or not self.ray_id:
            return False
        self.files.setdefault(number, file_name(self.ray_id, number))
        return True
