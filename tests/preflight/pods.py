"""Pods for tests of preflight: simulated facts, and pods whose probe runs here for real."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from cockpit.backends.protocol import ExecResult
from cockpit.model.cluster import Node, NodeType, Pod, PodPhase, Resources, WorkerGroup
from cockpit.model.event import Event, GroupsListed, PodsListed, SourceHealth
from cockpit.preflight.facts import Answer, Facts, Memory, Room, Storage
from cockpit.preflight.target import Target
from tests.simulated_backend import ScriptedBackend

GIB = 1 << 30


def pod(name: str, number: int, *, ready: bool = True, gpus: float = 0.0) -> Pod:
    """`number` 0 is the head."""
    return Pod(
        name,
        "workers" if number else "headgroup",
        NodeType.WORKER if number else NodeType.HEAD,
        PodPhase.RUNNING if ready else PodPhase.PENDING,
        ready,
        f"10.0.0.{number + 1}",
        host=f"node-{number}",
        gpus=gpus,
    )


HEAD, ONE, TWO = pod("head", 0), pod("one", 1), pod("two", 2)
GROUP = WorkerGroup("workers", 2, 2, 0, 4, Resources(cpus=2))
STORAGE = Storage("/mnt/shared", "nfs4", "", Room("/mnt/shared", 100 * GIB, 50 * GIB))
FACTS = Facts(
    python="3.11.9",
    began_s=1000.0,
    now_s=1000.1,
    memory=Memory(16 * GIB, 2 * GIB),
    versions={"ray": "2.60.0", "torch": "2.15.0"},
    shm=Room("/dev/shm", 4 * GIB, 4 * GIB),
    disk=Room("/tmp", 100 * GIB, 50 * GIB),
    storage=STORAGE,
)


def node(one: Pod, cpus: float = 2.0, gpus: float = 0.0) -> Node:
    resources = {"CPU": cpus, "GPU": gpus}
    is_head = one.node_type is NodeType.HEAD
    return Node(one.name, one.ip, one.name, is_head, alive=True, resources=resources)


def target(*workers: Pod, head_cpus: float = 0.0, **changes: Any) -> Target:
    pods = workers or (ONE, TWO)
    nodes = (node(HEAD, head_cpus), *(node(one, gpus=one.gpus) for one in pods))
    return replace(Target(HEAD, pods, 0, (GROUP,), nodes), **changes)


def answers(**changes: Mapping[str, Any]) -> dict[str, Answer]:
    """Of all three pods; the keyword of a pod changes its facts."""
    return {
        one.name: Answer(replace(FACTS, **changes.get(one.name, {})), "", 999.9, 1000.2, ())
        for one in (HEAD, ONE, TWO)
    }


@dataclass(slots=True)
class PodsHere(ScriptedBackend):
    """Each pod runs its commands on this host, in its own home directory below `homes`."""

    homes: Path = Path("/nonexistent")
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By the name of a pod, variables of its commands."""
    slow: Callable[[str], bool] = lambda pod: False
    """Pods that do not answer."""

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        self._require(pod, uid)
        self.asked.append(("exec", pod, *argv[3:]))
        if self.slow(pod):
            await asyncio.Event().wait()
        home = self.homes / pod
        home.mkdir(exist_ok=True)
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *argv[1:],
            env=os.environ | {"HOME": str(home)} | dict(self.environment.get(pod, {})),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await child.communicate()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        return ExecResult(child.returncode or 0, out.decode(), err.decode())


@dataclass(slots=True)
class CannedPods(ScriptedBackend):
    """Each pod answers with FACTS, without a process; by default all share the storage."""

    is_shared: bool = True
    missing: tuple[str, ...] = ()

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        self._require(pod, uid)
        verb, request = argv[3], json.loads(argv[4])
        self.asked.append(("exec", pod, verb))
        seen = [name for name in request["names"] if self.is_shared]
        if verb == "seen":
            return ExecResult(0, json.dumps(seen), "")
        now_s = time.time()
        storage = replace(STORAGE, seen=tuple(seen)) if request["storage"] else None
        missing = tuple(name for name in request.get("modules", ()) if name in self.missing)
        facts = replace(FACTS, began_s=now_s, now_s=now_s, storage=storage, missing=missing)
        return ExecResult(0, msgspec.json.encode(facts).decode() if verb == "facts" else "", "")


def present(*pods: Pod, group: WorkerGroup = GROUP) -> tuple[Event, ...]:
    """The events of a backend with these pods."""
    return (
        GroupsListed(at_s=1.0, source="backend", groups=(group,)),
        PodsListed(at_s=1.0, source="backend", pods=pods),
        SourceHealth(at_s=1.0, source="backend", ok=True),
    )
