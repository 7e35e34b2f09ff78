"""What must hold before objects are created. Each check raises an error with the fix."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from cockpit.backends.kuberay.api.access import Right, is_allowed, who_am_i
from cockpit.backends.kuberay.api.client import ForbiddenError, KubeClient
from cockpit.backends.kuberay.api.fields import checked, items, mapping, quantity, text
from cockpit.backends.kuberay.provision.kinds import (
    BY_NAME,
    CLAIM,
    RAY_CLUSTER,
    Kind,
    Object,
    is_ours,
    kind_of,
    name_of,
)
from cockpit.backends.kuberay.provision.overlay import Wanted, needed
from cockpit.format import bytes_text
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError
from cockpit.model.text import one_line

INSTALL = {
    "ray.io": "Install KubeRay's operator with its CRDs, or name another with --context NAME.",
    "monitoring.coreos.com": "Install the Prometheus operator, or choose another --overlay.",
}
"""By API group: where a kind that Kubernetes lacks comes from."""
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
SINGLE_NODE = frozenset(
    [
        "disk.csi.azure.com",
        "ebs.csi.aws.com",
        "kubernetes.io/aws-ebs",
        "kubernetes.io/azure-disk",
        "kubernetes.io/gce-pd",
        "kubernetes.io/no-provisioner",
        "pd.csi.storage.gke.io",
        "rancher.io/local-path",
    ]
)
"""Provisioners whose file systems one node mounts at a time, so that a ReadWriteMany claim waits
forever (kubernetes.io/docs/concepts/storage/persistent-volumes, Access Modes, and their own docs).
"""
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


async def require_kinds(client: KubeClient, ref: ClusterRef, objects: Sequence[Object]) -> None:
    """Raises UnreachableError for a kind that the API server does not know."""
    for group, todo in INSTALL.items():
        for kind in {each["kind"]: kind_of(each) for each in objects}.values():
            if kind.group == group and not await _is_known(client, kind):
                context, name = one_line(ref.context), f"{kind.plural}.{group}"
                what = (
                    "has no RayClusters: KubeRay" if kind is RAY_CLUSTER else f"has no {name}: it"
                )
                raise UnreachableError(
                    f"Context {context} {what} is not installed there.",
                    f"Its API server does not know the resource {name}.",
                    todo,
                )


async def require_rights(client: KubeClient, ref: ClusterRef, objects: Sequence[Object]) -> None:
    """Raises NotAllowedError that lists what this user may not do with these objects."""
    kinds = list({each["kind"]: kind_of(each) for each in objects}.values())
    rights = [
        (kind, Right(verb, kind.plural, kind.group, namespaced=kind.namespaced))
        for kind in kinds
        for verb in ("get", "create", "patch")
    ]
    answers = await asyncio.gather(*(is_allowed(client, ref, right) for _, right in rights))
    lacking = [pair for pair, allowed in zip(rights, answers, strict=True) if not allowed]
    if not lacking:
        return
    parts = dict.fromkeys(kind.part for kind, _ in lacking)
    todo = "Ask an administrator for the right."
    if all(parts):
        flags = " ".join(f"--without {part}" for part in parts)
        todo = f"Ask an administrator to create these objects, and add: {flags}"
    raise NotAllowedError(
        f"You cannot create this cluster in namespace {ref.namespace}.",
        f"You may not {', '.join(str(right) for _, right in lacking)}{await _as_whom(client)}.",
        todo,
    )


async def require_namespace(client: KubeClient, ref: ClusterRef, wanted: Wanted) -> None:
    """Raises UsageError if the namespace is not to be created and does not exist."""
    if "namespace" not in wanted.without:
        return
    try:
        found = await client.find(BY_NAME["Namespace"].path("", ref.namespace))
    except ForbiddenError:
        return  # one may work in a namespace without the right to read it
    if found is None:
        raise UsageError(
            f"There is no namespace {ref.namespace} in context {one_line(ref.context)}.",
            "--without namespace uses one that exists.",
            "Leave that flag out, or name another namespace with -n.",
        )


async def require_storage(client: KubeClient, ref: ClusterRef, objects: Sequence[Object]) -> None:
    """Raises CockpitError if no volume can be made for a claim that does not exist yet."""
    claim = next((each for each in objects if kind_of(each) is CLAIM), None)
    if claim is None or mapping(claim, "spec").get("volumeName"):
        return
    with suppress(ForbiddenError):
        if await client.find(CLAIM.path(ref.namespace, name_of(claim))) is not None:
            return
    try:
        classes = items(await client.get(_CLASSES), "items")
    except ForbiddenError:
        return  # only an early error is lost: the claim waits, and the wait reports why
    why = _no_class(classes, mapping(claim, "spec").get("storageClassName"))
    if why:
        raise CockpitError(
            f"There is no storage for the claim {name_of(claim)}, which all pods mount at once "
            "(ReadWriteMany).",
            why,
            "Use --storage-class NAME, --nfs SERVER:/PATH, --s3 s3://BUCKET/PATH, or on a single "
            "node --host-path PATH.",
        )


async def require_secret(client: KubeClient, ref: ClusterRef, wanted: Wanted) -> None:
    """Raises CockpitError if the namespace exists without the Secret of the bucket's keys."""
    if "namespace" in wanted.without and (missing := await missing_secret(client, ref, wanted)):
        raise CockpitError(
            f"Namespace {ref.namespace} has no Secret {missing}, which --s3-secret names.",
            "Pods start only with it.",
            f"Create it: {secret_command(ref, missing)}",
        )


async def missing_secret(client: KubeClient, ref: ClusterRef, wanted: Wanted) -> str:
    """The name of the Secret if it does not exist; empty also if that cannot be known."""
    name = wanted.s3.secret if wanted.s3 is not None else ""
    if not name:
        return ""
    path = f"/api/v1/namespaces/{ref.namespace}/secrets/{checked('Secret', name)}"
    try:
        return name if await client.find(path) is None else ""
    except ForbiddenError:
        return ""


def secret_command(ref: ClusterRef, name: str) -> str:
    return (
        f"kubectl create secret generic {name} -n {ref.namespace} --from-env-file=FILE, "
        "where FILE has AWS_ACCESS_KEY_ID=… and AWS_SECRET_ACCESS_KEY=…"
    )


def _no_class(classes: Sequence[Mapping[str, Any]], wanted: object) -> str:
    """Why the claim cannot be bound; empty if it can, as far as one can know."""
    names = ", ".join(one_line(name_of(each)) for each in classes) or "none"
    if wanted:
        chosen = next((each for each in classes if name_of(each) == wanted), None)
        if chosen is None:
            return f"There is no storage class {one_line(str(wanted))}; there is: {names}."
    else:
        chosen = next((each for each in classes if _is_default(each)), None)
        if chosen is None:
            return f"The cluster has no default storage class; there is: {names}."
    provisioner = text(chosen, "provisioner")
    if provisioner in SINGLE_NODE:
        return f"Volumes of the class {one_line(name_of(chosen))} ({provisioner}) are for one node."
    return ""


def _is_default(each: Mapping[str, Any]) -> bool:
    return text(mapping(mapping(each, "metadata"), "annotations"), DEFAULT_CLASS) == "true"


async def require_room(client: KubeClient, ref: ClusterRef, objects: Sequence[Object]) -> None:
    """Raises CockpitError if a quota that cockpit did not create leaves too little for a new
    cluster.

    Quotas with a scope are left out: whether a pod is in one depends on more than its resources.
    """
    cluster = next(each for each in objects if kind_of(each) is RAY_CLUSTER)
    if await client.find(RAY_CLUSTER.path(ref.namespace, name_of(cluster))) is not None:
        return  # its pods are in what is used
    try:
        quotas = items(await client.get(BY_NAME["ResourceQuota"].path(ref.namespace)), "items")
    except ForbiddenError:
        return  # the operator reports the quota, and the wait shows it
    need = needed(cluster)
    for quota in quotas:
        spec = mapping(quota, "spec")
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        if not is_ours({"kind": "ResourceQuota", **quota}, ref.namespace, ref.name) and (
            short := _short(quota, need)
        ):
            raise CockpitError(
                f"The quota {one_line(name_of(quota))} of namespace {ref.namespace} is too small "
                "for this cluster.",
                f"{short}.",
                "Choose a smaller --size or another namespace, or ask for a larger quota.",
            )


def _short(quota: Mapping[str, Any], need: Mapping[str, float]) -> str:
    hard = mapping(mapping(quota, "spec"), "hard")
    used = mapping(mapping(quota, "status"), "used")
    lacking = []
    for name, amount in hard.items():
        # `cpu` and `memory` are older names of the requests.
        wanted = need.get(name, need.get(f"requests.{name}", 0.0))
        left = quantity(amount) - quantity(used.get(name, 0))
        if wanted > left:
            show = bytes_text if name.endswith("memory") else "{:g}".format
            lacking.append(f"{one_line(name)} {show(wanted)} of {show(max(0.0, left))} left")
    return ", ".join(lacking)


async def _is_known(client: KubeClient, kind: Kind) -> bool:
    found = await client.find(kind.api_path)
    return any(text(each, "name") == kind.plural for each in items(found, "resources"))


async def _as_whom(client: KubeClient) -> str:
    try:
        user = await who_am_i(client)
    except CockpitError:
        return ""
    return f" (user {user})" if user else ""
