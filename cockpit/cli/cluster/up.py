"""`cockpit up`: create a cluster and what it needs, and wait until it is ready."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from cockpit.cli.options import confirm
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.config.cluster_flags import Place
from cockpit.config.repeatable_flag import repeatable
from cockpit.format import duration, plural
from cockpit.model.cluster import ClusterRef, Resources
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.recovery import FAST
from cockpit.store.store import Store

if TYPE_CHECKING:
    from cockpit.backends.kuberay.api.client import KubeClient
    from cockpit.backends.kuberay.api.credentials import Credentials
    from cockpit.backends.kuberay.api.kubeconfig import KubeContext
    from cockpit.backends.kuberay.provision.apply import Planned
    from cockpit.backends.kuberay.provision.overlay import Wanted

T = TypeVar("T")
WHERE = ("kubernetes", "local", "hosts", "lambda")
WITH_FILE = ("hosts", "lambda")
OVERLAYS = ("cpu", "gpu", "recovery", "autoscaling", "monitoring")
PARTS = ("namespace", "quota", "priorities", "roles", "network", "budgets", "claim")
TIMEOUT_S = 900.0
"""A node may have to be made, and an image of several GB to be pulled."""
ONLY_ON_KUBERNETES = (
    *("overlay", "gpu", "small", "image", "queue", "storage_class", "nfs", "host_path", "without"),
    *("s3", "s3_secret", "s3_region", "s3_endpoint"),
    *("no_wait", "force_conflicts"),
)


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    on_argument(parser)
    parser.add_argument(
        "--size", type=int, metavar="N", help="worker pods (default: those of the overlay, 2)"
    )
    parser.add_argument(
        "--overlay",
        choices=OVERLAYS,
        help="overlay of manifests/kubernetes (default: recovery, which has a spare worker)",
    )
    parser.add_argument(
        "--gpu", action="store_true", help="one GPU per worker: same as --overlay gpu"
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="lower the pods' requests, so that all fit on a node with 2 CPUs",
    )
    parser.add_argument("--image", metavar="NAME", help="the image of all pods, with its tag")
    parser.add_argument(
        "--queue",
        metavar="NAME",
        help="the cluster waits in this LocalQueue of Kueue, or volcano:NAME",
    )
    parser.add_argument(
        "--storage-class",
        metavar="NAME",
        help="StorageClass for the checkpoints; must support ReadWriteMany",
    )
    parser.add_argument("--nfs", metavar="SERVER:/PATH", help="checkpoints on an NFS server")
    parser.add_argument(
        "--host-path",
        metavar="PATH",
        help="checkpoints in a directory of the node, for single-node clusters",
    )
    parser.add_argument(
        "--s3",
        metavar="ADDRESS",
        help="checkpoints in s3://BUCKET/PATH; no PersistentVolumeClaim is created",
    )
    parser.add_argument(
        "--s3-secret",
        metavar="NAME",
        help="the Secret in the namespace with the credentials for --s3",
    )
    parser.add_argument("--s3-region", metavar="REGION", help="region of the bucket")
    parser.add_argument(
        "--s3-endpoint", metavar="URL", help="endpoint of an S3-compatible server other than AWS"
    )
    repeatable(
        parser,
        "--without",
        "PART",
        f"leave out a part that exists or is not needed: {', '.join(PARTS)}; repeatable",
    )
    parser.add_argument(
        "--force-conflicts", action="store_true", help="overwrite changes of other clients"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is ready")
    parser.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="S",
        help="maximum time to wait, in seconds (default 900)",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "yaml"),
        default="table",
        help="json: the result; yaml: the objects (with --dry-run: for kubectl apply -f -)",
    )
    confirm.arguments(parser)


def on_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on", choices=WHERE, help="where the cluster is (default: from the cluster options)"
    )
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="for --on hosts and --on lambda: the file that describes the cluster",
    )


def place_of(args: argparse.Namespace) -> str:
    """One of WHERE. Raises UsageError if no flag selects one."""
    where: Place = args.where
    by_flags = {"local": "local", "kuberay": "kubernetes", "ssh": "hosts"}.get(where.kind, "")
    if args.file and args.on not in WITH_FILE:
        raise UsageError(f"FILE {args.file!r} is only for --on hosts and --on lambda.")
    if args.on and by_flags not in ("", args.on) and (args.on, by_flags) != ("lambda", "hosts"):
        raise UsageError(f"--on {args.on} and the flags of the cluster cannot be combined.")
    if found := args.on or by_flags:
        return str(found)
    raise UsageError(
        f"cockpit {args.verb} needs --on.",
        todo=f"For example: cockpit {args.verb} --on kubernetes, --on local, --on hosts FILE "
        "or --on lambda FILE",
    )


def run(args: argparse.Namespace) -> int:
    place = place_of(args)
    if place == "local":
        return _local(args)
    if place in WITH_FILE:
        return _with_file(args, place)
    if args.gpu and args.overlay not in (None, "gpu"):
        raise UsageError(f"--gpu and --overlay {args.overlay} cannot be combined.")
    from cockpit.backends.kuberay.provision import overlay
    from cockpit.backends.kuberay.provision.overlay import S3, Volume, Wanted

    of_s3 = (args.s3_secret or "", args.s3_region or "", args.s3_endpoint or "")
    if any(of_s3) and not args.s3:
        raise UsageError(
            "--s3-secret, --s3-region and --s3-endpoint are for --s3.",
            "Without it, the checkpoints are on the volume of the claim.",
            todo="For example: --s3 s3://BUCKET/runs --s3-secret s3",
        )
    wanted = Wanted(
        namespace=args.where.namespace or overlay.NAMESPACE,
        cluster=args.where.cluster or overlay.CLUSTER,
        overlay=args.overlay or ("gpu" if args.gpu else "recovery"),
        size=args.size,
        image=args.image or "",
        volume=Volume(args.storage_class or "", args.nfs or "", args.host_path or ""),
        without=frozenset(args.without),
        queue=args.queue or "",
        small=args.small,
        s3=S3(args.s3, *of_s3) if args.s3 else None,
    )
    if args.output == "yaml" and args.dry_run:
        return _print_yaml(wanted)
    from cockpit.cli.options import kubernetes

    configured = kubernetes.config(args.where)
    context = configured.context(args.where.context)
    wanted = replace(wanted, namespace=namespace_of(args.where, context))
    ref = ClusterRef("kuberay", wanted.cluster, wanted.namespace, context.name)
    return _up(args, wanted, ref, kubernetes.credentials(configured, context.name))


def namespace_of(where: Place, context: KubeContext) -> str:
    """That of the flags, else of the context, else that of the manifests.

    A context without a namespace has `default`, where no cluster belongs.
    """
    from cockpit.backends.kuberay.provision import overlay

    of_context = context.namespace if context.namespace != "default" else ""
    return where.namespace or of_context or overlay.NAMESPACE


def with_client(who: Credentials, use: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Run a coroutine with a client of its own event loop."""
    from cockpit.backends.kuberay.api.client import KubeClient

    async def run() -> T:
        client = KubeClient(who)
        try:
            return await use(client)
        finally:
            await client.aclose()

    return asyncio.run(run())


def _refuse_kubernetes(args: argparse.Namespace) -> None:
    given = [name for name in ONLY_ON_KUBERNETES if getattr(args, name)]
    if given or args.output == "yaml":
        flag = given[0].replace("_", "-") if given else "output yaml"
        raise UsageError(f"--{flag} is for --on kubernetes.", todo="See: cockpit up --help")


def _with_file(args: argparse.Namespace, place: str) -> int:
    from cockpit.cli.cluster import hosts, lambda_cloud

    _refuse_kubernetes(args)
    if args.size is not None:
        raise UsageError(f"--size is not for --on {place}.", todo="Set [replicas] in the file.")
    if args.output != "table":
        raise UsageError("-o is for --on kubernetes.")
    return hosts.start(args) if place == "hosts" else lambda_cloud.start(args)


def _local(args: argparse.Namespace) -> int:
    from cockpit.cli.cluster import local

    _refuse_kubernetes(args)
    count = 2 if args.size is None else args.size
    group = local.group("workers", count, Resources(cpus=1.0))
    return local.start(args, args.where.cluster or local.DEFAULT_NAME, [group], FAST.name)


def _print_yaml(wanted: Wanted) -> int:
    """Without a request: as `kubectl apply -f -` takes it."""
    from cockpit.backends.kuberay.provision.overlay import objects
    from cockpit.model.decoding import limited_yaml

    print(limited_yaml.dumps(*objects(wanted)), end="")
    return int(ExitCode.DONE)


def _up(args: argparse.Namespace, wanted: Wanted, ref: ClusterRef, who: Credentials) -> int:
    from cockpit.actions import provisioning
    from cockpit.backends.kuberay.provision import preconditions
    from cockpit.backends.kuberay.provision.apply import Step
    from cockpit.backends.kuberay.provision.overlay import objects

    made, force = objects(wanted), args.force_conflicts
    planned = with_client(
        who, lambda client: provisioning.plan(client, ref, wanted, made, force=force)
    )
    changed = [each for each in planned if each.step in (Step.CREATE, Step.CHANGE)]
    replaces = any(each.step is Step.CHANGE for each in planned)
    started = time.monotonic()
    if changed:
        if not confirm.confirmed(args, plan_lines(planned), ref, destroys=replaces):
            return confirm.not_confirmed(args)
        with_client(who, lambda client: provisioning.create(client, ref, planned, log, force=force))
    else:
        log(f"{ref.described}: everything is as in the manifests.")
        if args.dry_run:
            return int(ExitCode.DONE)
    missing = ""
    if wanted.s3 is not None:
        missing = with_client(who, lambda c: preconditions.missing_secret(c, ref, wanted))
    if missing:
        log(f"Pods wait for the Secret {missing}: {preconditions.secret_command(ref, missing)}")
    if not args.no_wait:
        from cockpit.backends.kuberay.backend import KubeRayBackend
        from cockpit.backends.kuberay.provision import claim
        from cockpit.cli.cluster import readiness
        from cockpit.session import builder

        backend = KubeRayBackend(who, ref, kinds=("cluster", "pods", "events", "queues"))
        with builder.session_on(backend, sources=()) as session:
            readiness.wait(
                session,
                args.timeout,
                lambda: session.call(claim.pending(backend.client, ref)),
            )
            if args.output == "json":
                tables.print_json(_result(planned, session.store, ref))
        log(f"RayCluster {ref.name} is ready after {duration(time.monotonic() - started)}.")
    elif args.output == "json":
        tables.print_json(_result(planned, Store(), ref))
    if args.output == "yaml":
        return _print_yaml(wanted)
    log(
        f"Next: cockpit launch checkpointed --workers 2 --set storage_path={wanted.storage_path} "
        f"-n {ref.namespace} --cluster {ref.name}"
    )
    return int(ExitCode.DONE)


def plan_lines(planned: Sequence[Planned]) -> list[str]:
    from cockpit.backends.kuberay.provision.apply import Step
    from cockpit.backends.kuberay.provision.kinds import RAY_CLUSTER, described, kind_of
    from cockpit.backends.kuberay.provision.overlay import group_sizes, templates

    def of(step: Step) -> list[Planned]:
        return [each for each in planned if each.step is step]

    cluster = next(each for each in planned if kind_of(each.wanted) is RAY_CLUSTER)
    sizes = group_sizes(cluster.wanted)
    groups = ", ".join(f"{plural(size, 'pod')} in group {name}" for name, size in sizes.items())
    images = sorted({each["spec"]["containers"][0]["image"] for each in templates(cluster.wanted)})
    word = {Step.CREATE: "Create", Step.CHANGE: "Change"}.get(cluster.step, "Keep")
    lines = [f"{word} {described(cluster.wanted)}: a head and {groups}; {', '.join(images)}."]
    for step, word in ((Step.CREATE, "Create"), (Step.CHANGE, "Change"), (Step.USE, "Use")):
        others = [each for each in of(step) if each is not cluster]
        if not others:
            continue
        kinds = Counter(each.wanted["kind"] for each in others)
        names = ", ".join(
            described(next(each.wanted for each in others if each.wanted["kind"] == kind))
            if count == 1
            else plural(count, kind)
            for kind, count in kinds.items()
        )
        end = ", which cockpit did not create" if step is Step.USE else ""
        lines.append(f"{word} {names}{end}.")
    if cluster.step is Step.CHANGE:
        lines.append("A changed size is applied to running pods; runs on removed pods restart.")
    return lines


def _result(planned: Sequence[Planned], store: Store, ref: ClusterRef) -> dict[str, object]:
    from cockpit.backends.kuberay.provision.apply import Step
    from cockpit.backends.kuberay.provision.kinds import described

    by_step = {
        word: [described(each.wanted) for each in planned if each.step is step]
        for word, step in (
            ("created", Step.CREATE),
            ("changed", Step.CHANGE),
            ("unchanged", Step.KEEP),
            ("used", Step.USE),
        )
    }
    return {
        "cluster": ref.name,
        "context": ref.context,
        "namespace": ref.namespace,
        "health": store.health,
        **by_step,
    }
