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
from cockpit.format import in_seconds
from cockpit.model.cluster import Pod
from cockpit.model.error import CockpitError
from cockpit.preflight import facts
from cockpit.preflight.demand import Demand
from cockpit.preflight.facts import Answer, Storage

T = TypeVar("T")
AT_ONCE = 32
"""Commands in pods at the same time: each is a connection to the API server."""
TIDY_S = 0.5
"""Of the time limit, what is left to remove the marker files."""
KEEP_S = 5.0
"""Seconds after the time limit at which a pod removes its marker file, if it still exists."""
SEEN_WITHIN_S = 0.6
"""How long a pod waits for the files of others: they start at about the same time, and a network
file system may show a new file late."""


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
            names=[*markers.values()],
            within_s=SEEN_WITHIN_S,
            keep_s=timeout_s + KEEP_S,
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
    names = [markers[pod.name] for pod in writers]

    def read(answer: Answer, seen: Sequence[str]) -> Answer:
        unseen = tuple(pod.name for pod in writers if markers[pod.name] not in seen)
        return replace(answer, unseen=unseen)

    async def look(pod: Pod) -> Answer:
        argv = script("seen", storage=path, names=names, within_s=SEEN_WITHIN_S)
        answer = answers[pod.name]
        try:
            done = await backend.exec(pod.name, argv, uid=pod.uid)
            if done.exit_code == 0:
                return read(answer, facts.names(done.stdout))
            why = pod_script.last_line(done)
        except (CockpitError, ValueError) as error:
            why = str(error).splitlines()[0]
        return replace(answer, error=why, unseen=None)

    async def remove(pod: Pod) -> None:
        own = names if is_shared else [markers[pod.name]]
        try:
            await backend.exec(pod.name, script("remove", storage=path, names=own), uid=pod.uid)
        except CockpitError:
            return  # the pod removes it by itself

    is_shared = False
    try:
        for pod in writers:
            storage = _storage(answers[pod.name])
            answers[pod.name] = read(answers[pod.name], storage.seen if storage else ())
        # One that has read before another has written reads again.
        again = [pod for pod in writers if answers[pod.name].unseen]
        unread = f"it did not read the storage within {in_seconds(timeout_s)}"
        for name, answer in (await _each(again, look, ends_s, lambda: None)).items():
            answers[name] = answer or replace(answers[name], error=unread, unseen=None)
        is_shared = all(answers[pod.name].unseen == () for pod in writers)
    finally:
        until_s = max(over_s, time.monotonic() + TIDY_S)
        await _each(writers[:1] if is_shared else writers, remove, until_s, lambda: None)
    return answers


async def _each(
    pods: Iterable[Pod],
    ask: Callable[[Pod], Awaitable[T]],
    ends_s: float,
    no_answer: Callable[[], T],
) -> dict[str, T]:
    """Ask all pods, some at the same time; by name, `no_answer()` of a pod that is late."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(pod: Pod) -> T:
        async with free:
            return await ask(pod)

    tasks = {pod.name: asyncio.ensure_future(one(pod)) for pod in pods}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=max(0.0, ends_s - time.monotonic()))
        return {name: task.result() if task.done() else no_answer() for name, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def _storage(answer: Answer) -> Storage | None:
    return answer.facts.storage if answer.facts is not None else None


def _has_written(answer: Answer) -> bool:
    storage = _storage(answer)
    return storage is not None and not storage.error


def _late(timeout_s: float) -> str:
    return f"no answer within {in_seconds(timeout_s)}"


def answered(answers: Mapping[str, Answer]) -> dict[str, facts.Facts]:
    """The facts of the pods that have answered."""
    return {pod: of.facts for pod, of in answers.items() if of.facts is not None}
