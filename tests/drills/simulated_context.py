"""The context of simulated drills: a store, a scripted backend, and a configurable fault."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from cockpit.backends.protocol import ExecResult
from cockpit.drills.engine.drill import Experiment
from cockpit.drills.engine.journal import Journal
from cockpit.drills.engine.lease import TIMING, Timing
from cockpit.drills.faults.fault import (
    Aim,
    DrillContext,
    Fault,
    Order,
    Parameter,
    Prepared,
    Undo,
    Victims,
)
from cockpit.drills.plan.plan import (
    BlastRadius,
    DrillPlan,
    FaultSpec,
    ProbeSpec,
    TargetSpec,
    Timeouts,
)
from cockpit.drills.probes.external import Answer, ContextProber, Prober
from cockpit.insight.recovery.measurement import Reading
from cockpit.model.drill import Drill, Stage
from cockpit.model.error import CockpitError
from cockpit.model.event import DrillEnded, DrillStaged, Event
from cockpit.store.store import Store
from tests.events import HEAD, ONE, THREE, TWO, before_the_kill, pods, reduced, the_recovery
from tests.simulated_backend import ScriptedBackend

T = TypeVar("T")

QUICK = Timeouts(
    prepare_s=2.0, before_s=0.0, inject_s=2.0, undo_s=2.0, recover_s=0.3, probe_s=0.3, after_s=0.0
)  # fmt: skip


class ScriptedContext:
    """A DrillContext whose store contains `events`; its clock continues from 100.0."""

    def __init__(
        self,
        events: Iterable[Event] = (),
        backend: ScriptedBackend | None = None,
    ) -> None:
        self.store = reduced(events)
        self.backend = backend or ScriptedBackend()
        self.told: list[Event] = []
        self._began_s = time.monotonic()
        self.clock_step_s = 0.0
        """By how much the wall clock was set forward, or back."""

    def clock(self) -> float:
        return 100.0 + time.monotonic() - self._began_s + self.clock_step_s

    async def ask(self, question: Callable[[Store], T]) -> T:
        return question(self.store)

    def dispatch(self, event: Event) -> None:
        self.told.append(event)
        self.store.apply(event)

    @property
    def stages(self) -> list[Stage]:
        return [event.stage for event in self.told if isinstance(event, DrillStaged)]

    @property
    def ended(self) -> list[DrillEnded]:
        return [event for event in self.told if isinstance(event, DrillEnded)]


async def nothing() -> None:
    """A fault without any effect."""


@dataclass(slots=True)
class Obedient:
    """A configurable fault; `hit` are the victims for which it was prepared."""

    name: str = "obedient"
    apply: Callable[[], Awaitable[None]] = nothing
    undo: tuple[Undo, ...] = ()
    lasts_s: float = 0.0
    meanwhile: Callable[[], Awaitable[None]] | None = None
    missing: str = ""
    """Why it cannot be prepared."""
    obstacle_here: str = ""
    hit: list[Victims] = field(default_factory=list)
    uids: list[Mapping[str, str]] = field(default_factory=list)
    """Those in the orders for which it was prepared."""

    @property
    def fault(self) -> Fault:
        return Fault(
            self.name,
            "does what it is told",
            Aim.POD,
            self.prepare,
            (Parameter("much", 1.0, "how much"),),
            unavailable=dict.fromkeys(("kuberay", "local", "address"), self.obstacle_here),
        )

    async def prepare(self, context: DrillContext, victims: Victims, order: Order) -> Prepared:
        if self.missing:
            raise CockpitError("It cannot be done.", self.missing)
        self.hit.append(victims)
        self.uids.append(order.uids)
        return Prepared(
            lines=(f"Obey on {victims.name}.",),
            apply=self.apply,
            undo=self.undo,
            lasts_s=self.lasts_s,
            meanwhile=self.meanwhile,
            parameters={name: str(value) for name, value in order.values.items()},
        )


class Scripted:
    """A prober with a list of results for each kind of probe; the last result repeats."""

    def __init__(self, answers: Mapping[str, Sequence[Answer]]) -> None:
        self._answers = {kind: list(of) for kind, of in answers.items()}

    async def ask(
        self, spec: ProbeSpec, drills: Sequence[Drill], readings: Mapping[str, Reading]
    ) -> Answer:
        left = self._answers[spec.kind]
        return left.pop(0) if len(left) > 1 else left[0]


FREEZE = Undo("exec", "let it run again", pod=ONE.name, argv=("thaw",))


class Refusing(ScriptedBackend):
    """Every command in a pod fails, and so does every undo by one."""

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        return ExecResult(1, "", "no such thing here")


def plan(*faults: str, **changes: object) -> DrillPlan:
    """Of these faults, the pods named; both workers may be hit at once."""
    specs = tuple(FaultSpec(name, target=TargetSpec()) for name in faults or ("obedient",))
    given = {"name": "test", "faults": specs, "timeouts": QUICK}
    given |= {"blast_radius": BlastRadius(max_share=1.0)} | changes
    return DrillPlan(**given)  # type: ignore[arg-type]


def experiment(
    context: ScriptedContext,
    faults: Fault | Obedient | Mapping[str, Fault | Obedient],
    wanted: DrillPlan | None = None,
    *,
    prober: Prober | None = None,
    journal: Journal | None = None,
    timing: Timing = TIMING,
) -> Experiment:
    given = faults if isinstance(faults, Mapping) else {faults.name: faults}
    known = {name: one.fault if isinstance(one, Obedient) else one for name, one in given.items()}
    return Experiment(
        context,
        wanted or plan(*known),
        prober or ContextProber(context),
        journal=journal,
        fault=known.__getitem__,
        timing=timing,
    )


def trained() -> list[Event]:
    """A run of two ranks on two pods that has reached step 50."""
    return before_the_kill()


def recovering(context: ScriptedContext) -> Callable[[], Awaitable[None]]:
    """A fault that kills: the pod and its attempt end, and the run recovers."""

    async def kill() -> None:
        for event in the_recovery()[1:]:
            context.dispatch(event)

    return kill


def pods_back(context: ScriptedContext) -> None:
    """A pod is deleted, and its replacement is ready."""
    context.dispatch(pods(context.clock(), HEAD, ONE))
    context.dispatch(pods(context.clock(), HEAD, ONE, THREE))


__all__ = ["FREEZE", "HEAD", "ONE", "QUICK", "THREE", "TWO"]
