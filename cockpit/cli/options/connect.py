"""From the flags to a cluster: its backend, and a session on it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cockpit.cli.options import cluster_choice
from cockpit.cli.output.streams import log
from cockpit.config.cluster_flags import Place
from cockpit.session import builder
from cockpit.session.session import Session

if TYPE_CHECKING:
    from cockpit.backends.kuberay.api.kubeconfig import KubeConfig
    from cockpit.backends.protocol import Backend
    from cockpit.model.run import Job
    from cockpit.store.store import Store

SETTLE_S = 5.0
"""How long a one-shot query waits for its slowest source; what is missing is shown as missing."""
TARGET_SETTLE_S = 30.0
"""For verbs that choose a target from what the sources report: a slow head is no empty one."""

SSH_SETTLE_S = 20.0
"""For a cluster on hosts: each verb first connects to all of them."""

__all__ = ["Session", "backend", "session", "wait_for"]

Log = Callable[[str], None]


class OnKubernetes(Struct, frozen=True):
    """A cluster on Kubernetes that is not resolved yet."""

    configured: KubeConfig


def backend(
    args: argparse.Namespace,
    *,
    kinds: Collection[str] | None = None,
    once: bool = False,
    log: Log = log,
) -> Backend:
    """Return the cluster that flags, environment and profile select, or the only one that exists.

    `kinds`: what will be read (None: everything); `once`: one query is enough; `log` reports the
    selected cluster when it is not obvious.
    """
    meant = found(args, log)
    if not isinstance(meant, OnKubernetes):
        return meant
    from cockpit.cli.options import kubernetes

    return kubernetes.opened(args.where, meant.configured, kinds, once=once)


def found(args: argparse.Namespace, log: Log = log) -> Backend | OnKubernetes:
    """Return the kind of the selected cluster; reads only files."""
    where: Place = args.where
    if where.kind == "address":
        from cockpit.backends.address import AddressBackend

        return AddressBackend(where.address)
    if where.kind == "ssh":
        from cockpit.backends.lambda_cloud import description
        from cockpit.backends.ssh.backend import SshBackend

        return SshBackend(description.hosts_of(where.hosts))
    if where.kind != "kuberay" and (local := _local(where, log)) is not None:
        return local
    from cockpit.cli.options import kubernetes

    return OnKubernetes(kubernetes.config(where))


def rayjob(store: Store, name: str) -> Job | None:
    """The job of a RayJob, by its own id or the resource's name."""
    listed = store.jobs.values()
    return next((job for job in listed if job.rayjob and name in (job.id, job.rayjob)), None)


def cluster_of(args: argparse.Namespace, session: Session, job: Job) -> Backend:
    """The cluster on which a job runs: a RayJob may create one."""
    own = session.backend
    if job.cluster in ("", own.ref.name):
        return own
    from cockpit.cli.options import kubernetes

    where = replace(args.where, dashboard_url="")
    return kubernetes.backend(where, kubernetes.config(where), replace(own.ref, name=job.cluster))


def _local(where: Place, log: Log) -> Backend | None:
    """A local cluster, if it is selected, or if one runs and no other cluster is selected."""
    from cockpit.backends.local import list_clusters

    there = list_clusters()
    if not where.local:
        configured = cluster_choice.kubernetes_is_configured()
        meant = [c for c in there if not where.cluster or c.name == where.cluster]
        if not meant:
            if configured:
                return None
            if there or where.cluster:
                cluster_choice.local(there, where.cluster)
            raise cluster_choice.nothing_there(where)
        if configured:
            name = cluster_choice.local(meant, where.cluster)
            log(
                f"Using local cluster {name}. There is also a kubeconfig: to use one of its "
                "clusters, add --context NAME."
            )
    from cockpit.backends.local import LocalBackend

    return LocalBackend(cluster_choice.local(there, where.cluster))


def session(
    args: argparse.Namespace,
    *,
    sources: Sequence[str] = builder.POLLED,
    kinds: Collection[str] | None = None,
    once: bool = False,
) -> Session:
    """A session on the chosen cluster with those of the sources that are wanted; not started."""
    return builder.session_on(backend(args, kinds=kinds, once=once), sources=sources)


def wait_for(session: Session, sources: Sequence[str], timeout_s: float = SETTLE_S) -> None:
    """Wait until each source has reported its health, or the time is up."""
    wanted = set(sources)
    if session.backend.ref.backend == "ssh":
        timeout_s = max(timeout_s, SSH_SETTLE_S)
    session.wait(lambda store: wanted <= store.sources.keys() and store.pods_complete, timeout_s)
