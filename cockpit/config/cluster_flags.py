"""Select the cluster from flags, environment variables and profile."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from cockpit.model.error import UsageError

KUBERNETES = ("context", "namespace", "kubeconfig", "dashboard_url", "token_secret")
"""Options that apply only to a cluster on Kubernetes."""


class Place(Struct, frozen=True):
    """The options of one level (flags, environment or profile), or of all levels merged."""

    local: bool = False
    address: str = ""
    """The URL of a Ray dashboard."""
    hosts: str = ""
    """A file that describes hosts, for OpenSSH."""
    context: str = ""
    namespace: str = ""
    cluster: str = ""
    kubeconfig: str = ""
    dashboard_url: str = ""
    """On Kubernetes: the URL of the dashboard, used instead of a route through the API server."""
    token_secret: str = ""
    """On Kubernetes: a Secret with Ray's token, in addition to the one that KubeRay creates."""

    @property
    def kind(self) -> str:
        """`local`, `address`, `ssh`, `kuberay`, or empty if at most a name is given."""
        if self.local:
            return "local"
        if self.address:
            return "address"
        if self.hosts:
            return "ssh"
        return "kuberay" if any(getattr(self, name) for name in KUBERNETES) else ""

    def require_one_kind(self, who: str) -> None:
        """Raises UsageError when it names two kinds of cluster at once."""
        flags = [f"--{name}" for name in ("local", "address", "hosts") if getattr(self, name)]
        flags += [f"--{name.replace('_', '-')}" for name in KUBERNETES if getattr(self, name)][:1]
        if len(flags) > 1:
            raise UsageError(
                f"{who} ask for {' and '.join(flags)} at once.",
                "--local is a cluster of this machine, --address a Ray dashboard, --hosts a list "
                "of hosts, --context one on Kubernetes.",
                "Keep one of them.",
            )


FLAGS = Place.__struct_fields__


def settle(levels: Iterable[Place]) -> Place:
    """Merge the levels, strongest first.

    If a weaker level names another cluster than a stronger one, all of it is ignored: its namespace
    and RayCluster would belong to the other cluster.
    """
    settled = Place()
    for weaker in levels:
        settled = _merged(settled, weaker)
    return settled


def _merged(strong: Place, weak: Place) -> Place:
    if strong.kind and weak.kind and strong.kind != weak.kind:
        return strong
    if any(
        _differ(getattr(strong, n), getattr(weak, n)) for n in ("kubeconfig", "address", "hosts")
    ):
        return strong
    if _differ(strong.context, weak.context):
        return replace(strong, kubeconfig=strong.kubeconfig or weak.kubeconfig)
    if _differ(strong.namespace, weak.namespace):
        weak = replace(weak, cluster="", dashboard_url="", token_secret="")
    if _differ(strong.cluster, weak.cluster):
        weak = replace(weak, dashboard_url="", token_secret="")
    return Place(*(getattr(strong, name) or getattr(weak, name) for name in FLAGS))


def _differ(strong: str, weak: str) -> bool:
    """Both are given, and they are not the same."""
    return bool(strong and weak and strong != weak)
