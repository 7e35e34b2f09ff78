"""`-A` and `-l` of the verbs that list objects of Kubernetes, as kubectl has them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cockpit.cli.output.tables import as_json
from cockpit.model.error import CockpitError, UsageError

if TYPE_CHECKING:
    from cockpit.backends.kuberay.api.client import KubeClient
    from cockpit.cli.options.connect import Session

VERBS = ("pods", "jobs")
RAYJOBS = "/apis/ray.io/v1{}/rayjobs"
PODS = "/api/v1{}/pods"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="Kubernetes: in all namespaces of the context",
    )
    parser.add_argument(
        "-l",
        "--selector",
        default="",
        metavar="LABELS",
        help="Kubernetes: only with these labels, as team=nlp,tier!=test",
    )


def is_asked(args: argparse.Namespace) -> bool:
    return bool(getattr(args, "all_namespaces", False) or getattr(args, "selector", ""))


def require_kubernetes(args: argparse.Namespace) -> None:
    """Raise UsageError if the flags select a cluster that has no namespaces and labels."""
    if is_asked(args) and args.where.kind in ("local", "address", "ssh"):
        flag = "hosts" if args.where.kind == "ssh" else args.where.kind
        raise UsageError("-A and -l are for Kubernetes.", todo=f"Leave out --{flag}.")


def rows(args: argparse.Namespace) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Read the pods of all RayClusters, or all RayJobs, of a context.

    Returns the rows and the columns that come before those of one cluster.
    """
    from cockpit.backends.kuberay.api.client import KubeClient
    from cockpit.backends.kuberay.resources import objects
    from cockpit.cli.options import kubernetes

    require_kubernetes(args)
    configured = kubernetes.config(args.where)
    context = configured.context(args.where.context).name
    path, labels = RAYJOBS, args.selector
    if args.verb == "pods":
        path = PODS
        labels = ",".join(filter(None, (objects.CLUSTER_LABEL, labels)))

    async def listed() -> list[Any]:
        client = KubeClient(kubernetes.credentials(configured, context))
        try:
            return await _objects(client, path.format(""), labels)
        finally:
            await client.aclose()

    found = []
    for raw in asyncio.run(listed()):
        meta = raw["metadata"]
        where = {"namespace": meta["namespace"], "name": meta["name"]}
        if args.verb == "pods":
            cluster = meta["labels"][objects.CLUSTER_LABEL]
            found.append(where | {"cluster": cluster} | as_json(objects.pod(raw)))
        else:
            job = objects.ray_job(raw)
            found.append(where | as_json(job) | {"name": job.id})
    found.sort(key=lambda row: (row["namespace"], row["cluster"], row["name"]))
    return found, ("namespace", "cluster") if args.verb == "pods" else ("namespace",)


def selected(
    args: argparse.Namespace, session: Session, rows: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The rows of pods or RayJobs of one cluster whose object has the labels of `-l`."""
    from cockpit.backends.kuberay.backend import KubeRayBackend

    backend = session.backend
    if not isinstance(backend, KubeRayBackend):
        raise UsageError(f"{backend.ref} is not on Kubernetes, and has no labels.", todo="Drop -l.")
    key, path = ("name", PODS) if args.verb == "pods" else ("rayjob", RAYJOBS)
    in_namespace = path.format(f"/namespaces/{backend.ref.namespace}")
    found = session.call(_objects(backend.client, in_namespace, args.selector))
    names = {raw["metadata"]["name"] for raw in found}
    return [row for row in rows if row[key] in names]


async def _objects(client: KubeClient, path: str, labels: str) -> list[Any]:
    from cockpit.backends.kuberay.api.client import KubeError
    from cockpit.cli.options.kubernetes import invalid_selector

    try:
        return await client.objects(path, {"labelSelector": labels} if labels else None)
    except KubeError as error:
        if error.status == 400 and labels:
            raise invalid_selector(labels, error) from error
        if error.status == 404:
            raise CockpitError(
                "This context has no RayJobs: KubeRay is not installed there.", error.what
            ) from error
        raise
