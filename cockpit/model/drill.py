"""An experiment: faults that are injected, and what is measured of how the run comes back."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field


class Drill(Struct, frozen=True):
    """A fault that was injected, with what was known of the run at that instant."""

    id: str
    fault: str
    """A name of the catalogue (`cockpit.drills.faults.catalog`): `pod-kill`, `rank-freeze`, …"""
    target: str
    """What was hit, as its name: a pod's as a rule; of several, with commas between."""
    ranks: tuple[int, ...]
    """The ranks that were hit."""
    injected_s: float
    grace_s: float
    run_id: str = ""
    """Empty when no run was going: then pods alone are timed."""
    attempt: int = 0
    step: int = 0
    """The last step known before the fault."""
    pods: tuple[str, ...] = ()
    """The pods that were hit, or whose processes were. Empty in old recordings: `target` alone."""
    parameters: dict[str, str] = field(default_factory=dict)
    profile: str = ""
    """The recovery profile of the run, as far as it is known: like is compared with like."""
    workload: str = ""
    """What the run runs, for the same reason: the bundled job's name, else the run's."""
    game_day: str = ""
    seed: int | None = None
    """Of the choice of targets, where there was one to make."""


class Milestone(StrEnum):
    """The instants of a recovery, in the order in which they come as a rule."""

    INJECTED = "injected"
    SYMPTOM = "first symptom"
    """Anything that was different first: a pod not ready, a rank silent, a state left."""
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
    """The step before the fault was done again."""
    THROUGHPUT_BACK = "throughput back"
    """Within 5 % of before the fault, or of what the new world size can do."""


class Instant(Struct, frozen=True):
    """When a milestone was reached, and who said so."""

    milestone: Milestone
    after_s: float
    """Since the injection; negative when the source saw it before, by its own clock."""
    source: str
    """`backend`, `ray`, `telemetry`, `user`: that of the event; what was derived says from what."""


class Continuity(Struct, frozen=True):
    """The loss after the recovery against the curve before the fault."""

    before: float
    """The median over the last steps before the fault."""
    after: float
    """The same over as many steps from the first new one."""
    spread: float
    """How much the loss varied before (scaled median absolute deviation), in its own unit."""
    continuous: bool


class Recovery(Struct, frozen=True):
    """How the run came back from one drill. Seconds count from the injection; None: not yet."""

    drill: Drill
    pod_gone_s: float | None = None
    detected_s: float | None = None
    """The run left RUNNING or its attempt ended: Ray Train had noticed."""
    attempt_ended_s: float | None = None
    pod_ready_s: float | None = None
    """As many worker pods were ready again as before the fault."""
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
    """Whether the fault ended the attempt; False once it is clear that training went on in it."""
    seconds_lost: float | None = None
    """Wall time without new steps, and the time of those that were done again; of a run that was
    only slowed, what its steps took longer."""
    gpu_seconds_lost: float | None = None
    """`seconds_lost` times the GPUs that the run held; None without GPUs."""
    goodput_percent: float | None = None
    """Useful time over wall time, from the injection to the last milestone."""
    continuity: Continuity | None = None
    restarts: int = 0
    """Attempts that ended from the injection to the first new step, if their end cost anything."""
    budget: str = ""
    """What they were charged to: `max_failures`, `max_preemption_failures`; empty: not known."""
    ranks_before: int | None = None
    ranks_after: int | None = None
    """Another number for an elastic run: throughput back is relative to it."""
    unseen: tuple[str, ...] = ()
    """What could not be seen, a line each: `the backend was away from 12 s to 31 s`."""

    @property
    def recovered(self) -> bool:
        return self.first_step_s is not None

    @property
    def steps_lost(self) -> int | None:
        """Steps that had to be done again: last step of the old attempt − (first new − 1)."""
        if self.last_step is None or self.resumed_step is None:
            return None
        return max(0, self.last_step - (self.resumed_step - 1))

    def reached(self, milestone: Milestone) -> float | None:
        """Seconds since the injection."""
        return next((i.after_s for i in self.instants if i.milestone is milestone), None)


class Stage(StrEnum):
    """Where a drill is."""

    PREPARING = "preparing"
    """Targets are chosen, rights and needs are checked, the cluster's lease is taken."""
    BEFORE = "checking before"
    """The hypothesis has to hold before anything is broken."""
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
    """By the user or an abort condition; what was done has been undone."""
    REFUSED = "refused"
    """Nothing was injected: the hypothesis did not hold before, or something was missing."""
    BROKEN = "broken"
    """The drill itself failed: a fault could not be injected or undone."""


class ProbeResult(Struct, frozen=True):
    """What one probe of the hypothesis found, once."""

    probe: str
    """Its name, which is also what it asks: `throughput >= 80 %`."""
    when: str
    """`before`, `during`, `after` or `abort`."""
    ok: bool | None
    """None: it could not be asked, and `value` says why."""
    value: str
    """What was found, in a few words with its unit."""
    at_s: float


class DrillRecord(Struct, frozen=True):
    """A drill from its beginning to its end: what history, reports and verbs show."""

    id: str
    name: str
    """The drill's name in its file, or its fault's."""
    cluster: str
    began_s: float
    ended_s: float
    verdict: Verdict
    why: str
    """One line: what decided."""
    drills: tuple[Drill, ...] = ()
    """What was injected, in order: several at once, or one after the other."""
    recoveries: tuple[Recovery, ...] = ()
    """Of each of `drills`."""
    stages: tuple[tuple[Stage, float], ...] = ()
    """When each stage began (Unix seconds)."""
    probes: tuple[ProbeResult, ...] = ()
    notes: tuple[str, ...] = ()
    """What the reader should know: warnings, what could not be seen, how it was undone."""
    game_day: str = ""
    asked: tuple[str, ...] = ()
    """The faults that were asked for: one that kills again and again injects others."""

    @property
    def fault(self) -> str:
        """The kinds of its faults, with a plus between."""
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
    """A drill as it is kept for later: its record, and the run's curves around it."""

    record: DrillRecord
    run: str = ""
    """The name of the run that was hit; empty where there was none."""
    curves: tuple[KeptCurve, ...] = ()
