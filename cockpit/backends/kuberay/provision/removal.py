"""Find what `cockpit up` has created, by its labels, and delete it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import Struct

from cockpit.backends.kuberay.api.client import ForbiddenError, KubeClient, KubeError
from cockpit.backends.kuberay.api.fields import items, mapping, text
from cockpit.backends.kuberay.provision.kinds import (
    CLUSTER,
    KINDS,
    MANAGED_BY,
    NAMESPACE,
    RAY_CLUSTER,
    Kind,
    Object,
    described,
    kind_of,
    labels,
    labels_of,
    name_of,
    path_of,
    selector,
    uid_of,
)
from cockpit.backends.kuberay.provision.overlay import templates
from cockpit.backends.kuberay.resources import objects, precondition
from cockpit.format import in_seconds, plural, verb
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

POLL_S = 0.5
TIMEOUT_S = 300.0
"""Of the pods, and of the other objects."""
CONCURRENT = 8
_BY_KUBERNETES = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
"""In each namespace."""
_IGNORED = frozenset(["events", "endpoints", "endpointslices", "leases", "bindings"])
"""Resources that follow from others, or that expire."""


class Removal(Struct, frozen=True):
    """What is deleted, in this order, and what stays, with the reason."""

    deleted: tuple[Object, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    pods: int = 0


async def find(client: KubeClient, ref: ClusterRef, *, keep_claim: bool = False) -> Removal:
    """Everything that `cockpit up` created for the cluster; changes nothing."""
    found: list[Object] = []
    kept: list[tuple[str, str]] = []
    for kind in KINDS:
        try:
            found += await _labelled(client, ref, kind)
        except ForbiddenError:
            kept.append((kind.plural, "you may not list them"))
    shared = [each for each in found if kind_of(each).shared]
    if shared and (why := await _used_elsewhere(client, ref, shared)):
        kept += [(described(each), why) for each in shared]
        found = [each for each in found if each not in shared]
    claims: list[Object] = []
    if keep_claim:
        claims = [each for each in found if kind_of(each).part == "claim"]
        kept += [(described(each), "--keep-claim") for each in claims]
        found = [each for each in found if each not in claims]
    namespace = next((each for each in found if each["kind"] == NAMESPACE.name), None)
    why = "the claim in it is kept" if any(kind_of(each).namespaced for each in claims) else ""
    if namespace is not None and (why := why or await _others(client, ref, found)):
        kept.append((described(namespace), why))
        found.remove(namespace)
    path = objects_path(ref, "pods")
    pods = items(await client.get(path, selector({objects.CLUSTER_LABEL: ref.name})), "items")
    return Removal(tuple(sorted(found, key=_order)), tuple(kept), len(pods))


def objects_path(ref: ClusterRef, plural: str) -> str:
    return f"/api/v1/namespaces/{ref.namespace}/{plural}"


async def remove(
    client: KubeClient, ref: ClusterRef, removal: Removal, kept: list[Object]
) -> AsyncIterator[str]:
    """Delete the objects, each only with its UID. Yields what is being waited for.

    The pods end before their claim, accounts and policies are deleted, and the namespace is last.
    It is added to `kept` if it has objects of others by then: the pods may take minutes.
    """
    waiting: list[Object] = []
    for each in removal.deleted:
        if each["kind"] == NAMESPACE.name and (why := await _others(client, ref, removal.deleted)):
            kept.append(each)
            yield f"Keep {described(each)}: {why}."
            continue
        await _delete(client, each)
        waiting.append(each)
        if kind_of(each) is RAY_CLUSTER:
            async for line in _until_no_pods(client, ref):
                yield line
    before, deadline = "", time.monotonic() + TIMEOUT_S
    while waiting := [each for each in waiting if await _exists(client, each)]:
        if time.monotonic() > deadline:
            raise _too_late(_named(waiting))
        line = f"Waiting until {_named(waiting)} {verb(len(waiting), 'are')} deleted."
        if line != before:
            yield line
        before = line
        await asyncio.sleep(POLL_S)


async def clusters(client: KubeClient, namespace: str) -> tuple[tuple[str, str], ...]:
    """Namespace and name of each RayCluster of `cockpit up`; an empty `namespace` is all."""
    path = RAY_CLUSTER.path(namespace) if namespace else f"{RAY_CLUSTER.api_path}/rayclusters"
    found = items(await client.get(path, selector(MANAGED_BY)), "items")
    return tuple(
        (text(mapping(each, "metadata"), "namespace"), name_of(each))
        for each in found
        if CLUSTER in labels_of(each)
    )


def _order(each: Object) -> int:
    """The RayCluster first, the namespace last, and others against the order of their creation."""
    return -KINDS.index(kind_of(each))


async def _labelled(client: KubeClient, ref: ClusterRef, kind: Kind) -> list[Object]:
    wanted = selector(labels(kind, ref.namespace, ref.name))
    answer = await client.find(kind.path(ref.namespace), wanted)  # None: it is not installed
    return [{**each, "apiVersion": kind.api, "kind": kind.name} for each in items(answer, "items")]


async def _used_elsewhere(client: KubeClient, ref: ClusterRef, shared: Sequence[Object]) -> str:
    """Why objects of all namespaces must stay; empty if no other cluster needs them.

    Also a cluster that kubectl created: without its priority class, no lost pod is replaced.
    """
    try:
        found = items(await client.get(f"{RAY_CLUSTER.api_path}/{RAY_CLUSTER.plural}"), "items")
    except ForbiddenError:
        return "you may not see whether other clusters use it"
    classes = {name_of(each) for each in shared if each["kind"] == "PriorityClass"}
    for each in found:
        namespace, name = text(mapping(each, "metadata"), "namespace"), name_of(each)
        of_up = MANAGED_BY.items() <= labels_of(each).items() and CLUSTER in labels_of(each)
        named = {text(mapping(pod, "spec"), "priorityClassName") for pod in templates(each)}
        if (namespace, name) != (ref.namespace, ref.name) and (of_up or classes & named):
            return f"RayCluster {one_line(name)} in namespace {one_line(namespace)} uses it"
    return ""


async def _others(client: KubeClient, ref: ClusterRef, ours: Sequence[Object]) -> str:
    """Why the namespace must stay: something in it is not ours. Empty if there is nothing."""
    uids = {uid_of(each) for each in ours}
    limit = asyncio.Semaphore(CONCURRENT)

    async def listed(api_path: str, resource: str) -> list[Any]:
        async with limit:
            answer = await client.get(f"{api_path}/namespaces/{ref.namespace}/{resource}")
        return items(answer, "items")

    try:
        resources = await _namespaced(client)
        answers = await asyncio.gather(*(listed(path, name) for path, name, _ in resources))
    except CockpitError as error:
        return f"its other objects cannot be listed: {one_line(error.what)}"
    for (_, _, kind), found in zip(resources, answers, strict=True):
        for each in found:
            meta = mapping(each, "metadata")
            # An owned object is deleted with its owner, which is in the list itself.
            if uid_of(each) in uids or items(meta, "ownerReferences"):
                continue
            if (kind, name_of(each)) not in _BY_KUBERNETES:
                return f"{kind} {one_line(name_of(each))} in it was not created by cockpit up"
    return ""


async def _namespaced(client: KubeClient) -> list[tuple[str, str, str]]:
    """API path, plural and kind of each kind that is listed in a namespace.

    Of all versions, the preferred first: a group may serve a kind only in another version.
    """
    versions = [
        text(version, "groupVersion")
        for group in items(await client.get("/apis"), "groups")
        for version in (mapping(group, "preferredVersion"), *items(group, "versions"))
    ]
    paths = dict.fromkeys(["/api/v1", *(f"/apis/{version}" for version in versions)])
    answers = await asyncio.gather(*map(client.get, paths))
    found: dict[tuple[str, str], tuple[str, str, str]] = {}
    for path, answer in zip(paths, answers, strict=True):
        for each in items(answer, "resources"):
            name = text(each, "name")
            if (
                each.get("namespaced") is True
                and "list" in items(each, "verbs", str)
                and "/" not in name
                and name not in _IGNORED
                and not path.startswith("/apis/metrics.k8s.io")
            ):
                group = path.rpartition("/")[0]
                found.setdefault((group, name), (path, name, text(each, "kind")))
    return list(found.values())


async def _delete(client: KubeClient, each: Object) -> None:
    body = precondition.delete_options(uid_of(each), propagationPolicy="Background")
    try:
        await precondition.guarded(each["kind"], name_of(each), client.delete(path_of(each), body))
    except KubeError as error:
        if error.status != 404:
            raise


async def _exists(client: KubeClient, each: Object) -> bool:
    """Whether the object of this UID exists."""
    found = await client.find(path_of(each))
    return found is not None and uid_of(found) == uid_of(each)


async def _until_no_pods(client: KubeClient, ref: ClusterRef) -> AsyncIterator[str]:
    before, deadline = 0, time.monotonic() + TIMEOUT_S
    mine = selector({objects.CLUSTER_LABEL: ref.name})
    while pods := items(await client.get(objects_path(ref, "pods"), mine), "items"):
        if time.monotonic() > deadline:
            raise _too_late(", ".join(f"Pod {name_of(pod)}" for pod in pods[:3]))
        if len(pods) != before:
            yield f"Waiting until {plural(len(pods), 'pod')} of {one_line(ref.name)} ended."
        before = len(pods)
        await asyncio.sleep(POLL_S)


def _too_late(what: str) -> CockpitError:
    return CockpitError(
        f"{what} still exists {in_seconds(TIMEOUT_S)} after its deletion was requested.",
        "A node that does not answer, or a finalizer, delays it.",
        "See what delays it: cockpit pods, cockpit events. Then run the command again.",
    )


def _named(waiting: Sequence[Object]) -> str:
    if len(waiting) <= 3:
        return ", ".join(described(each) for each in waiting)
    return plural(len(waiting), "object")
