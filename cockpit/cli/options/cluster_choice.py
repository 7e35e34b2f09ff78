"""Choose the cluster when the flags do not select one, without contacting a cluster.

`cockpit.cli.options.kubernetes` is imported only when needed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cockpit.config.cluster_flags import Place
from cockpit.model.error import UnreachableError, UsageError
from cockpit.model.text import one_line

if TYPE_CHECKING:
    from cockpit.backends.local import LocalCluster
    from cockpit.model.cluster import ClusterRef

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
LISTED = 8
"""Clusters that an error names; the rest are counted."""


class SeveralError(UsageError):
    """Several clusters match; `refs` lists them."""

    def __init__(self, what: str, why: str, todo: str, refs: Sequence[ClusterRef]) -> None:
        super().__init__(what, why, todo)
        self.refs = tuple(refs)


def kubernetes_is_meant() -> bool:
    """Whether KUBECONFIG is set, be it to a file that is not there, or Kubernetes is configured."""
    return bool(os.environ.get("KUBECONFIG")) or kubernetes_is_configured()


def kubernetes_is_configured() -> bool:
    """Whether there is a kubeconfig, or a pod's ServiceAccount: by the files alone."""
    if named := os.environ.get("KUBECONFIG", ""):
        return any(Path(part).expanduser().is_file() for part in named.split(os.pathsep) if part)
    if "KUBERNETES_SERVICE_HOST" in os.environ and SERVICE_ACCOUNT.exists():
        return True
    home = os.environ.get("HOME", "")
    return bool(home) and Path(home, ".kube", "config").is_file()


def local(clusters: Sequence[LocalCluster], wanted: str) -> str:
    """The name of the chosen local cluster."""
    names = [cluster.name for cluster in clusters]
    if wanted:
        if wanted in names:
            return wanted
        raise UnreachableError(
            f"There is no local cluster {wanted!r}.",
            f"Available: {', '.join(names) or 'none'}.",
            f"Start it with: cockpit local up {wanted}",
        )
    if not names:
        raise UnreachableError(
            "No cluster was found.",
            "No local cluster is running.",
            "Start one with: cockpit local up, or try the demo: cockpit demo",
        )
    if len(names) > 1:
        raise UsageError(
            f"There are {len(names)} local clusters: {', '.join(names)}.",
            todo="Name it with --cluster NAME.",
        )
    return names[0]


def nothing_there(where: Place) -> UnreachableError:
    """There is no local cluster, no kubeconfig and no address."""
    if where.cluster:
        return UnreachableError(
            f"There is no cluster {one_line(where.cluster)!r}.",
            "It is not among the local clusters, and there is no kubeconfig.",
            f"Start it with: cockpit local up {one_line(where.cluster)}",
        )
    return UnreachableError(
        "No cluster was found.",
        "No local cluster is running, there is no kubeconfig, and no --address was given.",
        "Set KUBECONFIG or add --address URL, or start a local cluster: cockpit local up",
    )


def one_of(refs: Sequence[ClusterRef], wanted: ClusterRef, elsewhere: Sequence[ClusterRef]) -> str:
    """Return the name of the only RayCluster of a namespace.

    `wanted` is the searched namespace, `elsewhere` lists the visible clusters of other namespaces.
    """
    where = f"namespace {one_line(wanted.namespace)} of context {one_line(wanted.context)}"
    if len(refs) == 1:
        return refs[0].name
    if refs:
        raise SeveralError(
            f"There are {len(refs)} RayClusters in {where}.",
            f"Choose one: {_listed(refs, wanted)}.",
            "cockpit clusters lists all, with their health.",
            refs,
        )
    if elsewhere:
        raise SeveralError(
            f"There is no RayCluster in {where}.",
            f"Available: {_listed(elsewhere, wanted)}.",
            "Select one of them. cockpit clusters lists all, with their health.",
            elsewhere,
        )
    raise UnreachableError(
        f"There is no RayCluster in {where}.",
        "Other namespaces have none either, or you may not list them.",
        "Select another with -n NAMESPACE or --context NAME; see: cockpit clusters",
    )


def flags_of(ref: ClusterRef, current: ClusterRef) -> str:
    """Return the flags that select this cluster, if `current` is the default."""
    terms = []
    if ref.context != current.context:
        terms.append(f"--context {one_line(ref.context)}")
    if ref.namespace != current.namespace:
        terms.append(f"-n {one_line(ref.namespace)}")
    return " ".join([*terms, f"--cluster {one_line(ref.name)}"])


def _listed(refs: Sequence[ClusterRef], current: ClusterRef) -> str:
    shown = [flags_of(ref, current) for ref in refs[:LISTED]]
    more = len(refs) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
