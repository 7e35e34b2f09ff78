"""Let each pod write an object to the bucket of the job, and read and delete that of another."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from cockpit.backends.protocol import Backend, ExecResult
from cockpit.drills.engine import pod_script
from cockpit.format import in_seconds
from cockpit.launch.package import training_directory
from cockpit.model.cluster import Pod
from cockpit.model.decoding import limited_json
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

AT_ONCE = 32
"""Pods that exchange their objects at the same time."""
TIDY_S = 1.0
"""Of the time limit, what a pod has to delete its object after it has waited for the other."""
WAIT_S = 15.0
"""How long a pod waits for the object of another: they start at about the same time."""
LIBRARY = ("stop", "checkpoint/filesystem")
"""Of `training`: what the job accesses its storage with."""
MAX_BYTES = 1 << 16


class Answer(Struct, frozen=True):
    """Of one pod. `late`: why there is no answer."""

    error: str = ""
    """Why it cannot use the bucket, and what to do."""
    has_keys: bool = False
    was_read: bool = False
    """Whether it read what another pod wrote."""
    late: str = ""


def library() -> dict[str, str]:
    """The text of each module, by its name."""
    folder = training_directory()
    return {
        f"training.{name.replace('/', '.')}": (folder / f"{name}.py").read_text(encoding="utf-8")
        for name in LIBRARY
    }


async def exchange(
    backend: Backend,
    pods: Sequence[Pod],
    path: str,
    environment: Mapping[str, str],
    *,
    timeout_s: float,
) -> dict[str, Answer]:
    """The answer of each pod, by its name. Takes `timeout_s` at most."""
    ends_s = time.monotonic() + timeout_s
    marker, texts = f".cockpit-preflight-{secrets.token_hex(6)}", library()
    found: dict[str, Answer] = {}

    async def ask(pod: Pod, own: str, other: str, left_s: float) -> Answer:
        request = {
            "path": path,
            "own": own,
            "other": other,
            "within_s": max(0.0, min(WAIT_S, left_s - TIDY_S)),
            "environment": dict(environment),
            "library": texts,
        }
        argv = pod_script.argv("bucket", json.dumps(request), package="preflight")
        try:
            async with asyncio.timeout(left_s):
                done = await backend.exec(pod.name, argv, uid=pod.uid)
        except TimeoutError:
            return Answer(late=f"no answer within {in_seconds(timeout_s)}")
        except CockpitError as error:
            return Answer(late=one_line(str(error)))
        try:
            return _decoded(done.stdout) if done.exit_code == 0 else _failed(done)
        except ValueError as error:
            return Answer(late=one_line(str(error)))

    rest, linked = list(pods), list[Pod]()
    while rest:
        count = AT_ONCE - len(linked)
        group, rest = [*linked, *rest[:count]], rest[count:]
        names = [f"{marker}-{pod.name}" for pod in group]
        others = [*names[1:], names[0]]
        left_s = max(0.1, ends_s - time.monotonic())
        asked = (ask(*each, left_s) for each in zip(group, names, others, strict=True))
        answers = await asyncio.gather(*asked)
        found |= {pod.name: answer for pod, answer in zip(group, answers, strict=True)}
        # One pod takes part again: groups may use different buckets, and none may be of one pod.
        linked = [pod for pod in group if found[pod.name].was_read][:1]
    return found


def _decoded(output: str) -> Answer:
    """Raises ValueError if it is no result."""
    last = output.strip().rpartition("\n")[2]
    answer = msgspec.convert(limited_json.loads(last or "null", max_bytes=MAX_BYTES), Answer)
    return Answer(one_line(answer.error, 400), answer.has_keys, answer.was_read)


def _failed(done: ExecResult) -> Answer:
    return Answer(late=pod_script.last_line(done))
