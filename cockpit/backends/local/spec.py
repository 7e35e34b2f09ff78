"""The spec of a local cluster: its name, its worker groups and their sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.model.cluster import Resources
from cockpit.model.error import UsageError
from cockpit.model.recovery import DEFAULT
from cockpit.model.scale import ScaleRequest, clamped, require_bounds

HEAD_GROUP = "headgroup"
"""KubeRay's name for the head's group."""

MAX_PODS = 200
"""Fewer than the addresses of a cluster's /24, so that a replacement always finds a fresh one."""

HEAD_RESOURCES = Resources(cpus=0)
"""No CPU is offered on the head, as is usual on KubeRay: drivers run there, ranks never do."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class GroupSpec(Struct, frozen=True):
    """The spec of one worker group.

    `replicas` is the requested number; `desired` is within the limits.
    """

    name: str
    replicas: int
    min: int = 0
    max: int = 8
    resources: Resources = field(default_factory=Resources)

    @property
    def desired(self) -> int:
        """Clamped to min and max, as KubeRay does."""
        return max(self.min, min(self.max, self.replicas))


class ClusterSpec(Struct, frozen=True):
    """Everything that the operator needs; written once, then changed by scale requests alone."""

    name: str
    uid: str
    """Marks every process of the cluster, and names its directory under /tmp."""
    network: str
    """The first three octets of its loopback addresses, such as `127.83.201`."""
    gcs_port: int
    dashboard_port: int
    client_port: int
    created_s: float
    python: str
    """The interpreter that has Ray."""
    groups: tuple[GroupSpec, ...]
    recovery: str = DEFAULT.name
    """The name of its pods' recovery profile."""

    @property
    def head_ip(self) -> str:
        return f"{self.network}.1"

    @property
    def gcs_address(self) -> str:
        return f"{self.head_ip}:{self.gcs_port}"

    @property
    def dashboard_url(self) -> str:
        return f"http://{self.head_ip}:{self.dashboard_port}"

    def group(self, name: str) -> GroupSpec:
        """Raises UsageError for a group that the cluster does not have."""
        for group in self.groups:
            if group.name == name:
                return group
        names = ", ".join(group.name for group in self.groups) or "none"
        raise UsageError(
            f"There is no worker group {name!r} in local cluster {self.name}.", f"Groups: {names}."
        )

    def with_group(self, changed: GroupSpec) -> ClusterSpec:
        groups = tuple(changed if group.name == changed.name else group for group in self.groups)
        return replace(self, groups=groups)


def check_name(name: str, what: str = "cluster") -> str:
    """Validate the name as a file name and a label; else UsageError."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a local {what}.",
            "It takes 1 to 40 of a–z, 0–9 and '-', and begins and ends with a letter or digit.",
        )
    return name


def check_groups(groups: Sequence[GroupSpec]) -> tuple[GroupSpec, ...]:
    """Validate the groups; else UsageError."""
    names = [check_name(group.name, "worker group") for group in groups]
    for name in names:
        if names.count(name) > 1 or name == HEAD_GROUP:
            why = "is the head's own" if name == HEAD_GROUP else "is there twice"
            raise UsageError(f"The name of worker group {name!r} {why}.")
    for group in groups:
        require_bounds(group.name, group.replicas, group.min, group.max)
    if (total := sum(group.desired for group in groups)) > MAX_PODS:
        raise UsageError(
            f"{total} pods are too many for one machine.", f"A local cluster holds {MAX_PODS}."
        )
    return tuple(groups)


GRACE_S = 30.0
"""Kubernetes' default grace period, for pods that a scale-down removes."""


def scaled_spec(spec: ClusterSpec, request: ScaleRequest) -> tuple[ClusterSpec, str]:
    """The spec after the request, and a warning when the number was clamped.

    Raises UsageError for an unknown group and for numbers that make no sense.
    """
    scaled_to, warning = scaled_group(spec.group(request.group), request)
    scaled = spec.with_group(scaled_to)
    check_groups(scaled.groups)
    return scaled, warning


def scaled_group(old: GroupSpec, request: ScaleRequest) -> tuple[GroupSpec, str]:
    """The group after the request, as above."""
    wanted = replace(
        old,
        replicas=old.replicas if request.replicas is None else request.replicas,
        min=old.min if request.min_replicas is None else request.min_replicas,
        max=old.max if request.max_replicas is None else request.max_replicas,
    )
    require_bounds(wanted.name, wanted.replicas, wanted.min, wanted.max)
    _, warning = clamped(wanted.replicas, wanted.min, wanted.max)
    # KubeRay leaves the wrong number in its spec, so that a later, higher max would apply it by
    # surprise; here the clamped number is what stays.
    return replace(wanted, replicas=wanted.desired), warning
