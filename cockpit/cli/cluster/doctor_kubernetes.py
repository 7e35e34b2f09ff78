"""What `cockpit doctor` checks on Kubernetes: from the kubeconfig to Ray's token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from cockpit.backends.kuberay.api.client import KubeClient, KubeError
from cockpit.backends.kuberay.api.kubeconfig import KubeConfig
from cockpit.backends.protocol import VERBS, Backend
from cockpit.cli.cluster.check import Check, answers, failed
from cockpit.cli.options import kubernetes
from cockpit.cli.options.cluster_choice import SeveralError
from cockpit.config.cluster_flags import Place
from cockpit.format import plural
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.secret import without_credentials
from cockpit.model.text import one_line

READING = ("logs", "manifest", "describe")
"""Permissions that read-only mode also needs."""
RIGHTS = "ask an administrator for a role from: cockpit manifests show kubernetes/base/rbac.yaml"


def checks(where: Place, *, read_only: bool) -> list[Check]:
    """In the order in which one needs the other; it ends where nothing more can be known."""
    try:
        configured = kubernetes.config(where)
        ref = kubernetes.named(where, configured)
    except CockpitError as error:
        return [failed("kubeconfig", error)]
    found = [
        Check("kubeconfig", True, plural(len(configured.contexts), "context")),
        Check("context", True, one_line(ref.context)),
    ]
    reached = asyncio.run(_collect(_api_server(configured, ref)))
    found += reached
    if not all(check.ok for check in reached):
        return found
    try:
        ref = kubernetes.chosen(where, configured)
    except SeveralError as error:
        return [
            *found,
            Check(
                "raycluster",
                True,
                f"{one_line(error.what)} Select one with --cluster NAME to run the other checks.",
            ),
        ]
    except CockpitError as error:
        return [*found, failed("raycluster", error)]
    found.append(Check("raycluster", True, one_line(str(ref))))
    found += asyncio.run(_collect(_operator(configured, ref)))
    found += asyncio.run(_collect(_cluster(kubernetes.backend(where, configured, ref), read_only)))
    name = f"dashboard of {one_line(ref.name)}"
    return [*found, answers(name, kubernetes.backend(where, configured, ref, ()))]


async def _collect(checks: AsyncIterator[Check]) -> list[Check]:
    return [check async for check in checks]


async def _api_server(configured: KubeConfig, ref: ClusterRef) -> AsyncIterator[Check]:
    server = one_line(without_credentials(configured.context(ref.context).server))
    try:
        client = KubeClient(
            kubernetes.credentials(configured, ref.context), timeout_s=kubernetes.LIST_TIMEOUT_S
        )
    except CockpitError as error:
        yield failed("api server", error)
        return
    try:
        try:
            version = await client.get("/version")
        except CockpitError as error:
            yield failed("api server", error)
            return
        yield Check("api server", True, f"{_text(version, 'gitVersion')} at {server}")
        yield await _crd(client)
    finally:
        await client.aclose()


async def _crd(client: KubeClient) -> Check:
    """By the list of the group's kinds, which everybody may read."""
    try:
        listed = await client.get("/apis/ray.io/v1")
    except KubeError as error:
        if error.status != 404:
            return failed("rayclusters.ray.io", error)
        return Check(
            "rayclusters.ray.io",
            False,
            "the API server does not know this kind",
            "install KubeRay's operator with its CRDs",
        )
    except CockpitError as error:
        return failed("rayclusters.ray.io", error)
    kinds = [_text(each, "kind") for each in listed.get("resources", ()) if isinstance(each, dict)]
    return Check("rayclusters.ray.io", True, "with RayJobs" if "RayJob" in kinds else "no RayJobs")


async def _operator(configured: KubeConfig, ref: ClusterRef) -> AsyncIterator[Check]:
    """Check the operator by the state of the RayCluster that it has last processed.

    Its pod may be in any namespace and have any name, and most users may not list it.
    """
    name = "kuberay operator"
    client = KubeClient(
        kubernetes.credentials(configured, ref.context), timeout_s=kubernetes.LIST_TIMEOUT_S
    )
    try:
        path = f"/apis/ray.io/v1/namespaces/{ref.namespace}/rayclusters/{ref.name}"
        raw = await client.get(path)
    except CockpitError as error:
        yield failed(name, error)
        return
    finally:
        await client.aclose()
    wanted = _part(raw, "metadata").get("generation")
    seen = _part(raw, "status").get("observedGeneration")
    if seen == wanted:
        yield Check(name, True, f"has acted on the newest state of {one_line(ref.name)}")
    else:
        yield Check(
            name,
            False,
            f"has observed generation {seen or 'none'} of {one_line(ref.name)}; the newest is "
            f"{wanted}",
            "check that the operator's pod is running: without it, nothing is created, scaled or "
            "replaced",
        )


async def _cluster(backend: Backend, read_only: bool) -> AsyncIterator[Check]:
    """Each capability, and the way to the dashboard with Ray's token."""
    try:
        able = await backend.capabilities()
        for verb in VERBS:
            if read_only and verb not in READING:
                continue
            capability = able[verb]
            found = "allowed" if capability.allowed else capability.why_not
            yield Check(
                f"may {verb}", capability.allowed, found, "" if capability.allowed else RIGHTS
            )
        route = await backend.dashboard()
        yield Check("dashboard route", True, route.via)
        # Through the API server the plain header is its own, and Ray's has another name.
        header = "x-ray-authorization" if route.via == "service proxy" else "authorization"
        token = header in {name.lower() for name in route.headers}
        yield Check("ray token", True, "found" if token else "not required")
    except CockpitError as error:
        yield failed("dashboard route", error)
    finally:
        await backend.aclose()


def _part(raw: Any, key: str) -> dict[str, Any]:
    found = raw.get(key) if isinstance(raw, dict) else None
    return found if isinstance(found, dict) else {}


def _text(raw: Any, key: str) -> str:
    return one_line(str(raw.get(key, ""))) if isinstance(raw, dict) else ""
