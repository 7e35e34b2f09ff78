"""Separate namespaces (mounts, network, processes), so that everything ends with one process.

The first process in them is `pause`: when it ends, the kernel kills all others, and removes mounts,
interfaces, routes and packet rules of the namespaces. Outside of them are one folder, one control
group in each hierarchy, and one end of a pair of network devices, which is removed with the other
end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.child_process import die_with_parent, only_child
from tests.cluster.build import program
from tests.cluster.leftovers import (
    LINK,
    PREFIX,
    Owner,
    Record,
    alone,
    clear,
    folders,
    make_groups,
    remove,
)

SPACES = 64


@dataclass(slots=True)
class Space:
    """`open` makes one. `address` is that of everything inside, as the host reaches it."""

    folder: Path
    record: Record
    holder: subprocess.Popen[bytes] | None = None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"10.231.{self.number}.2"

    @property
    def host(self) -> str:
        """The host's address, as everything inside reaches it."""
        return f"10.231.{self.number}.1"

    @property
    def number(self) -> int:
        return self.record.number

    @property
    def pid(self) -> int:
        """Of the first process, as the host counts."""
        return self.record.first.pid

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def group(self) -> str:
        """The name of its control group, in each hierarchy."""
        return self.record.first.group

    @classmethod
    def open(cls, *, keep: bool = False) -> Space:
        """Open a new, empty space.

        With `keep` it outlives this process, else it ends with the thread that opened it.

        Leftovers of spaces whose owner has ended are removed first.
        """
        with alone():
            clear()
            space = cls._begin(keep)
            try:
                space._prepare()
            except BaseException:
                space._end()
                remove(space.folder, space.record)
                raise
        return space

    @classmethod
    def at(cls, folder: Path) -> Space:
        """The one of this folder, which runs already."""
        record = Record.read(folder)
        if record is None:
            raise RuntimeError(f"{folder} is not the folder of a space")
        return cls(folder, record)

    @classmethod
    def _begin(cls, keep: bool) -> Space:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        argv = [
            *("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=KILL"),
            *("--mount-proc", "--propagation", "private", str(program("pause"))),
        ]
        holder = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=None if keep else die_with_parent,
            start_new_session=keep,
        )
        first = Owner.of(only_child(holder.pid))
        owner = first if keep else Owner.of(os.getpid())
        record = Record(_free_number(), first, owner, keep)
        record.write(folder)
        return cls(folder, record, holder)

    def _prepare(self) -> None:
        host, inside = self.host, self.address
        link = f"{LINK}{self.number}"
        for change in (
            f"link add {link} type veth peer name eth0 netns {self.pid}",
            f"link set {link} alias {self.group}",
            f"address add {host}/30 dev {link}",
            f"link set {link} up",
        ):
            subprocess.run(["ip", *change.split()], check=True)
        for name in ("var", "var-work"):
            (self.folder / name).mkdir()
        # Nothing inside reaches beyond the host, and attempts fail at once.
        self.run(
            "sh",
            "-ec",
            f"""
            ip link set lo up
            ip address add {inside}/30 dev eth0
            ip link set eth0 up
            ip route add unreachable default
            echo 1 > /proc/sys/net/ipv4/ip_forward
            mount -t tmpfs -o mode=755 tmpfs /run
            mount -t overlay overlay /var \\
              -o lowerdir=/var,upperdir={self.folder}/var,workdir={self.folder}/var-work
            """,
        )
        make_groups(self.group)

    def enter(self, *argv: str | Path) -> list[str]:
        """The command line that runs `argv` inside."""
        return ["nsenter", "-t", str(self.pid), "-m", "-n", "-p", "--", *map(str, argv)]

    def run(self, *argv: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run it inside to its end."""
        done = subprocess.run(
            self.enter(*argv), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        if check and done.returncode:
            raise RuntimeError(f"{argv[0]} inside {self.name}: {done.stderr or done.stdout}")
        return done

    def start(
        self, name: str, argv: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a background process inside; its output is written to `logs/NAME.log`."""
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self.enter(*argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(environment or {}),
                cwd="/",
                start_new_session=True,
            )

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End one of the lasting processes, and wait for it."""
        process = self.processes.pop(name)
        os.kill(only_child(process.pid), number)
        process.wait(timeout=30)

    def alive(self, name: str) -> bool:
        return name in self.processes and self.processes[name].poll() is None

    def ended(self) -> str:
        """The end of the log of failed background processes; empty when all run."""
        removed = [name for name in self.processes if not self.alive(name)]
        return "\n".join(f"{name} ended:\n{self.said(name)}" for name in removed)

    def said(self, name: str, lines: int = 15) -> str:
        """The end of a process's output."""
        log = self.folder / "logs" / f"{name}.log"
        text = log.read_text(errors="replace") if log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def close(self) -> None:
        """End everything inside and remove what is outside."""
        self._end()
        with alone():
            remove(self.folder, self.record)

    def _end(self) -> None:
        if self.record.first.alive:
            os.kill(self.pid, signal.SIGKILL)
        if self.holder is not None:
            self.holder.wait(timeout=30)
        for process in self.processes.values():
            process.wait(timeout=30)


def kept() -> list[Space]:
    """The spaces that were opened with `keep` and still run."""
    known = [Space.at(folder) for folder in folders() if Record.read(folder)]
    return [space for space in known if space.record.keep and space.record.first.alive]


def _free_number() -> int:
    for number in range(SPACES):
        if not Path(f"/sys/class/net/{LINK}{number}").exists():
            return number
    raise RuntimeError(f"all {SPACES} network devices {LINK}N are in use")
