"""A game day: drills one after the other, with what happens between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from cockpit.drills.plan.plan import DrillPlan, ProbeSpec
from cockpit.model.drill import DrillRecord


class Launch(Struct, frozen=True):
    """A bundled job, launched before and stopped after the day, unless a run is active."""

    job: str
    settings: Mapping[str, str] = field(default_factory=dict)
    within_s: float = 180.0
    """Until its first checkpoint."""
    always: bool = False
    """Also when a run is going."""
    resubmit: int = 0
    """How often it is submitted again, until the day's end, when the cluster has lost it."""


class Wait(Struct, frozen=True):
    seconds: float


class Expect(Struct, frozen=True):
    """All of the probes have to hold at once, within the time."""

    probes: tuple[ProbeSpec, ...]
    within_s: float = 60.0


class Scale(Struct, frozen=True):
    group: str
    to: int
    within_s: float = 180.0
    """Until the pods are there."""


class Inject(Struct, frozen=True):
    plan: DrillPlan
    optional: bool = False
    """Skip the step if the cluster does not support the fault."""


Doing = Launch | Wait | Expect | Scale | Inject


class Step(Struct, frozen=True):
    name: str
    doing: Doing


class GameDay(Struct, frozen=True):
    name: str
    about: str
    steps: tuple[Step, ...]
    guard: Mapping[str, Any] = field(default_factory=dict)
    """The settings of a guard that acts during the day; empty: without one."""


class StepResult(Struct, frozen=True):
    number: int
    """From 1."""
    name: str
    kind: str
    """`launch`, `wait`, `expect`, `scale` or `drill`."""
    ok: bool | None
    """None: skipped."""
    why: str
    began_s: float
    ended_s: float
    record: DrillRecord | None = None
    """Of a drill that was conducted."""


class GameDayResult(Struct, frozen=True):
    id: str
    name: str
    about: str
    cluster: str
    began_s: float
    ended_s: float
    passed: bool
    why: str
    """One line: what decided."""
    steps: tuple[StepResult, ...]
