"""Runs to report on: one with every kind of event, and an hour of a large run."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec.structs import replace

from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.drill import Drill
from cockpit.model.event import (
    AlertCleared,
    AlertRaised,
    AttemptEnded,
    AttemptStarted,
    DrillInjected,
    Event,
    JobsListed,
    Marked,
    MetricsReported,
    Notice,
    PhaseEntered,
    RankSampled,
    RunSeen,
    SourceHealth,
    TrackedRunsListed,
    TrialsListed,
)
from cockpit.model.run import (
    Checkpoint,
    Job,
    JobStatus,
    Phase,
    Placement,
    RankSample,
    RunState,
    Spread,
    Trial,
    TrialStatus,
)
from cockpit.model.tracking import ModelVersion, TrackedRun
from cockpit.store.run import RunView
from cockpit.store.store import Store
from tests.events import reduced

START_S = 1_763_712_000.0
"""2025-11-21 08:00:00 UTC."""
RUN = "run-7c1d"
EVIL = (
    "</title></style></script><script>alert(1)</script><img src=x onerror=alert(2)>"
    "\"' onload=alert(3) [x](javascript:alert(4)) | `pipe` **bold** @everyone\n# head\x1b[31mred"
)
"""Markup of every kind that a name, a reason or a line of a log may bring."""
TOKEN = "hf_" + "A1b2C3d4" * 5
PASSWORD = "correct-horse-battery"
GIB = 1 << 30


def rich(text: str = "demo") -> Store:
    """Eight ranks, three attempts, a drill, NaN, a gap in the stream, alerts, trials, MLflow.

    `text` is used for all text of external origin.
    """
    return reduced(events(text))


def rich_run(store: Store) -> RunView:
    return store.runs[RUN]


def events(text: str = "demo") -> Iterator[Event]:
    """In order of what the store needs; ends 600 s after the start."""
    yield SourceHealth(at_s=START_S, source="telemetry", ok=True)
    yield SourceHealth(at_s=START_S, source="prometheus", ok=False, error=text, absent=True)
    secrets = f"--hf-token {TOKEN} --password={PASSWORD} https://me:{PASSWORD}@host/x"
    job = Job("raysubmit_1", f"python train.py {secrets} {text}", JobStatus.RUNNING)
    yield JobsListed(at_s=START_S, source="ray", jobs=(job,))
    yield _state(0, RunState.SCHEDULING, text)
    yield from _attempt(1, 0, 12, 200, text)
    drill = Drill("d1", "pod-kill", text, (1,), START_S + 200, 0.0, RUN, 1, 1_880)
    yield DrillInjected(at_s=START_S + 200, source="user", drill=drill)
    yield _ended(1, 206, text)
    yield from _attempt(2, 206, 222, 400, text, first_step=1_701, nan_from=300)
    yield _ended(2, 401, "preempted")
    yield from _attempt(3, 401, 420, 590, text, first_step=3_401, hole=(480, 530))
    yield _phase(591, 3, Phase.SHUTTING_DOWN)
    yield from _told(text)
    yield RunSeen(
        at_s=START_S + 600, source="telemetry", run_id=RUN, name=text, state=RunState.FINISHED
    )


def _attempt(
    number: int,
    begin_s: float,
    step_s: float,
    end_s: float,
    text: str,
    *,
    first_step: int = 1,
    nan_from: float = math.inf,
    hole: tuple[float, float] = (0.0, 0.0),
) -> Iterator[Event]:
    yield _phase(begin_s, number, Phase.SCHEDULING)
    yield _phase(begin_s + 4, number, Phase.ACTOR_START)
    yield _phase(begin_s + 8, number, Phase.PROCESS_GROUP)
    placements = tuple(Placement(r, f"node-{r}", f"10.0.0.{r}", 100 + r, (r,)) for r in range(8))
    yield AttemptStarted(
        at_s=START_S + begin_s + 9,
        source="telemetry",
        run_id=RUN,
        attempt=number,
        placements=placements,
    )
    yield _state(begin_s + 9, RunState.RUNNING, text)
    yield _phase(begin_s + 10, number, Phase.FIRST_STEP)
    yield _phase(step_s, number, Phase.RUNNING)
    step, at = first_step - 1, step_s
    while at < end_s:
        step += 10
        if not hole[0] <= at < hole[1]:
            yield RankSampled(
                at_s=START_S + at,
                source="telemetry",
                run_id=RUN,
                samples=tuple(_sample(r, number, at, step, at >= nan_from) for r in range(8)),
            )
        if step % 500 < 10:
            yield MetricsReported(
                at_s=START_S + at + 0.2,
                source="telemetry",
                run_id=RUN,
                attempt=number,
                metrics={text: at / 600, "val/accuracy": 1 - 1 / at},
                checkpoint=Checkpoint(step, f"/ck/{text}", size_bytes=2 * GIB, took_s=1.5),
            )
        at += 1


def _sample(rank: int, attempt: int, at: float, step: int, is_nan: bool) -> RankSample:
    wave = math.sin(step / 90 + rank)
    slow = 1.6 if rank == 5 else 1.0
    return RankSample(
        rank,
        attempt,
        START_S + at,
        step,
        step - 9,
        step,
        loss=math.nan if is_nan and rank == 3 else 0.05 + 3 * math.exp(-step / 600) + wave / 100,
        samples_per_s=320 + 9 * wave,
        tokens_per_s=164_000 + 900 * wave,
        step_time_s=0.1 + 0.004 * wave,
        data_wait_s=0.01 * slow,
        forward_s=0.025,
        backward_s=0.045 * slow,
        optimizer_s=0.006,
        comm_s=0.04 - 0.03 * (slow - 1),
        checkpoint_s=1.5 if step % 500 < 10 else 0.0,
        mfu_percent=41 + wave,
        learning_rate=3e-4,
        grad_norm=1.1 + wave / 5,
        cpu_percent=120.0,
        memory_bytes=int(6.5 * GIB),
        gpu_utilization_percent=93 + 3 * wave,
        gpu_memory_bytes=97 * GIB,
        gpu_power_w=640 + 20 * wave,
        gpu_temperature_c=63 + rank,
    )


def _told(text: str) -> Iterator[Event]:
    finding = Finding(
        "loss-nan", "rank 3", Severity.CRITICAL, f"the loss is NaN {text}", text, text, RUN
    )
    alert = Alert("loss-nan/rank 3", finding, START_S + 305)
    yield AlertRaised(at_s=START_S + 305, source="insight", alert=alert)
    yield AlertCleared(at_s=START_S + 410, source="insight", alert_id=alert.id)
    straggler = replace(finding, kind="straggler", subject="rank 5", severity=Severity.WARNING)
    late = Alert("straggler/rank 5", straggler, START_S + 500)
    yield AlertRaised(at_s=START_S + 500, source="insight", alert=late)
    yield Marked(at_s=START_S + 333, source="user", text=text)
    yield Notice(
        at_s=START_S + 201,
        source="backend",
        kind="Pod",
        name=text,
        reason="Killed",
        message=f"exit code -9 {text} api_key: {PASSWORD}",
        warning=True,
    )
    trials = tuple(
        Trial(
            f"trial_{n}",
            "search",
            TrialStatus.TERMINATED if n else TrialStatus.ERROR,
            {"lr": f"{10**-n:g}", "wandb_api_key": PASSWORD, "note": text},
            {"val": [math.nan, 0.7, 0.2][n]},
            n + 1,
            START_S + n,
            error="" if n else text,
        )
        for n in range(3)
    )
    yield TrialsListed(
        at_s=START_S + 580,
        source="telemetry",
        experiment="search",
        trials=trials,
        metric="val",
        mode="min",
    )
    tracked = TrackedRun(
        "ml-1",
        text,
        "experiment",
        "FINISHED",
        params={"lr": "0.0003", "token": PASSWORD, "max_tokens": "4096"},
        metrics={"loss": 0.05},
        artifacts=("model", text),
        models=(ModelVersion(text, "3", ("best",)),),
        url=f"https://user:{PASSWORD}@mlflow.example/#/runs/1",
        run_id=RUN,
    )
    yield TrackedRunsListed(at_s=START_S + 590, source="mlflow", runs=(tracked,))


def _state(at_s: float, state: RunState, name: str) -> RunSeen:
    return RunSeen(
        at_s=START_S + at_s,
        source="telemetry",
        run_id=RUN,
        name=name,
        state=state,
        submission_id="raysubmit_1",
        world_size=8,
    )


def _phase(at_s: float, attempt: int, phase: Phase) -> PhaseEntered:
    return PhaseEntered(
        at_s=START_S + at_s, source="telemetry", run_id=RUN, attempt=attempt, phase=phase
    )


def _ended(attempt: int, at_s: float, reason: str) -> AttemptEnded:
    return AttemptEnded(
        at_s=START_S + at_s, source="telemetry", run_id=RUN, attempt=attempt, reason=reason
    )


def large(ranks: int = 1_000, seconds: int = 3_600, reported: int = 64) -> Iterator[Event]:
    """A large world at 1 Hz: spreads over all ranks, and alternating ranks. Rank 617 is slow."""
    yield _state(0, RunState.RUNNING, "large")
    placements = tuple(
        Placement(rank, f"n{rank // 8}", f"10.0.{rank // 200}.{rank % 200}", rank, (rank % 8,))
        for rank in range(ranks)
    )
    yield AttemptStarted(
        at_s=START_S + 1, source="telemetry", run_id=RUN, attempt=1, placements=placements
    )
    for second in range(2, seconds):
        samples = tuple(
            _large_sample((second * reported + n) % ranks, second)
            for n in range(min(reported, ranks))
        )
        yield RankSampled(
            at_s=START_S + second,
            source="telemetry",
            run_id=RUN,
            samples=samples,
            spreads=tuple(_spreads(second, ranks)),
            attempt=1,
            reporting=ranks - 1,
            silent=(13,),
        )
        if second % 300 == 0:
            yield MetricsReported(
                at_s=START_S + second,
                source="telemetry",
                run_id=RUN,
                attempt=1,
                metrics={"perplexity": 40.0 - second / 200},
                checkpoint=Checkpoint(second, f"/ck/{second}", size_bytes=9 * GIB, took_s=4.0),
            )


def _large_sample(rank: int, second: int) -> RankSample:
    sample = _sample(rank % 5, 1, float(second), second, False)
    slow = 0.16 if rank == 617 else 0.1
    return replace(sample, rank=rank, first_step=second, step_time_s=slow + rank % 7 / 5_000)


def _spreads(second: int, ranks: int) -> Iterator[Spread]:
    wave = math.sin(second / 50)
    for name, mean in (
        ("loss", 0.05 + 3 * math.exp(-second / 600)),
        ("step_time_s", 0.1 + 0.004 * wave),
        ("samples_per_s", 320 + 9 * wave),
        ("data_wait_s", 0.01),
        ("comm_s", 0.04),
        ("gpu_utilization_percent", 93 + 3 * wave),
        ("gpu_memory_bytes", 97.0 * GIB),
        ("gpu_power_w", 640.0),
        ("memory_bytes", 6.5 * GIB),
        ("grad_norm", 1.1 + wave / 5),
        ("learning_rate", 3e-4),
        ("step", float(second)),
    ):
        yield Spread(
            name, ranks, mean, mean * 0.8, mean * 0.9, mean, mean * 1.1, mean * 1.4, 3, 617
        )
