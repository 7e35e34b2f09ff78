"""Query the API server for the user's permissions (SelfSubjectAccessReview)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.fields import boolean, mapping, text
from cockpit.model.cluster import Capability, ClusterRef
from cockpit.model.error import CockpitError

DASHBOARD_PORT = 8265
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(Struct, frozen=True):
    """One verb on one resource. `group` is empty for Kubernetes' own core."""

    verb: str
    resource: str
    group: str = ""
    namespaced: bool = True

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}"


_CLUSTERS = ("rayclusters", "ray.io")
NEEDS: Mapping[str, Sequence[Right]] = {
    "scale": (Right("patch", *_CLUSTERS),),
    "delete_pod": (Right("delete", "pods"),),
    # A WebSocket request is a GET; Kubernetes 1.35 also requires `create`.
    "exec": (Right("get", "pods/exec"), Right("create", "pods/exec")),
    "logs": (Right("get", "pods/log"),),
    "launch": tuple(Right(verb, "services/proxy") for verb in ("get", "create", "update")),
    "rayjob": (Right("create", "rayjobs", "ray.io"), Right("delete", "rayjobs", "ray.io")),
    "suspend": (Right("patch", *_CLUSTERS),),
    "cordon": (Right("patch", "nodes", namespaced=False),),
    "manifest": (Right("get", *_CLUSTERS),),
    "evict": (Right("create", "pods/eviction"),),
    "isolate": (
        *(Right(verb, "networkpolicies", "networking.k8s.io") for verb in ("create", "delete")),
        Right("patch", "pods"),
    ),
    "describe": (Right("get", *_CLUSTERS), Right("list", "events")),
}
"""By verb of the Protocol: all of these rights."""
INSTEAD: Mapping[str, Sequence[Right]] = {
    "launch": (Right("get", "pods/portforward"), Right("create", "pods/portforward"))
}
"""Rights that do as well: the dashboard can be reached by a port-forward too."""


async def capabilities(client: KubeClient, ref: ClusterRef) -> Mapping[str, Capability]:
    """Each distinct permission is queried once, all concurrently."""
    rights = sorted(
        {right for needs in (*NEEDS.values(), *INSTEAD.values()) for right in needs}, key=str
    )
    naming = asyncio.create_task(_name_of_user(client))
    try:
        answers = await asyncio.gather(*(is_allowed(client, ref, right) for right in rights))
        user = await naming
    finally:
        naming.cancel()
    allowed = dict(zip(rights, answers, strict=True))
    return {verb: _capability(ref, user, verb, needs, allowed) for verb, needs in NEEDS.items()}


async def _name_of_user(client: KubeClient) -> str:
    try:
        return await who_am_i(client)
    except CockpitError:
        return ""  # before Kubernetes 1.28, or not allowed: the message omits it


def _capability(
    ref: ClusterRef,
    user: str,
    verb: str,
    needs: Sequence[Right],
    allowed: Mapping[Right, bool],
) -> Capability:
    lacking = [right for right in needs if not allowed[right]]
    instead = INSTEAD.get(verb, ())
    if not lacking or (instead and all(allowed[right] for right in instead)):
        return Capability(True)
    where = f" in namespace {ref.namespace}" if lacking[0].namespaced else ""
    who = f" (user {user})" if user else ""
    return Capability(False, f"you may not {lacking[0]}{where}{who}")


async def is_allowed(client: KubeClient, ref: ClusterRef, right: Right) -> bool:
    """Whether this user has the permission, in the namespace of `ref` if it has one."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource}
    if subresource:
        attributes["subresource"] = subresource
    if right.resource == "services/proxy":  # may be granted for the service of one cluster
        attributes["name"] = f"{ref.name}-head-svc:{DASHBOARD_PORT}"
    if right.namespaced:
        attributes["namespace"] = ref.namespace
    request = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return boolean(mapping(await client.create(REVIEWS, request), "status"), "allowed")


async def who_am_i(client: KubeClient) -> str:
    """The user's name in the API server; empty if it reports none."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = await client.create(path, request)
    return text(mapping(mapping(answer, "status"), "userInfo"), "username")
