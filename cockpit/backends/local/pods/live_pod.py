"""One pod in the operator's hands: its `ray start`, and what becomes of it."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import string
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from cockpit.backends.local.pods.pod_logs import last_line
from cockpit.backends.local.pods.process import PodTrace, ProcessId, identify
from cockpit.backends.local.spec import HEAD_GROUP
from cockpit.backends.local.state import PodStatus
from cockpit.model.cluster import NodeType, Pod, PodPhase, Resources
from cockpit.model.text import one_line

_NAME_LETTERS = string.ascii_lowercase + string.digits


class LivePod(Struct):
    """Mutable, and the operator's alone; what others see is `status`. Times are Unix seconds."""

    pod: Pod
    resources: Resources
    directory: Path
    log: Path
    start_at_s: float = 0.0
    """Not before: a backoff for groups whose pods end at start."""
    gpus: tuple[str, ...] = ()
    child: asyncio.subprocess.Process | None = None
    process: ProcessId | None = None
    session: int = 0
    started_s: float = 0.0
    ready_s: float | None = None
    kill_at_s: float | None = None
    """When the grace period of a terminating pod is over."""
    forget_at_s: float | None = None
    """Until when a failed pod is still listed."""

    @property
    def name(self) -> str:
        return self.pod.name

    @property
    def is_head(self) -> bool:
        return self.pod.node_type is NodeType.HEAD

    @property
    def is_over(self) -> bool:
        return self.pod.phase is PodPhase.FAILED

    @property
    def status(self) -> PodStatus:
        return PodStatus(pod=self.pod, process=self.process, ready_s=self.ready_s)

    @property
    def trace(self) -> PodTrace:
        return PodTrace(self.name, str(self.directory), self.session)

    def enter(self, phase: PodPhase, *, reason: str = "", ready: bool = False) -> None:
        self.pod = replace(self.pod, phase=phase, reason=one_line(reason), ready=ready)

    async def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        now: float,
        before: Sequence[str] = (),
    ) -> None:
        """Start `ray start` in a new session, in the pod's directory; first the command `before`,
        which ends at once.
        """
        self.directory.mkdir(mode=0o700, exist_ok=True)
        if before:
            shell = await asyncio.create_subprocess_exec(
                *before,
                env=environment,
                cwd=self.directory,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            await shell.wait()
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self.child = await asyncio.create_subprocess_exec(
                *argv,
                env=environment,
                cwd=self.directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                start_new_session=True,
            )
        finally:
            os.close(handle)
        self.session, self.started_s = self.child.pid, now
        self.process = identify(self.child.pid)

    def fail(self, reason: str, now: float, *, forget_at_s: float) -> None:
        self.enter(PodPhase.FAILED, reason=reason)
        self.pod = replace(self.pod, ended_s=now)
        self.kill_at_s, self.forget_at_s = None, forget_at_s

    def restart(self, reason: str) -> None:
        """Back to waiting, under the same name and address, as a container that is restarted."""
        self.pod = replace(self.pod, restarts=self.pod.restarts + 1)
        self.child = self.process = self.ready_s = None
        self.session = 0
        self.enter(PodPhase.PENDING, reason=reason)

    def last_log_line(self) -> str:
        return last_line(self.log)


def pod_name(cluster: str, group: str) -> str:
    """As KubeRay names pods, with a random end of 5."""
    kind = "head" if group == HEAD_GROUP else f"{group}-worker"
    return f"{cluster}-{kind}-" + "".join(secrets.choice(_NAME_LETTERS) for _ in range(5))


def new_pod(name: str, group: str, ip: str, now: float) -> Pod:
    return Pod(
        name=name,
        group=group,
        node_type=NodeType.HEAD if group == HEAD_GROUP else NodeType.WORKER,
        phase=PodPhase.PENDING,
        ready=False,
        ip=ip,
        created_s=now,
        host="localhost",
        uid=str(uuid.uuid4()),
    )


def gpus_here() -> tuple[str, ...]:
    """As in CUDA_VISIBLE_DEVICES; limited to this user's, if it is set."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return tuple(name.strip() for name in given.split(",") if name.strip() not in ("", "-1"))
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in Path("/dev").glob("nvidia*"))
    return tuple(sorted((match[1] for match in found if match), key=int))


def take_gpus(wanted: int, here: Collection[str], taken: Collection[str]) -> tuple[str, ...] | None:
    """`wanted` GPUs that no pod has, or None when there are not that many."""
    free = [gpu for gpu in here if gpu not in taken]
    return tuple(free[:wanted]) if len(free) >= wanted else None
