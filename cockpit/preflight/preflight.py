"""All checks of the pods that a job would use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from cockpit.backends.protocol import Backend, RayJobSpec
from cockpit.format import in_seconds, plural
from cockpit.model.cluster import Node, QuotaRoom
from cockpit.model.error import CockpitError
from cockpit.model.text import as_sentence, one_line
from cockpit.preflight import bucket
from cockpit.preflight.checks import (
    clocks,
    memory,
    network,
    new_cluster,
    placement,
    software,
    storage,
)
from cockpit.preflight.demand import Demand
from cockpit.preflight.facts import Answer, Facts
from cockpit.preflight.finding import Finding, State, listed
from cockpit.preflight.network import measure
from cockpit.preflight.survey import answered, survey
from cockpit.preflight.target import Target
from cockpit.sources.ray.dashboard import Dashboard

LAUNCH_S = 3.0
"""The maximum time before a launch."""
VERB_S = 30.0
READ_ONLY = "not tried in read-only mode, since it writes a file."


async def check(
    backend: Backend,
    target: Target,
    demand: Demand,
    *,
    timeout_s: float = VERB_S,
    read_only: bool = False,
    between_pods: bool = False,
) -> list[Finding]:
    """Ask the pods and Ray's dashboard, and return the finding of each check.

    Takes `timeout_s` at most: what has not answered by then is reported as not checked.
    `between_pods`: measure the network as well, which may take minutes.
    """
    if demand.only_head:
        target = replace(target, workers=(), waiting=0)
    (why_not, answers, of_bucket), (quotas, no_quotas), nodes = await asyncio.gather(
        _from_inside(backend, target, demand, timeout_s, read_only=read_only),
        _quotas(backend, timeout_s),
        _nodes(backend, timeout_s) if target.nodes is None else _given(target.nodes),
    )
    target = replace(target, nodes=nodes)
    found = findings(
        target,
        demand,
        answers,
        no_exec=why_not,
        no_write=READ_ONLY if read_only else "",
        bounded=backend.ref.backend != "address",
        quotas=quotas,
        no_quotas=no_quotas,
        of_bucket=of_bucket,
    )
    if not between_pods:
        return list(found)
    return [*found, *await _between_pods(backend, target, answered(answers))]


async def check_new(
    backend: Backend,
    demand: Demand,
    job: RayJobSpec,
    *,
    timeout_s: float = VERB_S,
    read_only: bool = False,
) -> list[Finding]:
    """Check what can be known of the cluster that a RayJob would create. Creates nothing.

    Takes `timeout_s` at most. Raises UsageError for what Kubernetes or KubeRay would not take.
    """
    try:
        async with asyncio.timeout(timeout_s):
            new = await backend.new_cluster(job, may_try=not read_only)
    except TimeoutError:
        found = f"no answer of the API server within {in_seconds(timeout_s)}."
        return [Finding("new cluster", State.SKIPPED, found)]
    return list(new_cluster.findings(new, demand))


async def _between_pods(
    backend: Backend, target: Target, facts: Mapping[str, Facts]
) -> list[Finding]:
    with_torch = [pod for pod in target.pods if _has_torch(facts.get(pod.name))]
    if len(with_torch) < 2:
        found = f"{plural(len(with_torch), 'pod')} with torch answered; a pair is needed."
        return [Finding(network.NAME, State.SKIPPED, found)]
    return list(network.network(await measure(backend, with_torch, facts), target))


def _has_torch(facts: Facts | None) -> bool:
    return facts is not None and bool(facts.versions.get("torch"))


def findings(
    target: Target,
    demand: Demand,
    answers: Mapping[str, Answer],
    *,
    no_exec: str = "",
    no_write: str = "",
    bounded: bool = True,
    quotas: Sequence[QuotaRoom] | None = (),
    no_quotas: str = "",
    of_bucket: Mapping[str, bucket.Answer] | None = None,
) -> Iterator[Finding]:
    """The finding of each check. Pure.

    `no_exec`, `no_write`, `no_quotas`: why no command was run in the pods, why nothing was written,
    and why the quotas are not known.
    """
    facts = answered(answers)
    yield from placement.ready(target)
    if no_exec:
        found = f"Versions, modules, storage, /dev/shm and clocks not checked: {no_exec}"
        yield Finding("pod probe", State.SKIPPED, found)
    elif mute := {pod: of.error for pod, of in answers.items() if of.facts is None}:
        why = next(iter(mute.values()))
        found = f"could not probe {listed(mute)}: {one_line(why)}"
        yield Finding("pod probe", State.WARNING, found, pods=tuple(mute))
    head = target.head.name if target.head is not None else ""
    yield from software.versions(facts, head)
    yield from software.modules(facts, demand)
    yield from storage.storage(answers, demand, no_write)
    if not no_exec:
        yield from storage.bucket(of_bucket or {}, demand, no_write)
    yield from storage.disk(answers)
    yield from memory.memory(facts, target, demand)
    yield from memory.shared_memory(facts, demand)
    yield from placement.gpus(facts, target, demand)
    yield from placement.head(target, demand)
    yield from placement.room(target, demand, bounded=bounded)
    yield from placement.quota(quotas, target, demand, no_quotas)
    yield from clocks.clocks(answers)


async def _from_inside(
    backend: Backend, target: Target, demand: Demand, timeout_s: float, *, read_only: bool
) -> tuple[str, Mapping[str, Answer], Mapping[str, bucket.Answer]]:
    """Why no command can be run in the pods; their answers, and those about the bucket."""
    ends_s = time.monotonic() + timeout_s
    why_not = await _why_no_exec(backend, timeout_s)
    if why_not or not target.pods:
        return why_not, {}, {}
    left_s = max(0.0, ends_s - time.monotonic())
    answers, of_bucket = await asyncio.gather(
        survey(backend, target.pods, demand, timeout_s=left_s, may_write=not read_only),
        _of_bucket(backend, target, demand, left_s, read_only=read_only),
    )
    return "", answers, of_bucket


async def _of_bucket(
    backend: Backend, target: Target, demand: Demand, left_s: float, *, read_only: bool
) -> Mapping[str, bucket.Answer]:
    if read_only or demand.has_s3_keys or not storage.is_bucket(demand.storage):
        return {}
    variables = dict(demand.s3_variables)
    return await bucket.exchange(backend, target.pods, demand.storage, variables, timeout_s=left_s)


async def _why_no_exec(backend: Backend, timeout_s: float) -> str:
    """Why commands cannot be run in pods; empty if they can."""
    try:
        async with asyncio.timeout(timeout_s):
            able = (await backend.capabilities()).get("exec")
    except TimeoutError:
        return f"the permission check did not finish within {in_seconds(timeout_s)}."
    except CockpitError as error:
        return one_line(error.what)
    if able is None or able.allowed:
        return ""
    return f"no commands can be run in pods. {as_sentence(one_line(able.why_not))}"


async def _quotas(backend: Backend, timeout_s: float) -> tuple[tuple[QuotaRoom, ...] | None, str]:
    """What the quotas leave, or why that is not known."""
    try:
        async with asyncio.timeout(timeout_s):
            return await backend.quota_room(), ""
    except TimeoutError:
        return None, f"no answer within {in_seconds(timeout_s)}"
    except CockpitError as error:
        return None, one_line(error.what)


async def _nodes(backend: Backend, timeout_s: float) -> tuple[Node, ...] | None:
    try:
        async with asyncio.timeout(timeout_s), Dashboard(backend.dashboard) as dashboard:
            return await dashboard.nodes()
    except (CockpitError, TimeoutError):
        return None  # the checks that need them are reported as skipped


async def _given(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    return nodes
