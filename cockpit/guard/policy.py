"""Decide what to do about a hang or a repeated failure. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from cockpit import format
from cockpit.insight.hang.types import Confidence
from cockpit.model.cluster import ClusterPattern, ClusterRef, is_protected

HOUR_S = 3_600.0
RETRY_S = 10.0
"""After an act that failed."""
TRIES = 3
"""The number of failures of one act after which it is given up."""


class Trigger(StrEnum):
    HANG = "hang"
    REPEATED_FAILURE = "repeated-failure"


class Action(StrEnum):
    OBSERVE = "observe"
    CAPTURE = "capture"
    RESTART = "restart"
    REPLACE = "replace"
    CORDON = "cordon"
    STOP = "stop"

    @property
    def is_change(self) -> bool:
        """Whether it changes the cluster."""
        return self not in (Action.OBSERVE, Action.CAPTURE)


ACTIONS: Mapping[Trigger, tuple[Action, ...]] = {
    Trigger.HANG: (Action.OBSERVE, Action.CAPTURE, Action.RESTART, Action.REPLACE),
    Trigger.REPEATED_FAILURE: (
        Action.OBSERVE,
        Action.CAPTURE,
        Action.REPLACE,
        Action.CORDON,
        Action.STOP,
    ),
}
"""After a failure Ray Train restarts the run, so `restart` applies to hangs only."""
EFFECT = {
    Action.OBSERVE: "report it, and change nothing",
    Action.CAPTURE: "save the stacks and collectives of all ranks, and mark the recording",
    Action.RESTART: "SIGKILL the process of the rank that caused it, so that Ray Train restarts "
    "the run from its newest checkpoint",
    Action.REPLACE: "delete the pod of the rank that caused it, with SIGKILL",
    Action.CORDON: "cordon the Kubernetes node on which the failures occurred",
    Action.STOP: "stop the job if a restart cannot fix the cause",
}
_ORDER = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)


class Target(Struct, frozen=True):
    """A rank that is the cause, and where it runs."""

    rank: int
    pid: int
    pod: str = ""
    uid: str = ""
    """Of the pod: another one may have its name later."""
    node: str = ""
    """The Kubernetes node."""
    node_uid: str = ""


class Trouble(Struct, frozen=True):
    """A hang, or a series of failures."""

    trigger: Trigger
    key: str
    """The identity of a hang or a series of failures: the guard acts once on each."""
    run_id: str
    run_name: str
    attempt: int
    sentence: str
    confidence: Confidence
    targets: tuple[Target, ...] = ()
    job_id: str = ""
    no_restart: str = ""
    """Why the death of a rank would end the run; empty where Ray Train restarts it."""
    no_culprit: str = ""
    """Why no pod is known to be the cause of a hang; empty where the targets are."""
    hangs_again: str = ""
    """Why new processes would hang again; empty where they may not."""
    on_pod: int = 1
    """Failures only on the pod of the first target, this one included."""
    on_node: int = 1
    is_fixed_by_restart: bool | None = None
    """None: unknown."""
    is_over: bool = False
    """Its job has ended, and is not tried again."""


class Policy(Struct, frozen=True):
    hang: Action = Action.OBSERVE
    repeated_failure: Action = Action.OBSERVE
    failures: Annotated[int, Meta(ge=1)] = 3
    """Within an hour, of one run; for `cordon` and `replace` on the same node or pod."""
    budget: Annotated[int, Meta(ge=1)] = 3
    """Changes of the cluster within an hour."""
    confidence: Confidence = Confidence.HIGH
    """The lowest on which it acts."""
    dry_run: bool = False
    protected: bool = False
    """Whether it may change a protected cluster."""
    held_back: str = ""
    """Why the guard only observes, regardless of its actions."""

    def action(self, trigger: Trigger) -> Action:
        return self.hang if trigger is Trigger.HANG else self.repeated_failure

    def on(
        self, ref: ClusterRef, protected: Iterable[ClusterPattern], *, read_only: bool
    ) -> Policy:
        """Only observing where the cluster may not be changed."""
        why = ""
        if read_only:
            why = "this is read-only mode"
        elif not self.protected and is_protected(ref, protected):
            why = "the cluster is protected, and [guard] has no protected = true"
        return replace(self, held_back=why)

    @property
    def changes(self) -> bool:
        """Whether it may change the cluster."""
        actions = (self.hang, self.repeated_failure)
        return not (self.dry_run or self.held_back) and any(one.is_change for one in actions)

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the policy as text, for a confirmation."""
        limits = (
            f"At most {format.plural(self.budget, 'change')} to the cluster per hour, once for "
            "each "
            f"hang, and with {self.confidence.value} confidence"
        )
        lines = [
            f"On a hang: {self.hang.value} ({EFFECT[self.hang]}).",
            f"After {self.failures} failures of a run within an hour: "
            f"{self.repeated_failure.value} ({EFFECT[self.repeated_failure]}).",
            limits + (" or higher." if self.confidence is not Confidence.HIGH else "."),
        ]
        if self.held_back:
            lines.append(f"It only observes: {self.held_back}.")
        return tuple(lines)


class Decision(Struct, frozen=True):
    trouble: Trouble
    action: Action
    reason: str
    """Why this action, in one line."""
    is_dry: bool = False
    """A change that is only reported."""


class Memory(Struct, frozen=True):
    """The previous decisions."""

    acted: frozenset[str] = frozenset()
    """Keys of what was acted on."""
    reported: frozenset[tuple[str, str]] = frozenset()
    """Keys with the reason that was reported."""
    changes_s: tuple[float, ...] = ()
    """When the cluster was changed, or may have been: the answer of a request was lost."""
    failed: tuple[tuple[str, float], ...] = ()
    """Acts that failed: their key, and when."""

    def decided(self, decision: Decision) -> Memory:
        of = (decision.trouble.key, decision.reason)
        return replace(self, reported=self.reported | {of})

    def acted_on(self, decision: Decision, now_s: float) -> Memory:
        after = self._changed(now_s) if decision.action.is_change else self
        return replace(after, acted=self.acted | {decision.trouble.key})

    def failed_on(self, decision: Decision, now_s: float, *, may_have_changed: bool) -> Memory:
        after = self._changed(now_s) if may_have_changed else self
        return replace(after, failed=(*self.failed, (decision.trouble.key, now_s)))

    def _changed(self, now_s: float) -> Memory:
        recent = tuple(at_s for at_s in self.changes_s if now_s - at_s < HOUR_S)
        return replace(self, changes_s=(*recent, now_s))

    def present(self, keys: Collection[str]) -> Memory:
        """A problem that ended and occurs again is reported again."""
        return replace(self, reported=frozenset(one for one in self.reported if one[0] in keys))


def decide(policy: Policy, trouble: Trouble, memory: Memory, now_s: float) -> Decision | None:
    """Return what to do now; None for what was acted on or reported before."""
    if trouble.key in memory.acted:
        return None
    failed_s = [at_s for key, at_s in memory.failed if key == trouble.key]
    if failed_s and (len(failed_s) >= TRIES or now_s - failed_s[-1] < RETRY_S):
        return None
    wanted = policy.action(trouble.trigger)
    obstacle = _obstacle(policy, trouble, memory, wanted, now_s)
    if wanted is Action.OBSERVE or obstacle:
        found = Decision(trouble, Action.OBSERVE, obstacle or "the policy is to observe")
    else:
        why = f"the policy for a {trouble.trigger.value} is {wanted.value}"
        found = Decision(trouble, wanted, why, policy.dry_run and wanted.is_change)
    is_report = found.action is Action.OBSERVE or found.is_dry
    if is_report and (trouble.key, found.reason) in memory.reported:
        return None
    return found


def _obstacle(
    policy: Policy, trouble: Trouble, memory: Memory, wanted: Action, now_s: float
) -> str:
    """Why the action is not done; empty where it is."""
    if not wanted.is_change:
        return ""
    if policy.held_back:
        return policy.held_back
    if _ORDER.index(trouble.confidence) < _ORDER.index(policy.confidence):
        return f"confidence is {trouble.confidence.value}, and {wanted.value} needs " + (
            f"{policy.confidence.value}"
        )
    if why := _OBSTACLES[wanted](policy, trouble):
        return why
    if sum(now_s - at_s < HOUR_S for at_s in memory.changes_s) >= policy.budget:
        return f"the budget of {format.plural(policy.budget, 'change')} per hour is used up"
    return ""


def _restart(policy: Policy, trouble: Trouble) -> str:
    if not trouble.targets:
        return "no process of the cause is known"
    missing = [target.rank for target in trouble.targets if not target.pod]
    if missing:
        return f"the pod of {format.ranks(missing)} is not known"
    return trouble.no_restart or trouble.hangs_again


def _replace(policy: Policy, trouble: Trouble) -> str:
    if why := trouble.no_culprit or _restart(policy, trouble):
        return why
    if any(not target.uid for target in trouble.targets):
        return "the pod has no UID, so it could be another one by then"
    if trouble.trigger is Trigger.REPEATED_FAILURE and trouble.on_pod < policy.failures:
        count = format.plural(trouble.on_pod, "failure")
        return f"{count} on pod {trouble.targets[0].pod}, {policy.failures} are needed"
    return ""


def _cordon(policy: Policy, trouble: Trouble) -> str:
    if not trouble.targets or not trouble.targets[0].node:
        return "no Kubernetes node of the cause is known"
    if trouble.on_node < policy.failures:
        count = format.plural(trouble.on_node, "failure")
        return f"{count} on node {trouble.targets[0].node}, {policy.failures} are needed"
    return ""


def _stop(policy: Policy, trouble: Trouble) -> str:
    if trouble.is_fixed_by_restart is not False:
        is_unknown = trouble.is_fixed_by_restart is None
        return "the cause is not known" if is_unknown else "a restart may fix the cause"
    if trouble.is_over:
        return "the run is over"
    return "" if trouble.job_id else "the job of the run is not known"


_OBSTACLES = {
    Action.RESTART: _restart,
    Action.REPLACE: _replace,
    Action.CORDON: _cordon,
    Action.STOP: _stop,
}
