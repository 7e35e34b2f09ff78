"""Resolve flags to a RayCluster. Imported only for a cluster on Kubernetes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from cockpit.backends.kuberay.api import kubeconfig
from cockpit.backends.kuberay.api.client import ForbiddenError, KubeClient, KubeError
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import KubeConfig
from cockpit.cli.options import cluster_choice
from cockpit.config.cluster_flags import Place
from cockpit.model.cluster import ClusterRef, ClusterSummary
from cockpit.model.error import CockpitError, UnreachableError, UsageError
from cockpit.model.secret import without_credentials
from cockpit.model.text import one_line

if TYPE_CHECKING:
    from cockpit.backends.protocol import Backend

LIST_TIMEOUT_S = 5.0
"""A choice among clusters waits no longer for the API server."""


def config(where: Place) -> KubeConfig:
    """Return the selected kubeconfig. Raises as `kubeconfig.read`."""
    return kubeconfig.read([Path(where.kubeconfig).expanduser()] if where.kubeconfig else None)


def named(where: Place, configured: KubeConfig) -> ClusterRef:
    """The selected context and namespace, and the cluster if it is given."""
    context = configured.context(where.context)
    return ClusterRef("kuberay", where.cluster, where.namespace or context.namespace, context.name)


def credentials(configured: KubeConfig, context: str) -> Credentials:
    return Credentials(configured.context(context))


def chosen(where: Place, configured: KubeConfig, who: Credentials | None = None) -> ClusterRef:
    """Return the selected cluster, else the only one of the namespace.

    Raises SeveralError, or UnreachableError that lists the existing clusters.
    """
    ref = named(where, configured)
    if ref.name:
        return ref
    return asyncio.run(_only_one(who or credentials(configured, ref.context), ref))


def opened(
    where: Place,
    configured: KubeConfig,
    kinds: Collection[str] | None = None,
    *,
    once: bool = False,
) -> Backend:
    """Return the backend of the selected cluster.

    Both clients share one set of credentials: a plugin runs once, and certificates are loaded once.
    """
    who = credentials(configured, where.context)
    return backend(where, configured, chosen(where, configured, who), kinds, once=once, who=who)


def backend(
    where: Place,
    configured: KubeConfig,
    ref: ClusterRef,
    kinds: Collection[str] | None = None,
    *,
    once: bool = False,
    who: Credentials | None = None,
) -> Backend:
    """Return the backend of that cluster, without a request.

    With `once` it returns only the current state. `kinds` (None: all) must contain the cluster if
    anything is watched: its state is that of the source `backend`.
    """
    from cockpit.backends.kuberay.backend import KubeRayBackend

    kind: type[KubeRayBackend] = KubeRayBackend
    if once:
        from cockpit.backends.kuberay.one_shot import OneShotBackend

        kind = OneShotBackend
    return kind(
        who or credentials(configured, ref.context),
        ref,
        dashboard_url=where.dashboard_url,
        token_secret=where.token_secret,
        kinds=("cluster", *kinds) if kinds else kinds,
    )


async def _only_one(who: Credentials, ref: ClusterRef) -> ClusterRef:
    client = KubeClient(who, timeout_s=LIST_TIMEOUT_S)
    try:
        found = await clusters_of(client, ref.context, ref.namespace)
        elsewhere: tuple[ClusterSummary, ...] = ()
        if not found:
            await _require_namespace(client, ref)
            elsewhere = await _everywhere(client, ref.context)
    finally:
        await client.aclose()
    name = cluster_choice.one_of(
        [item.ref for item in found], ref, [item.ref for item in elsewhere]
    )
    return ClusterRef("kuberay", name, ref.namespace, ref.context)


async def all_clusters(
    configured: KubeConfig,
    context: str,
    namespace: str = "",
    selector: str = "",
    *,
    everywhere: bool = False,
) -> tuple[ClusterSummary, ...]:
    """List the RayClusters of a namespace, else of the context; with `everywhere`, always of it.

    Without the permission to list all namespaces: those of the context's namespace. With
    `everywhere`, raises ForbiddenError then.
    """
    asked = None if everywhere else namespace or None
    client = KubeClient(credentials(configured, context), timeout_s=LIST_TIMEOUT_S)
    try:
        return await clusters_of(client, context, asked, selector)
    except ForbiddenError:
        if everywhere or asked:
            raise
        own = configured.context(context).namespace
        return await clusters_of(client, context, own, selector)
    finally:
        await client.aclose()


def unreachable(configured: KubeConfig, context: str, why: str) -> UnreachableError:
    server = one_line(without_credentials(configured.context(context).server))
    return UnreachableError(f"The API server {server} does not answer.", why)


async def clusters_of(
    client: KubeClient, context: str, namespace: str | None, selector: str = ""
) -> tuple[ClusterSummary, ...]:
    """The RayClusters of a namespace, or of all. UnreachableError where there is no KubeRay."""
    from cockpit.backends.kuberay.resources.clusters import list_clusters

    try:
        return await list_clusters(client, namespace, selector)
    except KubeError as error:
        if error.status == 400 and selector:
            raise invalid_selector(selector, error) from error
        if error.status != 404:
            raise
        raise UnreachableError(
            f"Context {one_line(context)} has no RayClusters: KubeRay is not installed there.",
            "Its API server does not know the resource rayclusters.ray.io.",
            "Install KubeRay's operator with its CRDs, or name another with --context NAME.",
        ) from error


def invalid_selector(selector: str, error: KubeError) -> UsageError:
    return UsageError(
        f"The label selector {one_line(selector)!r} is not valid.",
        error.what,
        "For example: -l team=nlp,tier!=test",
    )


async def _require_namespace(client: KubeClient, ref: ClusterRef) -> None:
    """A namespace that does not exist lists as an empty one."""
    try:
        await client.get(f"/api/v1/namespaces/{ref.namespace}")
    except ForbiddenError:
        return  # one may work in a namespace without the right to look at it
    except KubeError as error:
        if error.status != 404:
            raise
        raise UsageError(
            f"There is no namespace {one_line(ref.namespace)!r} in context "
            f"{one_line(ref.context)}.",
            todo="Name another with -n NAMESPACE; see: cockpit clusters",
        ) from error


async def _everywhere(client: KubeClient, context: str) -> tuple[ClusterSummary, ...]:
    """List the RayClusters of the other namespaces, as far as permitted."""
    try:
        return await clusters_of(client, context, None)
    except CockpitError:
        return ()  # only a hint is lost
