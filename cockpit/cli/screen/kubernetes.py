"""The screen on Kubernetes: one RayCluster, the fleet beside it, and how to get to another."""

from __future__ import annotations

from cockpit.backends.kuberay.api.kubeconfig import KubeConfig
from cockpit.cli.options import kubernetes
from cockpit.cli.options.cluster_choice import SeveralError
from cockpit.cli.options.cluster_flags import Place
from cockpit.cli.screen import connection as on_backend
from cockpit.cli.screen import fleet
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line
from cockpit.tui.changes.actions import Connection, Log


def connection(
    where: Place, configured: KubeConfig, say: Log, *, undoes: bool = True
) -> Connection:
    """On the cluster that is meant; without a session while it is to be chosen there."""
    beside = fleet.session(configured)

    def reconnect(ref: ClusterRef, say: Log) -> Connection:
        # An explicit dashboard is that of the cluster that was named with it.
        there = where if ref == kubernetes.named(where, configured) else Place()
        return on_backend.connection(kubernetes.backend(there, configured, ref), undoes=undoes)

    try:
        ref = _chosen(where, configured, say)
        made = reconnect(ref, say) if ref is not None else Connection(None)
    except BaseException:
        beside.close()
        raise
    return Connection(
        made.session, made.actions, made.log_source, fleet=beside, reconnect=reconnect
    )


def _chosen(where: Place, configured: KubeConfig, say: Log) -> ClusterRef | None:
    """None: the user chooses. A context that was not asked for and is down is no end of it all."""
    try:
        return kubernetes.chosen(where, configured)
    except SeveralError as error:
        say(one_line(error.what))
        return None
    except CockpitError as error:
        if where.context or len(configured.contexts) < 2:
            raise
        say(one_line(str(error)))
        return None
