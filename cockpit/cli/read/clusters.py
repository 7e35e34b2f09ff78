"""`cockpit clusters`: a row a cluster, over all contexts and this machine; `cockpit contexts`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any

from msgspec import Struct

from cockpit.cli.options import cluster_choice
from cockpit.cli.output import tables
from cockpit.cli.read import namespaces
from cockpit.config.cluster_flags import Place
from cockpit.format import in_seconds
from cockpit.model.cluster import ClusterRef, ClusterSummary, NodeType
from cockpit.model.error import CockpitError, ExitCode
from cockpit.model.secret import without_credentials
from cockpit.model.text import one_line

CONTEXT_TIMEOUT_S = 5.0
"""A context without an answer for this long is reported as such; the others do not wait for it."""
COLUMNS = (
    "context",
    "namespace",
    "name",
    "health",
    "ready",
    "desired",
    "groups",
    "gpus",
    "ray_version",
    "message",
)

log = logging.getLogger(__name__)


class Answer(Struct, frozen=True):
    """The result of one context: its clusters, or the error."""

    context: str
    clusters: tuple[ClusterSummary, ...] = ()
    error: CockpitError | None = None


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    tables.arguments(parser, tables.LISTS)
    if verb == "clusters":
        namespaces.arguments(parser)
        parser.add_argument(
            "--history",
            action="store_true",
            help="list the sessions of deleted clusters that KubeRay's History Server has",
        )


def run(args: argparse.Namespace) -> int:
    if args.verb == "contexts":
        return _contexts(args)
    if args.history:
        return _sessions(args)
    namespaces.require_kubernetes(args)
    found, answers = listed(args.where, args.selector, everywhere=args.all_namespaces)
    rows = [row(cluster) for cluster in found]
    for answer in answers:
        rows += [row(cluster) for cluster in answer.clusters]
    failed = [answer for answer in answers if answer.error is not None]
    for answer in failed:
        error = answer.error
        assert error is not None
        why = one_line(error.what_and_why)
        print(f"Context {one_line(answer.context)}: {why}", file=sys.stderr)
        if args.output not in ("table", "name"):
            rows.append(_failed(answer.context, error))
    columns = (*COLUMNS, "backend", "autoscaled", "created_s") if args.wide else COLUMNS
    tables.print_rows(rows, columns, args.output, empty=none(answers), name_of=_name)
    if failed and len(failed) == len(answers) and not found:
        assert failed[0].error is not None
        return int(failed[0].error.code)
    return int(ExitCode.DONE)


def none(answers: Sequence[Answer]) -> str:
    """Why no cluster is listed, and what to do."""
    if not answers:
        return (
            "No clusters. Start one on this host: cockpit local up. For Kubernetes, set KUBECONFIG."
        )
    if all(answer.error is not None for answer in answers):
        return "No clusters are known: no context has answered. See: cockpit doctor"
    if any(answer.error is not None for answer in answers):
        return "No clusters in the contexts that have answered."
    return "No RayClusters in these contexts. To create one: cockpit up --on kubernetes"


def _sessions(args: argparse.Namespace) -> int:
    """The sessions of the History Server; those of clusters that exist are left out."""
    from cockpit.cli.options import history
    from cockpit.sources.history_server.server import LIVE

    rows = [
        {
            "name": each.cluster,
            "namespace": each.namespace,
            "session": each.name,
            "created_s": each.created_s or None,
            "owner": f"{each.owner_kind}/{each.owner}" if each.owner else "",
            "backend": "kuberay",
        }
        for each in history.sessions()
        if each.name != LIVE and args.where.namespace in ("", each.namespace)
    ]
    columns = ("namespace", "name", "created_s", "owner", "session")
    tables.print_rows(
        rows,
        columns,
        args.output,
        empty="The History Server has no session of a deleted cluster.",
        name_of=_name,
    )
    return int(ExitCode.DONE)


def row(cluster: ClusterSummary) -> dict[str, Any]:
    ref = cluster.ref
    return {
        "name": ref.name,
        "backend": ref.backend,
        "context": ref.context,
        "namespace": ref.namespace,
        "health": cluster.health,
        "message": cluster.message,
        "desired": cluster.desired,
        "ready": cluster.ready,
        "groups": cluster.groups,
        "gpus": cluster.gpus,
        "ray_version": cluster.ray_version,
        "created_s": cluster.created_s or None,
        "autoscaled": cluster.autoscaled,
        "error": "",
    }


def _name(row: tables.Row) -> str:
    return f"{'raycluster' if row['backend'] == 'kuberay' else 'cluster'}/{row['name']}"


def _failed(context: str, error: CockpitError) -> dict[str, Any]:
    """An unreachable context is a row too: a program must not take it for an empty one."""
    return {
        "name": "",
        "backend": "kuberay",
        "context": context,
        "error": one_line(str(error)),
    }


def listed(
    where: Place, selector: str = "", *, everywhere: bool = False
) -> tuple[list[ClusterSummary], list[Answer]]:
    """The clusters of this machine, and the answer of each context; of `where` alone if named.

    With a label selector, those of Kubernetes only; `everywhere` in all namespaces of `where`.
    """
    on_kubernetes = where.kind == "kuberay" or (
        where.kind == "" and cluster_choice.kubernetes_is_meant()
    )
    found = local_clusters() if where.kind in ("", "local") and not selector else []
    return found, _ask(where, selector, everywhere) if on_kubernetes else []


def local_clusters() -> list[ClusterSummary]:
    from cockpit.backends.local import list_clusters

    return [
        ClusterSummary(
            ClusterRef("local", cluster.name),
            cluster.health,
            cluster.message,
            desired=sum(group.desired for group in cluster.groups),
            ready=sum(pod.ready for pod in cluster.pods if pod.node_type is NodeType.WORKER),
            groups=len(cluster.groups),
            gpus=sum(group.desired * group.resources.gpus for group in cluster.groups),
            ray_version=cluster.ray_version,
        )
        for cluster in list_clusters()
    ]


def _ask(where: Place, selector: str, everywhere: bool) -> list[Answer]:
    from cockpit.cli.options import kubernetes

    configured = kubernetes.config(where)
    names = (
        [configured.context(where.context).name]
        if where.context
        else [context.name for context in configured.contexts]
    )

    async def one(context: str) -> Answer:
        try:
            async with asyncio.timeout(CONTEXT_TIMEOUT_S):
                clusters = await kubernetes.all_clusters(
                    configured, context, where.namespace, selector, everywhere=everywhere
                )
            return Answer(context, clusters)
        except CockpitError as error:
            return Answer(context, error=error)
        except TimeoutError:
            no_answer = f"It did not answer in {in_seconds(CONTEXT_TIMEOUT_S)}."
            return Answer(context, error=kubernetes.unreachable(configured, context, no_answer))

    async def all_of_them() -> list[Answer]:
        asyncio.get_running_loop().set_default_executor(_DaemonThreads())
        return list(await asyncio.gather(*map(one, names)))

    return asyncio.run(all_of_them())


class _DaemonThreads(ThreadPoolExecutor):
    """Daemon threads, so that the process can exit.

    asyncio resolves names and runs credential plugins in its executor; either may hang for a
    minute, and Python joins an executor's threads before it exits.
    """

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()

        def work() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(fn(*args, **kwargs))
            except BaseException as error:
                log.debug("a thread ended with an error", exc_info=True)
                done.set_exception(error)

        Thread(target=work, daemon=True).start()
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Return at once, without waiting for the threads."""


def _contexts(args: argparse.Namespace) -> int:
    from cockpit.cli.options import kubernetes

    configured = kubernetes.config(args.where)
    taken = args.where.context or configured.current
    rows = [
        {
            "name": one_line(context.name),
            "current": context.name == taken,
            "server": one_line(without_credentials(context.server)),
            "namespace": one_line(context.namespace),
            "user": one_line(context.user),
        }
        for context in configured.contexts
    ]
    columns = ("name", "current", "server", "namespace", "user")
    tables.print_rows(rows, columns, args.output, empty="The kubeconfig has no contexts.")
    return int(ExitCode.DONE)
