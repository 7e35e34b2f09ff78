"""Run the probe in all pods at the same time, and let each pod read what the others wrote."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from cockpit.backends.protocol import Backend
from cockpit.drills.engine import pod_script
from cockpit.model.cluster import Pod
from cockpit.model.error import CockpitError
from cockpit.preflight import facts
from cockpit.preflight.demand import Demand
from cockpit.preflight.facts import Answer

T = TypeVar("T")
AT_ONCE = 32
"""Commands in pods at the same time: each is a connection to the API server."""
TIDY_S = 0.5
"""Of the time limit, what is left to remove the marker files."""
KEEP_S = 60.0
"""Seconds after which a pod removes its marker file, if the request to remove it never arrives."""
SEEN_WITHIN_S = 1.0
"""A network file system may show a new file late."""


def script(verb: str, **request: Any) -> tuple[str, ...]:
    """The command line of the probe."""
    return pod_script.argv("probe", verb, json.dumps(request), package="preflight")


async def survey(
    backend: Backend,
    pods: Sequence[Pod],
    demand: Demand,
    *,
    timeout_s: float,
    may_write: bool,
) -> dict[str, Answer]:
    """The answer of each pod, by its name; those that have none have an error.

    Takes `timeout_s` at most. With `may_write`, each pod writes a marker file to the storage path.
    """
    over_s = time.monotonic() + timeout_s
    ends_s = over_s - (TIDY_S if may_write and demand.storage else 0.0)
    path = "" if "://" in demand.storage else demand.storage
    marker = f".cockpit-preflight-{secrets.token_hex(6)}" if path and may_write else ""
    markers = {pod.name: f"{marker}-{number}" for number, pod in enumerate(pods)} if marker else {}
    modules = sorted({name.partition(".")[0] for name in (*demand.modules, *demand.optional)})

    async def ask(pod: Pod) -> Answer:
        argv = script(
            "facts",
            modules=modules,
            storage=path,
            marker=markers.get(pod.name, ""),
            keep_s=KEEP_S,
        )
        sent_s = time.time()
        try:
            done = await backend.exec(pod.name, argv, uid=pod.uid)
            received_s = time.time()
            if done.exit_code:
                return Answer(error=pod_script.last_line(done))
            return Answer(facts.facts(done.stdout), "", sent_s, received_s)
        except (CockpitError, ValueError) as error:
            return Answer(error=str(error).splitlines()[0])

    answers = await _each(pods, ask, ends_s, lambda: Answer(error=_late(timeout_s)))
    writers = [pod for pod in pods if markers and _has_written(answers[pod.name])]
    if not writers:
        return answers

    async def look(pod: Pod) -> Answer:
        names = [markers[writer.name] for writer in writers]
        argv = script("seen", storage=path, names=names, within_s=SEEN_WITHIN_S)
        answer = answers[pod.name]
        try:
            done = await backend.exec(pod.name, argv, uid=pod.uid)
            if done.exit_code:
                return replace(answer, error=pod_script.last_line(done))
            seen = facts.names(done.stdout)
        except (CockpitError, ValueError) as error:
            return replace(answer, error=str(error).splitlines()[0])
        unseen = tuple(writer.name for writer in writers if markers[writer.name] not in seen)
        return replace(answer, unseen=unseen)

    async def remove(pod: Pod) -> None:
        argv = script("remove", storage=path, marker=markers[pod.name])
        try:
            await backend.exec(pod.name, argv, uid=pod.uid)
        except CockpitError:
            return  # the pod removes it after KEEP_S

    try:
        seen = await _each(writers, look, ends_s, lambda: None)
    finally:
        await _each(writers, remove, max(over_s, time.monotonic() + TIDY_S), lambda: None)
    late = f"it did not read the storage within {timeout_s:g} s"
    return answers | {
        name: answer if answer is not None else replace(answers[name], error=late)
        for name, answer in seen.items()
    }


async def _each(
    pods: Iterable[Pod],
    ask: Callable[[Pod], Awaitable[T]],
    ends_s: float,
    late: Callable[[], T],
) -> dict[str, T]:
    """Ask all pods, some at the same time; by name, `late()` of those without an answer in time."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(pod: Pod) -> T:
        async with free:
            return await ask(pod)

    tasks = {pod.name: asyncio.ensure_future(one(pod)) for pod in pods}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=max(0.0, ends_s - time.monotonic()))
        return {name: task.result() if task.done() else late() for name, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def _has_written(answer: Answer) -> bool:
    storage = answer.facts.storage if answer.facts is not None else None
    return storage is not None and not storage.error


def _late(timeout_s: float) -> str:
    return f"no answer within {timeout_s:g} s"


def answered(answers: Mapping[str, Answer]) -> dict[str, facts.Facts]:
    """The facts of the pods that have answered."""
    return {pod: of.facts for pod, of in answers.items() if of.facts is not None}
