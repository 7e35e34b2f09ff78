"""What the API server has of the wanted objects, and how it gets the rest: server-side apply.

An object that cockpit did not create is used as it is, or refused; it is never changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct

from cockpit.backends.kuberay.api.client import ForbiddenError, KubeClient, KubeError
from cockpit.backends.kuberay.api.fields import mapping
from cockpit.backends.kuberay.provision.kinds import (
    CLUSTER,
    NAMESPACE,
    RAY_CLUSTER,
    Object,
    described,
    is_ours,
    kind_of,
    labels_of,
    name_of,
    path_of,
    selector,
    uid_of,
)
from cockpit.backends.kuberay.provision.kinds import (
    MANAGED_BY as OURS,
)
from cockpit.backends.kuberay.provision.overlay import Wanted
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.text import one_line

MANAGER = "cockpit-up"
"""Of the fields. Not that of other verbs: `cockpit scale` after `cockpit up` shall conflict."""
RETRIES, RETRY_S = 4, 0.2
_MODIFIED = "has been modified"
"""In the API server's 409 for a write that met another one. It is no conflict of fields."""
AS_IT_IS = ("namespace", "quota", "claim")
"""Parts whose objects may differ from the manifests when they are not ours."""
_BY_SERVER = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid")


class Step(Enum):
    CREATE = "create"
    CHANGE = "change"
    KEEP = "unchanged"
    USE = "used"
    """It was not created by cockpit."""


class Planned(Struct, frozen=True):
    step: Step
    wanted: Object
    uid: str = ""
    """Of the object that exists."""


async def plan(
    client: KubeClient,
    ref: ClusterRef,
    wanted: Wanted,
    objects: Sequence[Object],
    *,
    force: bool = False,
) -> tuple[Planned, ...]:
    """What has to be done for each object. Changes nothing.

    Raises UsageError for an object of another owner, CockpitError for a conflict; `force` takes
    the fields that another client has changed.
    """
    found = await asyncio.gather(*(client.find(path_of(each)) for each in objects))
    _require_free(ref, wanted, objects, found)
    await _require_one_cluster(client, ref)
    is_new = any(
        each["kind"] == NAMESPACE.name and there is None
        for each, there in zip(objects, found, strict=True)
    )
    planned = []
    for each, there in zip(objects, found, strict=True):
        if there is not None:
            planned.append(await _of_existing(client, ref, each, there, force=force))
            continue
        if not (is_new and kind_of(each).namespaced):  # otherwise there is nowhere to try it
            await apply(client, ref, Planned(Step.CREATE, each), dry_run=True, force=force)
        planned.append(Planned(Step.CREATE, each))
    return tuple(planned)


async def apply(
    client: KubeClient,
    ref: ClusterRef,
    planned: Planned,
    *,
    dry_run: bool = False,
    force: bool = False,
) -> Any:
    """Create or change the object. Returns it as it is then.

    An object of another UID than the planned one is refused, and so is one in place of none.
    """
    if planned.step is Step.CREATE and not dry_run:
        await _require_absent(client, planned.wanted)
    body = dict(planned.wanted)
    if planned.uid:
        body["metadata"] = {**body["metadata"], "uid": planned.uid}
    query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
    query |= {"dryRun": "All"} if dry_run else {}
    query |= {"force": "true"} if force else {}
    try:
        return await _patched(client, body, query)
    except KubeError as error:
        raise _explained(ref, planned.wanted, error) from error
    except ForbiddenError as error:
        raise ForbiddenError(
            f"You may not apply {described(planned.wanted)}.",
            one_line(error.why),
            error.todo,
            status=error.status,
        ) from error


async def _require_absent(client: KubeClient, each: Object) -> None:
    """Raises CockpitError for an object that exists: the apply would be merged into it."""
    if await client.find(path_of(each)) is not None:
        raise CockpitError(
            f"{described(each)} was created since the plan was shown.", "", "Run the command again."
        )


async def _patched(client: KubeClient, body: Object, query: Mapping[str, str]) -> Any:
    """Again while a controller writes the object at the same time, such as the quota's status."""
    for _ in range(RETRIES):
        try:
            return await client.patch(path_of(body), body, kind="apply", params=query)
        except KubeError as error:
            if _MODIFIED not in error.what:
                raise
        await asyncio.sleep(RETRY_S)
    return await client.patch(path_of(body), body, kind="apply", params=query)


def _require_free(
    ref: ClusterRef, wanted: Wanted, objects: Sequence[Object], found: Sequence[Any]
) -> None:
    """Raises UsageError for an object that is being deleted, and for a namespace or RayCluster
    that cockpit did not create.
    """
    for each, there in zip(objects, found, strict=True):
        if there is None:
            continue
        if "deletionTimestamp" in mapping(there, "metadata"):
            raise UsageError(
                f"{described(each)} is being deleted.",
                f"It is {'the namespace' if each['kind'] == NAMESPACE.name else 'an object'} "
                f"of {ref.described}.",
                "Run the command again when it is deleted, or name another namespace with -n.",
            )
        if is_ours(there, wanted.namespace, wanted.cluster):
            continue
        if each["kind"] == NAMESPACE.name:
            raise UsageError(
                f"Namespace {wanted.namespace} exists, and cockpit did not create it.",
                f"cockpit down would delete it. It is in context {one_line(ref.context)}.",
                "To use it as it is, add --without namespace; or name another with -n.",
            )
        if each["kind"] == RAY_CLUSTER.name:
            raise UsageError(
                f"RayCluster {wanted.cluster} exists in namespace {wanted.namespace}, and cockpit "
                "did not create it.",
                "cockpit up does not change it.",
                "Change it with the tool that created it, or name another namespace with -n.",
            )


async def _require_one_cluster(client: KubeClient, ref: ClusterRef) -> None:
    """Raises UsageError if the namespace has the objects of another cluster of `cockpit up`."""
    answer = await client.get(RAY_CLUSTER.path(ref.namespace), selector(OURS))
    for each in answer.get("items") or ():
        if name_of(each) != ref.name and CLUSTER in labels_of(each):
            raise UsageError(
                f"Namespace {ref.namespace} has RayCluster {one_line(name_of(each))} of "
                "cockpit up already.",
                "Its quota, network policies and claim are for that cluster.",
                "Name another namespace with -n, or that cluster with --cluster.",
            )


async def _of_existing(
    client: KubeClient, ref: ClusterRef, each: Object, there: Any, *, force: bool
) -> Planned:
    uid = uid_of(there)
    namespace, cluster = ref.namespace, ref.name
    if is_ours(there, namespace, cluster):
        planned = Planned(Step.CHANGE, each, uid)
        after = await apply(client, ref, planned, dry_run=True, force=force)
        return planned if _differs(there, after) else Planned(Step.KEEP, each, uid)
    part = kind_of(each).part
    if part not in AS_IT_IS:
        # Without our labels: it is another's, and is only compared.
        same = {**each, "metadata": {**each["metadata"], "labels": labels_of(there)}}
        after = await apply(client, ref, Planned(Step.USE, same, uid), dry_run=True, force=True)
        if _differs(there, after):
            leave_out = f", or leave it out with --without {part}" if part else ""
            raise UsageError(
                f"{described(each)} exists, cockpit did not create it, and it differs from the "
                "manifests.",
                f"It is {f'in namespace {namespace}' if kind_of(each).namespaced else 'shared'} "
                f"of context {one_line(ref.context)}.",
                f"Delete it, name another namespace with -n{leave_out}.",
            )
    return Planned(Step.USE, each, uid)


def _differs(before: Any, after: Any) -> bool:
    return bool(_content(before) != _content(after))


def _content(each: Any) -> Any:
    meta = {key: value for key, value in mapping(each, "metadata").items() if key not in _BY_SERVER}
    return {key: value for key, value in each.items() if key != "status"} | {"metadata": meta}


def _explained(ref: ClusterRef, each: Mapping[str, Any], error: KubeError) -> CockpitError:
    what = described(each)
    if error.status == 409 and error.what.startswith("Apply failed"):
        return CockpitError(
            f"{what} was changed by another client, so nothing was applied.",
            one_line(error.what, 300),
            "To overwrite the change, add --force-conflicts.",
        )
    if error.status == 409 or "metadata.uid" in error.what:
        return CockpitError(
            f"{what} was replaced or changed since the plan was shown.",
            one_line(error.what),
            "Run the command again.",
        )
    return CockpitError(
        f"The API server refuses {what}.",
        one_line(error.what, 300),
        f"If its fields are unknown there, update KubeRay in context {one_line(ref.context)}."
        if each["kind"] == RAY_CLUSTER.name
        else "",
    )
