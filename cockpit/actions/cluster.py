"""Change a cluster, from a key or a verb, with a line in the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from cockpit.actions.audited import AuditedActions
from cockpit.backends.protocol import Change, ExecResult, Scaled, Terminal
from cockpit.model.scale import ScaleRequest
from cockpit.sources.ray.profiling import Process, RayTools

if TYPE_CHECKING:
    from cockpit.sources.ray.flamegraph import Profile

T = TypeVar("T")
SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash || exec sh")
"""The command of an interactive shell in a pod."""


class ClusterActions(AuditedActions):
    """Scale, suspend and cordon; run commands in pods, inspect processes, read objects."""

    async def scale(self, request: ScaleRequest) -> Scaled:
        group, numbers = request.group, [("replicas", request.replicas)]
        limits = [("min", request.min_replicas), ("max", request.max_replicas)]
        wanted = ", ".join(f"{n} {number}" for n, number in numbers + limits if number is not None)
        with self._audited(self._of_cluster("scale", after=f"{group}: {wanted}")):
            done = await self._backend.scale(request)
        without = f" without {', '.join(request.remove)}" if request.remove else ""
        bounds = "".join(f", {name} {number}" for name, number in limits if number is not None)
        after = f"{group}: {done.after}{bounds}{without}"
        await self._done(self._of_cluster("scale", f"{group}: {done.before}", after))
        return done

    async def suspend(self, suspended: bool, *, uid: str = "") -> None:
        """Remove all pods of the cluster, or create them again; `uid` as in `ScaleRequest`."""
        before_after = ("running", "suspended") if suspended else ("suspended", "running")
        change = self._of_cluster("suspend" if suspended else "unsuspend", *before_after)
        with self._audited(change):
            await self._backend.suspend(suspended, uid=uid)
        await self._done(change)

    async def cordon(self, node: str, cordoned: bool, *, uid: str = "") -> None:
        """Keep new pods off a node, or let them on again; `uid` as in `ScaleRequest`."""
        before_after = ("schedulable", "cordoned") if cordoned else ("cordoned", "schedulable")
        change = Change("cordon" if cordoned else "uncordon", "Node", node, *before_after)
        with self._audited(change):
            await self._backend.cordon(node, cordoned, uid=uid)
        await self._done(change)

    async def exec(self, pod: str, argv: Sequence[str]) -> ExecResult:
        """Run a command in a pod and wait for its end."""
        change = Change("exec", "Pod", pod, after=argv[0])
        with self._audited(change):
            done = await self._backend.exec(pod, argv)
        self._write(change)
        return done

    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        """The same with its streams open. Only the program is recorded: its arguments may hold
        secrets.
        """
        change = Change("exec", "Pod", pod, after=argv[0])
        with self._audited(change):
            terminal = await self._backend.attach(pod, argv, tty=tty, rows=rows, columns=columns)
        self._write(change)
        return terminal

    async def stack(self, process: Process, *, native: bool = False) -> str:
        """The stack of each thread of a rank's process; as for `RayTools.stack`."""
        return await self._inspect(
            "stack", process, lambda tools: tools.stack(process, native=native)
        )

    async def cpu_profile(
        self, process: Process, seconds: int, *, idle: bool = False, native: bool = False
    ) -> Profile:
        return await self._inspect(
            "profile",
            process,
            lambda tools: tools.cpu_profile(process, seconds, idle=idle, native=native),
        )

    async def memory_profile(self, process: Process, seconds: int) -> bytes:
        return await self._inspect(
            "memory profile", process, lambda tools: tools.memory_profile(process, seconds)
        )

    async def _inspect(
        self, action: str, process: Process, use: Callable[[RayTools], Awaitable[T]]
    ) -> T:
        """Each of these tools pauses or slows the live process, so it is in the audit log."""
        change = Change(action, "Process", str(process))
        with self._audited(change):
            async with RayTools(self._backend.dashboard) as tools:
                found = await use(tools)
        self._write(change)
        return found

    async def manifest(self, kind: str, name: str) -> str:
        """The object as YAML. It is only read: allowed in read-only mode, and not in the log."""
        return await self._backend.manifest(kind, name)

    async def describe(self, kind: str, name: str) -> str:
        """The object and its events as text; otherwise as `manifest`."""
        return await self._backend.describe(kind, name)
