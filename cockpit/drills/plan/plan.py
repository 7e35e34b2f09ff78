"""The request of a drill: its faults, its hypothesis and its limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from cockpit.model.cluster import Pod, PodPhase
from cockpit.model.decoding.settings_table import checked
from cockpit.model.error import NotAllowedError
from cockpit.store.store import Store

DEFAULT_SHARE = 1 / 3
_ENDED = (PodPhase.FAILED, PodPhase.SUCCEEDED)


class BlastRadius(Struct, frozen=True):
    """Limits on the pods of one drill; None: not set."""

    max_pods: int | None = None
    """Of all groups together, 1 or more."""
    max_share: float | None = None
    """Of the pods of each group, 0 to 1; of every group one pod may be hit in any case."""

    def within(self, other: BlastRadius) -> BlastRadius:
        """The stricter of the two for each limit."""
        pods = [one.max_pods for one in (self, other) if one.max_pods is not None]
        shares = [one.max_share for one in (self, other) if one.max_share is not None]
        return BlastRadius(min(pods, default=None), min(shares, default=None))

    def over(self, weaker: BlastRadius) -> BlastRadius:
        """These limits, and those of `weaker` where one is not set here."""
        return BlastRadius(
            weaker.max_pods if self.max_pods is None else self.max_pods,
            weaker.max_share if self.max_share is None else self.max_share,
        )

    @property
    def share(self) -> float:
        return DEFAULT_SHARE if self.max_share is None else self.max_share

    def of_group(self, size: int) -> int:
        """How many pods of a group of this size may be hit."""
        return max(1, math.floor(self.share * size + 1e-9))


class TargetSpec(Struct, frozen=True):
    """The target pods. Those that are not named are chosen by the plan's seed."""

    select: str = "random"
    """`random`, `head`, a pod's name, a rank's number as `rank:N`, or a group as `group:NAME`."""
    count: int = 1
    groups: tuple[str, ...] = ()
    """Only pods of these worker groups; empty: of all."""
    allow_head: bool = False
    """Nothing hits the head, unless this is set or `head` is named."""
    uid: str = ""
    """Of the pod that `select` names: another pod of the same name is not hit."""
    run_id: str = ""
    """The run whose rank `select` names; empty: the current one."""


class FaultSpec(Struct, frozen=True):
    """One fault, with the values that differ from its defaults."""

    fault: str
    values: Mapping[str, str] = field(default_factory=dict)
    target: TargetSpec = TargetSpec()


When = Literal["before", "during", "after"]


class ProbeSpec(Struct, frozen=True):
    """One check of the steady state."""

    kind: str
    """A name of `cockpit.drills.probes.hypothesis.KINDS`: `replicas-ready`, `training`, …"""
    name: str = ""
    """Its name; empty: the text of the probe."""
    limit: float | None = None
    """The threshold of the kind: percent, seconds, or the query's value."""
    operator: str = ""
    """`<`, `<=`, `>`, `>=`, `==`, for a Prometheus query."""
    query: str = ""
    """PromQL, or the command's arguments as a shell splits them."""
    when: tuple[When, ...] = ("before", "after")


class Timeouts(Struct, frozen=True):
    """Seconds that each stage may take."""

    prepare_s: float = 30.0
    before_s: float = 30.0
    """For a run that has just begun to have a steady state, which the hypothesis is about."""
    inject_s: float = 60.0
    undo_s: float = 60.0
    recover_s: float = 300.0
    probe_s: float = 30.0
    after_s: float = 30.0
    """For the hypothesis to hold again once the run is back."""


class DrillPlan(Struct, frozen=True):
    name: str
    faults: tuple[FaultSpec, ...]
    """Injected at once, in this order."""
    hypothesis: tuple[ProbeSpec, ...] = ()
    abort: tuple[ProbeSpec, ...] = ()
    """Polled during the drill: a failure aborts the drill and undoes its faults."""
    recover_within_s: float | None = None
    """From the injection to the first new step; later is a failure."""
    max_steps_lost: int | None = None
    max_time_lost_s: float | None = None
    """Until the run is where it would have been without the fault; more is a failure."""
    seed: int | None = None
    """None: chosen at random, and reported."""
    timeouts: Timeouts = Timeouts()
    game_day: str = ""
    blast_radius: BlastRadius = field(default_factory=BlastRadius)
    settle_s: float = 0.0
    """How long the run continues after its recovery before the probes after it are evaluated."""


_LIMITS = {
    "max_pods": Annotated[int, Meta(ge=1)],
    "max_share": Annotated[float, Meta(ge=0, le=1)],
}


def checked_blast_radius(max_pods: object, max_share: object) -> BlastRadius:
    """Raises UsageError for values that are no limits."""
    given = {"max_pods": max_pods, "max_share": max_share}
    raw = {name: value for name, value in given.items() if value is not None}
    return BlastRadius(**checked(raw, _LIMITS, ""))


def parse_blast_radius(raw: Mapping[str, Any]) -> BlastRadius:
    """Parse the table [drills] of the configuration. Raises UsageError."""
    return BlastRadius(**checked(raw, _LIMITS, "drills.", "cockpit config edit opens it."))


def require_within(
    store: Store, pods: Iterable[Pod], limit: BlastRadius, *, with_missing: bool = False
) -> None:
    """Raise NotAllowedError if the pods exceed the limit.

    Pods of a multi-host replica fail together and count as one of the group. The size of a group is
    its pods that have not ended; with `with_missing`, its desired pods, where missing and unready
    ones count as affected.
    """
    hit: dict[str, set[str]] = {}
    for pod in pods:
        hit.setdefault(pod.group, set()).add(_unit(pod))
    lost = 0
    for group, units in hit.items():
        living = [p for p in store.pods.values() if p.group == group and p.phase not in _ENDED]
        lost += max(len(units), sum(_unit(p) in units for p in living))
        count, size = len(units), len({_unit(p) for p in living})
        if with_missing:
            found = store.groups.get(group)
            size = max(size, found.desired // found.hosts if found is not None else 0)
            down = {_unit(p) for p in living if not p.ready} | units
            count = size - len({_unit(p) for p in living} - down)
        allowed = limit.of_group(size)
        if count > allowed:
            what = "replicas" if any(p.replica for p in living) else "pods"
            share = min(1.0, math.ceil(100 * count / max(size, 1)) / 100)
            raise NotAllowedError(
                f"The drill would hit {count} of the {size} {what} of group {group}.",
                f"Its limit is {allowed}: max_share is {limit.share:.2g} of a group"
                f"{' (the default)' if limit.max_share is None else ''}, and at least one.",
                f"Hit fewer, or raise it: --max-share {share:g} (max_share in a game day).",
            )
    if limit.max_pods is not None and lost > limit.max_pods:
        raise NotAllowedError(
            f"The drill would hit {lost} pods.",
            f"Its limit is {limit.max_pods} (max_pods).",
            f"Hit fewer, or raise it: --max-pods {lost} (max_pods in a game day).",
        )


def _unit(pod: Pod) -> str:
    return pod.replica or pod.name
