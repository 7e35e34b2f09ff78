"""What is asked for: a drill with its faults, its hypothesis and its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cockpit.drills.plan.blast_radius import BlastRadius


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """Whom to hit. What is not named is chosen by the plan's seed."""

    select: str = "random"
    """`random`, `head`, a pod's name, a rank's number as `rank:N`, or a group as `group:NAME`."""
    count: int = 1
    groups: tuple[str, ...] = ()
    """Only pods of these worker groups; empty: of all."""
    allow_head: bool = False
    """Nothing hits the head, unless this is said or `head` is named."""
    uid: str = ""
    """Of the pod that `select` names: another pod of the same name is not hit."""


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One fault, with the values that differ from its defaults."""

    fault: str
    values: Mapping[str, str] = field(default_factory=dict)
    target: TargetSpec = TargetSpec()


When = Literal["before", "during", "after"]


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """One check of the steady state."""

    kind: str
    """A name of `cockpit.drills.probes.hypothesis.KINDS`: `replicas-ready`, `training`, …"""
    name: str = ""
    """What it is called; empty: it is called by what it asks."""
    limit: float | None = None
    """What the kind compares with: percent, seconds, or the query's value."""
    operator: str = ""
    """`<`, `<=`, `>`, `>=`, `==`, for a Prometheus query."""
    query: str = ""
    """PromQL, or the command's words as a shell has them."""
    when: tuple[When, ...] = ("before", "after")


@dataclass(frozen=True, slots=True)
class Timeouts:
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


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """One drill."""

    name: str
    faults: tuple[FaultSpec, ...]
    """Injected at once, in this order."""
    hypothesis: tuple[ProbeSpec, ...] = ()
    abort: tuple[ProbeSpec, ...] = ()
    """Asked all the time: one that does not hold ends the drill and undoes it."""
    recover_within_s: float | None = None
    """From the injection to the first new step; later is a failure."""
    max_steps_lost: int | None = None
    seed: int | None = None
    """None: one is drawn, and told."""
    timeouts: Timeouts = Timeouts()
    game_day: str = ""
    blast_radius: BlastRadius = field(default_factory=BlastRadius)
    settle_s: float = 0.0
    """How long the run goes on after its recovery before the probes after it are asked."""
