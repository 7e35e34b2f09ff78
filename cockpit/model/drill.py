"""A drill: the injected faults, and the measured recovery of the run."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field


class Drill(Struct, frozen=True):
    """A fault that was injected, with the state of the run at that instant."""

    id: str
    fault: str
    """A name of the catalog (`cockpit.drills.faults.catalog`): `pod-kill`, `rank-freeze`, …"""
    target: str
    """The target's name, usually of a pod; several are separated by commas."""
    ranks: tuple[int, ...]
    """The affected ranks."""
    injected_s: float
    grace_s: float
    run_id: str = ""
    """Empty if no run was active: then only pods are timed."""
    attempt: int = 0
    step: int = 0
    """The last step known before the fault."""
    pods: tuple[str, ...] = ()
    """The affected pods, or the pods of affected processes. Empty in old recordings: `target` only.
    """
    parameters: dict[str, str] = field(default_factory=dict)
    profile: str = ""
    """The recovery profile of the run, if known; drills are compared within one profile."""
    workload: str = ""
    """The workload, for the same reason: the bundled job's name, else the run's."""
    game_day: str = ""
    seed: int | None = None
    """The seed that selected the targets, if there was a choice."""


class Milestone(StrEnum):
    """The milestones of a recovery, in their usual order."""

    INJECTED = "injected"
    SYMPTOM = "first symptom"
    """The first change: a pod not ready, a rank without data, a run state that ended."""
    DETECTED = "detected by Ray"
    """The run left RUNNING, a Ray node was dead, or the attempt ended."""
    STOPPED = "training stopped"
    """The last new step of the old attempt had ended."""
    ATTEMPT_ENDED = "attempt ended"
    POD_REPLACED = "pod replaced"
    POD_READY = "pod ready"
    WORKERS_STARTED = "workers started"
    PROCESS_GROUP = "process group ready"
    RESTORED = "checkpoint restored"
    FIRST_STEP = "first new step"
    CAUGHT_UP = "caught up"
    """The last step before the fault was repeated."""
    THROUGHPUT_BACK = "throughput back"
    """Within 5 % of the value before the fault, or of what the new world size can reach."""


class Instant(Struct, frozen=True):
    """When a milestone was reached, and the source that reported it."""

    milestone: Milestone
    after_s: float
    """Since the injection; negative if the source's own clock has it before."""
    source: str
    """The source of the event: `backend`, `ray`, `telemetry`, `user`; a derived one names its
    origin.
    """


class Continuity(Struct, frozen=True):
    """The loss after the recovery, compared with the curve before the fault."""

    before: float
    """The median over the last steps before the fault."""
    after: float
    """The median over the same number of steps, from the first new one."""
    spread: float
    """The variation of the loss before the fault (scaled median absolute deviation), in its unit.
    """
    continuous: bool


class Recovery(Struct, frozen=True, rename={"missing_data": "unseen"}):
    """The recovery of the run from one drill, in seconds since the injection; None: not yet."""

    drill: Drill
    pod_gone_s: float | None = None
    detected_s: float | None = None
    """The run left RUNNING or its attempt ended: Ray Train detected the fault."""
    attempt_ended_s: float | None = None
    pod_ready_s: float | None = None
    """The number of ready worker pods was again the one before the fault."""
    restarted_s: float | None = None
    """The next attempt's worker group had started."""
    first_step_s: float | None = None
    """The next attempt's first new step had ended."""
    resumed_step: int | None = None
    """The first step of the next attempt."""
    last_step: int | None = None
    """The last step of the attempt that the fault ended."""
    reason: str = ""
    """Why Ray ended the attempt."""
    instants: tuple[Instant, ...] = ()
    """Every milestone that was reached, in the order of time."""
    interrupted: bool | None = None
    """Whether the fault ended the attempt; False once training has continued in it."""
    seconds_lost: float | None = None
    """Wall time without new steps plus the time of repeated steps; for a run that was only slowed,
    the additional time of its steps.
    """
    gpu_seconds_lost: float | None = None
    """`seconds_lost` times the GPUs of the run; None without GPUs."""
    goodput_percent: float | None = None
    """Useful time over wall time, from the injection to the last milestone."""
    continuity: Continuity | None = None
    restarts: int = 0
    """Attempts that ended from the injection to the first new step, if the end was charged."""
    budget: str = ""
    """The budgets they were charged to: `max_failures`, `max_preemption_failures`; empty: unknown.
    """
    ranks_before: int | None = None
    ranks_after: int | None = None
    """The new world size of an elastic run: the restored throughput is relative to it."""
    missing_data: tuple[str, ...] = ()
    """Gaps in the observation, a line each: `the backend sent no data from 12 s to 31 s`."""

    @property
    def recovered(self) -> bool:
        return self.first_step_s is not None

    @property
    def steps_lost(self) -> int | None:
        """Steps that were repeated: last step of the old attempt − (first new − 1)."""
        if self.last_step is None or self.resumed_step is None:
            return None
        return max(0, self.last_step - (self.resumed_step - 1))

    def reached(self, milestone: Milestone) -> float | None:
        """Seconds since the injection."""
        return next((i.after_s for i in self.instants if i.milestone is milestone), None)


class Stage(StrEnum):
    """The stage of a drill."""

    PREPARING = "preparing"
    """Selects targets, checks permissions and requirements, takes the cluster's lease."""
    BEFORE = "checking before"
    """Checks that the hypothesis holds before a fault is injected."""
    INJECTING = "injecting"
    DURING = "fault lasts"
    UNDOING = "undoing"
    RECOVERING = "recovering"
    AFTER = "checking after"
    ENDED = "ended"


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    """The hypothesis did not hold, or a target (seconds, steps) was missed."""
    ABORTED = "aborted"
    """Aborted by the user or an abort condition; the fault was undone."""
    REFUSED = "refused"
    """Nothing was injected: the hypothesis did not hold before, or a requirement was missing."""
    BROKEN = "broken"
    """The drill itself failed: a fault could not be injected or undone."""


class ProbeResult(Struct, frozen=True):
    """One result of one probe of the hypothesis."""

    probe: str
    """The probe's name, which is also its condition: `throughput >= 80 %`."""
    when: str
    """`before`, `during`, `after` or `abort`."""
    ok: bool | None
    """None: the probe failed to run, and `value` has the reason."""
    value: str
    """The measured value as short text, with its unit."""
    at_s: float


class DrillRecord(Struct, frozen=True):
    """A drill from start to end, as history, reports and verbs show it."""

    id: str
    name: str
    """The drill's name in its file, or its fault's."""
    cluster: str
    began_s: float
    ended_s: float
    verdict: Verdict
    why: str
    """One line: the reason for the verdict."""
    drills: tuple[Drill, ...] = ()
    """The injected faults, in order: at the same time, or one after the other."""
    recoveries: tuple[Recovery, ...] = ()
    """The recovery from each of `drills`."""
    stages: tuple[tuple[Stage, float], ...] = ()
    """When each stage began (Unix seconds)."""
    probes: tuple[ProbeResult, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for the reader: warnings, gaps in the observation, how the fault was undone."""
    game_day: str = ""
    asked: tuple[str, ...] = ()
    """The requested faults; a repeating fault injects others."""

    @property
    def fault(self) -> str:
        """The kinds of its faults, joined by a plus sign."""
        kinds = self.asked or tuple(drill.fault for drill in self.drills)
        return "+".join(dict.fromkeys(kinds)) or self.name


class KeptCurve(Struct, frozen=True):
    """Points of one curve of the run, around the drill."""

    name: str
    """A field of `RankSample`: `loss`, `samples_per_s`."""
    times: tuple[float, ...] = ()
    """Unix seconds, ascending."""
    values: tuple[float, ...] = ()


class KeptDrill(Struct, frozen=True):
    """A stored drill: its record, and the run's curves around it."""

    record: DrillRecord
    run: str = ""
    """The name of the affected run; empty if there was none."""
    curves: tuple[KeptCurve, ...] = ()
