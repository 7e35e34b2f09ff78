"""The traces of a test cluster on the machine, to check that it was removed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.leftovers import LINK, hierarchies, start_of
from tests.cluster.space import Space

END_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Traces:
    """Of one space, taken while it runs."""

    folder: Path
    link: str
    group: str
    namespaces: tuple[str, ...]

    @classmethod
    def of(cls, space: Space) -> Traces:
        kinds = ("net", "mnt", "pid")
        own = tuple(str(Path(f"/proc/{space.pid}/ns/{kind}").readlink()) for kind in kinds)
        return cls(space.folder, f"{LINK}{space.number}", space.group, own)

    def seen(self) -> list[str]:
        """All current traces, as text."""
        found = [f"process {pid}" for pid in self.processes()]
        found += [f"mount {line}" for line in _lines("/proc/mounts") if str(self.folder) in line]
        found += [f"group {path}" for path in self._groups() if path.exists()]
        if self.folder.exists():
            found.append(f"folder {self.folder}")
        if Path("/sys/class/net", self.link).exists():
            found.append(f"device {self.link}")
        return found

    def processes(self) -> list[int]:
        """Processes in its namespaces. A zombie that waits for its parent has ended."""
        return _processes(self.namespaces)

    def wait_until_ended(self) -> None:
        """Wait for its processes: the kernel kills those of a namespace one after the other."""
        deadline = time.monotonic() + END_TIMEOUT_S
        while running := self.processes():
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes of the space run on: {running}")
            time.sleep(0.05)

    def _groups(self) -> list[Path]:
        return [hierarchy / self.group for hierarchy in hierarchies()]


def _processes(namespaces: tuple[str, ...]) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/ns/*"):
        try:
            pid = int(entry.parts[2])
            if str(entry.readlink()) in namespaces and start_of(pid):
                found.append(pid)
        except OSError:  # it has just ended
            continue
    return sorted(set(found))


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
