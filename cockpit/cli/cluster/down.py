"""`cockpit down`: delete what `cockpit up` created, by its labels."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cockpit.cli.cluster import up
from cockpit.cli.options import confirm
from cockpit.cli.output.streams import log
from cockpit.config.cluster_flags import Place
from cockpit.format import plural
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import ExitCode, UnreachableError, UsageError
from cockpit.model.text import one_line

if TYPE_CHECKING:
    from cockpit.backends.kuberay.api.client import KubeClient
    from cockpit.backends.kuberay.api.kubeconfig import KubeContext
    from cockpit.backends.kuberay.provision.removal import Removal


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    up.on_argument(parser)
    parser.add_argument(
        "--keep-claim",
        action="store_true",
        help="keep the PersistentVolumeClaim of the checkpoints",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=up.TIMEOUT_S,
        metavar="S",
        help=(
            "for --on lambda: maximum time until the instances are terminated, in seconds "
            "(default 900)"
        ),
    )
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if (place := up.place_of(args)) != "kubernetes":
        from cockpit.cli.cluster import hosts, lambda_cloud, local

        if args.keep_claim:
            raise UsageError("--keep-claim is for --on kubernetes.")
        if place == "lambda":
            return lambda_cloud.stop(args)
        return hosts.stop(args) if place == "hosts" else local.stop(args, args.where.cluster)
    from cockpit.actions import provisioning
    from cockpit.backends.kuberay.provision import removal
    from cockpit.cli.options import kubernetes

    configured = kubernetes.config(args.where)
    context = configured.context(args.where.context)
    who = kubernetes.credentials(configured, context.name)

    async def find(client: KubeClient) -> tuple[ClusterRef, Removal]:
        ref = await chosen(client, args.where, context)
        return ref, await removal.find(client, ref, keep_claim=args.keep_claim)

    ref, found = up.with_client(who, find)
    if not found.deleted:
        raise UnreachableError(
            f"Nothing that cockpit up created was found for RayCluster {ref.name} in namespace "
            f"{ref.namespace}.",
            "No object has its labels. Delete what kubectl created with kubectl.",
            "See: cockpit clusters",
        )
    if not confirm.confirmed(args, plan_lines(found, ref), ref, destroys=True):
        return confirm.not_confirmed(args)
    count = up.with_client(who, lambda client: provisioning.remove(client, ref, found, log))
    log(f"Deleted {plural(count, 'object')} of RayCluster {ref.name}.")
    return int(ExitCode.DONE)


async def chosen(client: KubeClient, where: Place, context: KubeContext) -> ClusterRef:
    """The cluster of the flags, else the only one that `cockpit up` created.

    A named one may have lost its RayCluster: what is left of it is still found.
    """
    from cockpit.backends.kuberay.api.client import ForbiddenError
    from cockpit.backends.kuberay.provision import removal

    try:
        found = await removal.clusters(client, where.namespace)
    except ForbiddenError:
        found = await removal.clusters(client, up.namespace_of(where, context))
    meant = [one for one in found if where.cluster in ("", one[1])]
    if len(meant) == 1:
        return ClusterRef("kuberay", meant[0][1], meant[0][0], context.name)
    if where.cluster and (where.namespace or not meant):
        namespace = up.namespace_of(where, context)
        return ClusterRef("kuberay", where.cluster, namespace, context.name)
    if not meant:
        raise UnreachableError(
            f"cockpit up has created no RayCluster in context {one_line(context.name)}.",
            todo="If one was deleted, name it with -n and --cluster to delete the rest.",
        )
    names = "; ".join(f"-n {one_line(ns)} --cluster {one_line(name)}" for ns, name in meant)
    raise UsageError(f"cockpit up has created {len(meant)} RayClusters: {names}.", todo="Name one.")


def plan_lines(found: Removal, ref: ClusterRef) -> list[str]:
    from cockpit.backends.kuberay.provision.kinds import CLAIM, NAMESPACE, RAY_CLUSTER, described

    by_kind = {each["kind"]: each for each in found.deleted}
    lines = []
    if RAY_CLUSTER.name in by_kind:
        lines.append(
            f"Delete RayCluster {ref.name}, its {plural(found.pods, 'pod')} and every run on them."
        )
    if CLAIM.name in by_kind:
        retained = "PersistentVolume" in by_kind
        lines.append(
            f"Delete {described(by_kind[CLAIM.name])}; "
            + (
                "the files on its volume stay."
                if retained
                else "with most storage classes, its checkpoints are lost (--keep-claim keeps it)."
            )
        )
    if NAMESPACE.name in by_kind:
        lines.append(f"Delete {described(by_kind[NAMESPACE.name])}.")
    rest = len(found.deleted) - len(lines)
    if rest:
        lines.append(f"Delete {plural(rest, 'other object')} that cockpit up created.")
    lines += [f"Keep {what}: {why}." for what, why in found.kept]
    return lines
