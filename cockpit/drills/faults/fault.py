"""The definition of a fault: its description, its targets, its injection, and its undo.

A fault is prepared first: it checks its preconditions, describes its effects, and returns its undo
as data. The engine writes the undo to the journal before it applies the fault, so that the next
start finds it after a crash (`cockpit.drills.engine.journal`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import StrEnum
from random import Random
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct, field

from cockpit.backends.protocol import Backend
from cockpit.drills.plan.plan import BlastRadius, FaultSpec
from cockpit.model.cluster import Pod
from cockpit.model.decoding.boolean import parse_boolean
from cockpit.model.drill import Drill
from cockpit.model.error import UsageError
from cockpit.model.event import Event
from cockpit.model.text import one_line
from cockpit.store.store import Store

T = TypeVar("T")
Value = bool | int | float | str


class DrillContext(Protocol):
    """The environment of a drill, used by faults, probes and the engine. A Session is one."""

    @property
    def backend(self) -> Backend: ...

    @property
    def clock(self) -> Callable[[], float]:
        """Unix seconds."""
        ...

    async def ask(self, question: Callable[[Store], T]) -> T:
        """Query the store; only so may it be read while others change it."""
        ...

    def dispatch(self, event: Event) -> None: ...


class Aim(StrEnum):
    POD = "pod"
    RANK = "rank"
    HEAD = "head"
    GROUP = "group"
    STORAGE = "storage"
    """The directory of the run's checkpoints, as a pod sees it."""
    CHECKPOINT = "checkpoint"


class Parameter(Struct, frozen=True):
    """`default` also defines the type.

    Names of times end in `_s`, of sizes in `_bytes`. `about` contains the unit and the valid range.
    """

    name: str
    default: Value
    about: str
    choices: tuple[str, ...] = ()


class RankVictim(Struct, frozen=True):
    """A rank's process. `pid` is as its pod sees it (Ray reports `os.getpid()`)."""

    rank: int
    pod: str
    pid: int


class Victims(Struct, frozen=True):
    """The targets of one fault: chosen from the store, by `cockpit.drills.plan.target`."""

    pods: tuple[Pod, ...]
    ranks: tuple[RankVictim, ...] = ()
    """For pods: the ranks that run on them."""
    run_id: str = ""
    run_name: str = ""
    submission_id: str = ""
    attempt: int = 0
    step: int = 0
    world_size: int = 0
    checkpoint_path: str = ""
    """The newest checkpoint of the run, as the run names it."""
    storage_path: str = ""
    """The run's directory, which holds its checkpoints."""

    @property
    def name(self) -> str:
        """A short text for the journal and the screen."""
        return ", ".join(pod.name for pod in self.pods)

    @property
    def words(self) -> str:
        """The same, with the ranks that are hit."""
        ranks = ", ".join(str(victim.rank) for victim in self.ranks)
        return f"{self.name} (rank {ranks})" if ranks else self.name


Verb = Literal["exec", "uncordon", "rejoin", "scale", "replace"]


class Undo(Struct, frozen=True):
    """The undo of one effect, as data that is stored on disk.

    It is idempotent, and applied only to the object with this UID, or to a group that still has the
    size that the drill set.
    """

    verb: Verb
    text: str
    """The effect of the undo, in a line: `let rank 1 (pid 4711 in gpu-abc) run again`."""
    pod: str = ""
    """For `exec` and `replace`. An effect inside a pod ends with the pod."""
    uid: str = ""
    """Of the pod (`exec`, `replace`), node (`uncordon`) or cluster (`scale`): another object may
    have the name by then."""
    argv: tuple[str, ...] = ()
    """For `exec`; exit code 0 is done, and also where there was nothing to do."""
    name: str = ""
    """Of the node (`uncordon`), of the network policy (`rejoin`), of the group (`scale`)."""
    replicas: int = 0
    """For `scale`: what there was before."""
    drilled: int | None = None
    """For `scale`: the number that the drill has set; at any other number the group is not changed.
    """
    anywhere: bool = False
    """For `exec`: the effect is on storage that pods share; when this pod no longer exists, another
    does."""


class Prepared(Struct, frozen=True):
    """A fault that can be done now."""

    lines: tuple[str, ...]
    """The effects on its targets, in sentences: shown before the injection and by a dry run."""
    apply: Callable[[], Awaitable[None]]
    """Do it; returns once it is done, or has begun. Raises CockpitError."""
    undo: tuple[Undo, ...] = ()
    took_effect: Callable[[Undo], bool] = lambda undo: True
    """Whether there may be anything to undo, after all requests of `apply` were made or dropped."""
    lasts_s: float = 0.0
    """The duration until it is undone or ends automatically; 0: it ends at once."""
    meanwhile: Callable[[], Awaitable[None]] | None = None
    """Work during the fault; cancelled when the drill is aborted."""
    grace_s: float = 0.0
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The parameters in use, for the record."""


class Order(Struct, frozen=True):
    """The request for one fault: its parameters, seed and limits."""

    drill_id: str
    """The id of the drill in events; a fault that injects more of them adds `.1`, `.2`, …"""
    values: Mapping[str, Value]
    """All parameters of the kind, as their types."""
    random: Random
    """The plan's seeded choice: the only source of chance."""
    blast_radius: BlastRadius = field(default_factory=BlastRadius)
    """For a fault that chooses targets later than when it is prepared."""
    uids: Mapping[str, str] = field(default_factory=dict)
    """Of the chosen pods, by name: nothing is done in a pod that was replaced under its name."""

    @property
    def used(self) -> dict[str, str]:
        """The values as they would be typed, for the record."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.values.items()
        }


class Fault(Struct, frozen=True):
    """An entry of the catalog. Stateless: the state of a drill is in `Prepared`."""

    name: str
    summary: str
    aim: Aim
    prepare: Callable[[DrillContext, Victims, Order], Coroutine[Any, Any, Prepared]]
    """Check the preconditions and plan the fault. Changes nothing.

    Raises CockpitError with what is missing (a permission, a program, a run) and how to fix it.
    """
    parameters: tuple[Parameter, ...] = ()
    needs: tuple[str, ...] = ()
    """The requirements: `exec in the pod`, `NET_ADMIN in the pod`."""
    undo: str = ""
    """The effect of the undo; empty without one."""
    repair: str = ""
    """What repairs the cluster if there is no undo."""
    ends_by_itself: bool = True
    """The fault ends even if the drill does not undo it."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """By `local` and `address`, kinds of cluster without this fault: why, in one line."""

    @property
    def ending(self) -> str:
        """How the fault ends: by its undo, or by what repairs the cluster."""
        return self.undo or self.repair

    def obstacle(self, backend: str) -> str:
        """Return why there is no such fault on this kind of cluster; empty where there is."""
        return self.unavailable.get(backend, "")


class Armed(Struct, frozen=True):
    """One fault of a plan with its victims, ready to be applied."""

    spec: FaultSpec
    fault: Fault
    victims: Victims
    prepared: Prepared


NO_EXEC = {"address": "cockpit cannot run commands in its pods"}
"""For `Fault.unavailable` of every fault that works inside a pod."""


def injected(drill_id: str, fault: Fault, victims: Victims, at_s: float, p: Prepared) -> Drill:
    """Its description in events: at the instant before it was applied."""
    return Drill(
        id=drill_id,
        fault=fault.name,
        target=victims.name,
        ranks=tuple(sorted(victim.rank for victim in victims.ranks)),
        injected_s=at_s,
        grace_s=p.grace_s,
        run_id=victims.run_id,
        attempt=victims.attempt,
        step=victims.step,
        pods=tuple(pod.name for pod in victims.pods),
        parameters=dict(p.parameters),
    )


def parameter_values(kind: Fault, given: Mapping[str, str]) -> dict[str, Value]:
    """All parameters of the kind. Raises UsageError for an unknown name or an invalid value."""
    by_name = {parameter.name: parameter for parameter in kind.parameters}
    for name in given:
        if name not in by_name:
            raise UsageError(
                f"Fault {kind.name} has no parameter {one_line(name)!r}.",
                f"It has: {', '.join(by_name) or 'none'}.",
            )
    return {
        name: _value(kind, parameter, given[name]) if name in given else parameter.default
        for name, parameter in by_name.items()
    }


def _value(kind: Fault, parameter: Parameter, text: str) -> Value:
    default = parameter.default
    try:
        value: Value
        if isinstance(default, bool):
            value = parse_boolean(text)
        elif isinstance(default, int):
            value = int(text)
        elif isinstance(default, float):
            value = float(text)
        else:
            value = text
    except ValueError as error:
        wanted = (
            "true or false"
            if isinstance(default, bool)
            else ("a whole number" if isinstance(default, int) else "a number")
        )
        raise UsageError(
            f"{parameter.name} of {kind.name} is {one_line(text)!r}.", f"It has to be {wanted}."
        ) from error
    if isinstance(value, int | float) and not isinstance(value, bool):
        nan = value != value
        if nan or value < 0:
            raise UsageError(
                f"{parameter.name} of {kind.name} is {one_line(text)!r}.", "It has to be 0 or more."
            )
    if parameter.choices and value not in parameter.choices:
        raise UsageError(
            f"{parameter.name} of {kind.name} is {one_line(text)!r}.",
            f"It is one of: {', '.join(parameter.choices)}.",
        )
    return value
