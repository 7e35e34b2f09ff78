"""How long a run takes to recover: `python -m tests.bench.recovery [CASE…] [--drills 5] …`.

Each case is a real run with 2 ranks, of `training.jobs.checkpointed` or of a script without cockpit
(tests/training/scripts/plain_torch.py), on local pods, with `--on testbed` on those of the test
Kubernetes, or with `--on hosts` on hosts that are namespaces. Under each profile it gets a cluster
of its own, with the profile's settings in pods and job. Then drills, one after the other, each when
the run has settled: all pods ready, all ranks stepping, for SETTLE_S, and, with the fast profile, a
spare process in each pod that can run a rank, which takes minutes on a busy machine. With
`--by-turns` each drill has a new cluster, and the profiles alternate, so that a change of the load
affects both. With `--busy`, other processes compute at the same time. The instants are those that
cockpit shows (`cockpit.insight.recovery.measurement`). It takes more than an hour; what a file of
`--rows` has already is not measured again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from cockpit.backends.local import GroupSpec
from cockpit.backends.protocol import Backend
from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.backend import SshBackend
from cockpit.drills.plan.kill import plan_kill
from cockpit.format import plural
from cockpit.insight.recovery.fault_impact import first_step_s
from cockpit.insight.recovery.measurement import is_settled, recovery
from cockpit.insight.recovery.pace import pace_before, step_at
from cockpit.launch import submission
from cockpit.model.cluster import ClusterRef, NodeType, Resources
from cockpit.model.drill import Drill, Milestone, Recovery
from cockpit.model.recovery import PROFILES, RecoveryProfile
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from tests.bench.process import computing
from tests.bench.table import Line, Table, load, say, show
from tests.cluster.fixtures import RealCluster
from tests.cluster.operator.template import WAIT_FOR_GCS
from tests.cluster.raycluster import STORAGE, Group, ray_cluster
from tests.cluster.testbed import Testbed
from tests.host_spaces import host_spaces
from tests.local_cluster import running_cluster, separate_state
from tests.ssh_cluster import description

RANKS = 2
SCRIPT = Path(__file__).parents[1] / "training" / "scripts" / "plain_torch.py"
SETTLE_S = 40.0
"""Long enough for the spares of the fast profile to be there."""
PACE_S = 60.0
"""For so long the throughput is measured from the first new step on."""
PACE_PERCENT = 97.0
"""Promised of the throughput after a recovery."""
CAUGHT_UP_TIMES = 1.5
"""Promised of the time until the run has caught up: not more than this times the time to the first
new step, besides the usual time of the steps that it has to repeat."""
GROWS_S = 10.0
"""Promised of an elastic run whose pod was replaced."""
RECORD_S = 2.0
"""A rank sends a record each second."""
START_TIMEOUT_S = 600.0
SPARES_EVERY_S = 2.0
NUMBERED_TIMEOUT_S = 10.0
NOTHING = "none"
"""The budget of an attempt that did not fail."""
RECOVERY_TIMEOUT_S = 900.0
"""Ray's default notices a frozen rank after 600."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is done to which run."""

    fault: str
    """`pod-kill`, or a signal to a rank's process."""
    words: str
    pods: int = RANKS
    min_workers: int = 0
    profiles: tuple[str, ...] = ("fast", "default")
    waits_for_gcs: bool = True
    """Its pods have the operator's init container; the test Kubernetes alone has one."""
    is_script: bool = False
    """The run is of the script, which reports no steps: its first step is its first report."""
    within_s: float | None = None
    """Promised of the fast profile, from the fault to the first new step."""
    detected_within_s: float | None = None


CASES = {
    "spare": Case(
        "pod-kill", "a pod is killed, and a spare pod exists", pods=RANKS + 1, within_s=10.0
    ),
    "elastic": Case(
        "pod-kill",
        "a pod is killed, and the elastic run continues with the other",
        min_workers=1,
        within_s=12.0,
    ),
    "alone": Case(
        "pod-kill", "a pod is killed, and the run waits for its replacement", within_s=12.0
    ),
    "alone-at-once": Case(
        "pod-kill",
        "the same, without an init container",
        waits_for_gcs=False,
        within_s=16.0,
    ),
    "rank-kill": Case("KILL", "a rank's process is killed", within_s=10.0),
    "rank-freeze": Case(
        "STOP",
        "a rank's process is frozen",
        profiles=("fast",),
        within_s=20.0,
        detected_within_s=15.0,
    ),
    "script-spare": Case(
        "pod-kill",
        "a pod of an unmodified script is killed, and a spare pod exists",
        pods=RANKS + 1,
        is_script=True,
        within_s=10.0,
    ),
    "script-rank-kill": Case(
        "KILL", "a rank's process of an unmodified script is killed", is_script=True, within_s=10.0
    ),
}
PLACES = {
    "local": "local pods",
    "hosts": "hosts that are namespaces of this machine, over SSH",
    "testbed": "the pods of the test Kubernetes",
}
LIMIT_CPUS = 2
"""Of a pod on Kubernetes, with one CPU for ranks, as in manifests/kubernetes/base."""
TIMES_FASTER = 4.0
"""Promised of a pod that is killed, against Ray's defaults in the same run."""


@dataclass(frozen=True, slots=True)
class Row:
    """One drill, in seconds after the fault."""

    case: str
    profile: str
    place: str
    detected_s: float | None
    attempt_ended_s: float | None
    restarted_s: float | None
    first_step_s: float | None
    pod_ready_s: float | None
    steps_lost: int | None
    beyond_checkpoint: int | None
    """Steps that were done again although a checkpoint had them."""
    reason: str
    lost_s: float | None = None
    """Until the run has caught up with the step that it would have reached without the fault."""
    pace_percent: float | None = None
    """The throughput in PACE_S from the first new step on, of that before the fault."""
    caught_up_s: float | None = None
    """When the run had repeated its last step before the fault."""
    repeated_s: float | None = None
    """The usual time of the steps that it had to repeat."""
    grown_s: float | None = None
    """When a run that continued with fewer ranks had its first step with all of them again."""
    growth_stop_s: float | None = None
    """From its last step with fewer ranks to that step."""
    false_alarms: int = 0
    """Restarts while there was no fault: before this drill, and in PACE_S."""
    without_fault_s: float = 0.0
    """How long there was none."""

    @property
    def caught_up_share(self) -> float | None:
        """The time until it had caught up ÷ the promised time."""
        if self.first_step_s is None or self.caught_up_s is None or self.repeated_s is None:
            return None
        return self.caught_up_s / (CAUGHT_UP_TIMES * self.first_step_s + self.repeated_s)


@contextmanager
def local(case: Case, profile: RecoveryProfile) -> Iterator[tuple[Backend, str]]:
    group = GroupSpec("workers", case.pods, min=0, max=case.pods, resources=Resources(cpus=1.0))
    with (
        TemporaryDirectory() as storage,
        running_cluster("bench", [group], recovery=profile) as backend,
    ):
        yield backend, storage


@contextmanager
def on_hosts(case: Case, profile: RecoveryProfile) -> Iterator[tuple[Backend, str]]:
    """Namespaces of this machine: a head, and a host for each pod."""
    names = [f"host-{number}" for number in range(case.pods + 1)]
    with separate_state(), host_spaces(*names) as network:
        hosts = description([host.sshd for host in network.hosts], replicas=case.pods)
        try:
            asyncio.run(lifecycle.up(hosts, profile.name, START_TIMEOUT_S, say))
            yield SshBackend(hosts), str(network.shared)
        finally:
            asyncio.run(lifecycle.down(hosts))


@contextmanager
def on_testbed(
    testbed: Testbed, case: Case, profile: RecoveryProfile
) -> Iterator[tuple[Backend, str]]:
    namespace = testbed.namespace("bench")
    storage = testbed.plane.space.folder / "shared"
    body = ray_cluster(
        "bench",
        (Group(replicas=case.pods, limit_cpus=LIMIT_CPUS),),
        namespace=namespace,
        storage=storage,
        settings=profile.pod_env,
    )
    place = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters"
    testbed.plane.ask("POST", place, body)
    ref = ClusterRef("kuberay", "bench", namespace, testbed.kubeconfig.stem)
    cluster = RealCluster(testbed, ref, testbed.kubeconfig)
    try:
        cluster.wait_ready(case.pods, START_TIMEOUT_S)
        yield cluster.backend(), f"{STORAGE}/runs"
    finally:
        testbed.plane.ask("DELETE", f"{place}/bench")
        while cluster.pods():
            time.sleep(0.5)


def cluster(
    on: str, testbed: Testbed | None, case: Case, profile: RecoveryProfile
) -> AbstractContextManager[tuple[Backend, str]]:
    """The backend, and the path of the checkpoints. `on`: one of PLACES."""
    if testbed:
        return on_testbed(testbed, case, profile)
    return (on_hosts if on == "hosts" else local)(case, profile)


def measure(
    name: str, profile: RecoveryProfile, backend: Backend, storage: str, drills: int, place: str
) -> Iterator[Row]:
    case = CASES[name]
    with builder.session_on(backend) as session:
        session.call(launch(backend, case, profile, storage))
        failures = 0
        for number in range(drills):
            began_s = session.clock()
            settle(session, case, profile, place)
            checkpoint = _checkpoint_step(session.store)
            drill = session.call(_inject(session, case, rank=RANKS - 1 - number % RANKS))
            measured = _follow(session, drill)
            step_s = pace_before(session.store.runs[drill.run_id], drill.injected_s).step_s
            pace_percent = _pace(session, case, drill, measured, step_s)
            later = recovery(session.store, drill)
            grown_s, growth_stop_s = _growth(session.store.runs[drill.run_id], drill)
            again = measured.resumed_step
            lost = measured.steps_lost
            explained = failures + measured.restarts
            failures = _failures(session.store.runs[drill.run_id])
            yield Row(
                case=name,
                profile=profile.name,
                place=place,
                detected_s=measured.detected_s,
                attempt_ended_s=measured.attempt_ended_s,
                restarted_s=measured.restarted_s,
                first_step_s=measured.first_step_s,
                pod_ready_s=later.pod_ready_s,
                steps_lost=measured.steps_lost,
                beyond_checkpoint=max(0, checkpoint - (again - 1)) if again else None,
                reason=measured.reason,
                lost_s=later.seconds_lost,
                pace_percent=pace_percent,
                caught_up_s=later.reached(Milestone.CAUGHT_UP),
                repeated_s=None if step_s is None or lost is None else lost * step_s,
                grown_s=grown_s,
                growth_stop_s=growth_stop_s,
                false_alarms=failures - explained,
                without_fault_s=drill.injected_s - began_s + PACE_S,
            )


async def launch(backend: Backend, case: Case, profile: RecoveryProfile, storage: str) -> None:
    settings = {"storage_path": storage, "epochs": "100000", "max_failures": "-1"}
    if case.is_script:
        argv = ("python", SCRIPT.name, "--name=bench")
        given = (f"--{name.replace('_', '-')}={value}" for name, value in settings.items())
        spec = submission.script_spec((*argv, *given), SCRIPT.parent)
    else:
        settings["min_workers"] = str(case.min_workers)
        spec = submission.bundled_spec("checkpointed", settings, RANKS)
    async with Dashboard(backend.dashboard) as dashboard:
        await submission.launch(dashboard, replace(spec, recovery=profile))


def settle(session: Session, case: Case, profile: RecoveryProfile, place: str) -> None:
    """Until all is as it should be, and has been for SETTLE_S, and all spares are there."""

    def whole(store: Store) -> bool:
        run = current_run(store)
        attempt = run.attempt if run else None
        if run is None or attempt is None or attempt.ended_s is not None:
            return False
        first_s = attempt.reported_s if case.is_script else attempt.first_step_s
        ready = sum(pod.ready for pod in store.pods.values())
        return (
            first_s is not None
            and len(attempt.placements) == RANKS
            and ready == case.pods + 1
            and (run.checkpoint_s or 0.0) > first_s
        )

    while True:
        if not session.wait(whole, START_TIMEOUT_S):
            raise TimeoutError(f"the run does not settle: {current_run(session.store)}")
        if not session.wait(lambda store: not whole(store), SETTLE_S):
            break
    if profile.callbacks and place != "testbed":
        wait_for_spares(session)


def _growth(run: RunView, drill: Drill) -> tuple[float | None, float | None]:
    """As `Row.grown_s` and `Row.growth_stop_s`."""
    later = [run.attempts[number] for number in sorted(run.attempts) if number > drill.attempt]
    for fewer, grown in pairwise(later):
        first_s = first_step_s(run, grown)
        if len(fewer.placements) < RANKS == len(grown.placements) and first_s is not None:
            stopped_s = None if fewer.last_step_s is None else first_s - fewer.last_step_s
            return first_s - drill.injected_s, stopped_s
    return None, None


def _failures(run: RunView) -> int:
    """The attempts that have failed; one that ended because an elastic run grows has not."""
    return sum(
        view.ended_s is not None and view.budget != NOTHING for view in run.attempts.values()
    )


def wait_for_spares(session: Session) -> None:
    """Until each worker pod has a process without a task that has the libraries of the run: a fork,
    or one that has imported them because the fork server took too long on a busy machine.

    The pods' processes are those of this machine, with the pod in the path of the session.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while lacking := _workers(session.store) - _pods_with_spares():
        if time.monotonic() > deadline:
            raise TimeoutError(f"pods without a spare process: {lacking}")
        session.wait(lambda store: False, SPARES_EVERY_S)


def _workers(store: Store) -> set[str]:
    """Ready pods, by the last part of their names."""
    return {
        pod.name.rpartition("-")[2]
        for pod in store.pods.values()
        if pod.ready and pod.node_type is NodeType.WORKER
    }


def _pods_with_spares() -> set[str]:
    argvs: dict[str, list[bytes]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            argvs[process.name] = (process / "cmdline").read_bytes().split(b"\0")
    found = set()
    for pid in (pid for pid, argv in argvs.items() if argv[0] == b"ray::IDLE"):
        with suppress(OSError):
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            argv = argvs.get(parent, [])
            raylet = [arg for arg in argv if arg.startswith(b"--raylet_socket_name=")]
            if b"training.recovery.early_imports" in argv:  # it has become a fork server
                session = Path(argv[-2].decode())
            elif b"--serve" in argv:
                session = Path(argv[argv.index(b"--serve") + 1].decode()).parent
            elif raylet and _has_imported(pid):
                session = Path(raylet[0].decode().partition("=")[2]).parent.parent
            else:
                continue
            found.add(session.parent.name)
    return found


def _has_imported(pid: str) -> bool:
    """Whether a worker of the run's runtime environment has torch. Raises OSError."""
    process = Path("/proc") / pid
    is_of_run = b"training.recovery.spares.preload" in (process / "environ").read_bytes()
    return is_of_run and "libtorch" in (process / "maps").read_text()


def _checkpoint_step(store: Store) -> int:
    run = current_run(store)
    return int(run.metrics.get("step", 0)) if run else 0


async def _inject(session: Session, case: Case, rank: int) -> Drill:
    plan = plan_kill(session.store, str(rank), grace_s=0.0)
    run = current_run(session.store)
    assert run is not None
    assert run.attempt is not None
    placement = run.ranks[rank].placement
    assert placement is not None
    attempt, step, injected_s = run.attempt.number, run.step or 0, session.clock()
    if case.fault == "pod-kill":
        await session.backend.delete_pod(plan.pod.name, uid=plan.pod.uid, grace_s=0.0)
    else:
        argv = ("kill", f"-{case.fault}", str(placement.pid))
        done = await session.backend.exec(plan.pod.name, argv)
        if done.exit_code:
            raise RuntimeError(f"{argv}: {done.stderr}")
    return Drill(
        id=f"{case.fault}-{injected_s:.0f}",
        fault=case.fault,
        target=plan.pod.name,
        ranks=(rank,),
        injected_s=injected_s,
        grace_s=0.0,
        run_id=run.id,
        attempt=attempt,
        step=step,
    )


def _follow(session: Session, drill: Drill) -> Recovery:
    session.wait(
        lambda store: is_settled(store, recovery(store, drill)),
        RECOVERY_TIMEOUT_S,
    )
    # That a step ended is reported at once, its number a second later.
    session.wait(lambda store: recovery(store, drill).steps_lost is not None, NUMBERED_TIMEOUT_S)
    return recovery(session.store, drill)


def _pace(
    session: Session, case: Case, drill: Drill, measured: Recovery, step_s: float | None
) -> float | None:
    """Wait for PACE_S of the new attempt, and compare its throughput with that before the fault:
    the number of steps, whose usual time was `step_s`, or of the reports of a script.
    """
    if measured.first_step_s is None:
        return None
    first_s = drill.injected_s + measured.first_step_s
    until_s = first_s + PACE_S
    session.wait(lambda store: session.clock() > until_s + RECORD_S, PACE_S + NUMBERED_TIMEOUT_S)
    run = session.store.runs[drill.run_id]
    if case.is_script:
        times = [at_s for at_s, _ in run.reported["loss"]]
        before = sum(drill.injected_s - SETTLE_S < at_s < drill.injected_s for at_s in times)
        after = sum(first_s < at_s <= until_s for at_s in times)
        return 100.0 * (after / PACE_S) / (before / SETTLE_S) if before else None
    return steps_percent(run, first_s, measured.resumed_step, step_s)


def steps_percent(
    run: RunView, first_s: float, resumed_step: int | None, step_s: float | None
) -> float | None:
    """The steps of PACE_S from `first_s` on, the end of `resumed_step`, of the usual number."""
    newest = step_at(run, first_s + PACE_S)
    if newest is None or step_s is None or resumed_step is None:
        return None
    return 100.0 * (newest - (resumed_step - 1)) * step_s / PACE_S


def tabled(rows: Sequence[Row], place: str, began: str, busy: int = 0) -> Table:
    """A line for each case and profile: medians, and the least and the most."""
    lines: list[Line] = []
    for name, case in CASES.items():
        of = {
            profile: [row for row in rows if (row.case, row.profile) == (name, profile)]
            for profile in case.profiles
        }
        for profile, chosen in of.items():
            if chosen:
                lines += _lines(
                    f"{case.words}: {profile}", chosen, case if profile == "fast" else None
                )
        if len(of) == 2 and all(of.values()):
            fast_s, default_s = (_median(of[profile], "first_step_s") for profile in of)
            ratio = default_s / fast_s
            # A run that waits for a new pod waits for it under both profiles.
            has_spare = case.pods > RANKS or case.min_workers > 0
            promised = case.fault == "pod-kill" and has_spare and case.within_s is not None
            lines.append(
                Line(
                    f"{case.words}: default ÷ fast",
                    f"{ratio:.1f}",
                    f"≥ {TIMES_FASTER:g}" if promised else "",
                    ratio >= TIMES_FASTER if promised else None,
                )
            )
    beside = f", beside {plural(busy, 'busy process')}" if busy else ""
    return Table(
        "How long a run takes to recover",
        f"Drills on a run of 2 ranks on {place}{beside}, with a new cluster for each recovery "
        "profile. Each drill starts when the run has recovered from the one before. The value is "
        "the time from the fault to the first new step, median (minimum–maximum); `detected` is "
        "the time until Ray Train has detected the fault.",
        lines,
        began,
    )


def _lines(text: str, rows: Sequence[Row], promised: Case | None) -> list[Line]:
    within_s = promised.within_s if promised else None
    first_s = [row.first_step_s for row in rows]
    detail = [f"detected {_spread([row.detected_s for row in rows])}"]
    if ready := [row.pod_ready_s for row in rows if row.pod_ready_s is not None]:
        detail.append(f"replaced {_spread(ready)}")
    if lost := [row.steps_lost for row in rows if row.steps_lost is not None]:
        detail.append(f"steps lost {_spread(lost, digits=0)}")
        beyond = max(row.beyond_checkpoint or 0 for row in rows)
        detail.append(f"beyond the checkpoint {beyond}")
    if caught_up := [row.lost_s for row in rows if row.lost_s is not None]:
        detail.append(f"time lost {_spread(caught_up)} s")
    lines = [
        Line(
            f"{text}, {len(rows)} drill{'s' if len(rows) > 1 else ''}",
            f"**{_spread(first_s)} s**; {', '.join(detail)}",
            f"≤ {within_s:g} s" if within_s else "",
            _median(rows, "first_step_s") <= within_s if within_s else None,
        )
    ]
    if paces := [row.pace_percent for row in rows if row.pace_percent is not None]:
        kept = statistics.median(paces)
        promise = (f"≥ {PACE_PERCENT:g} %", kept >= PACE_PERCENT) if promised else ("", None)
        what = f"{text}: throughput of the {PACE_S:g} s after, of that before"
        lines.append(Line(what, f"{_spread(paces, digits=0)} %", *promise))
    lines += _growth_lines(text, rows, promised)
    if shares := [row.caught_up_share for row in rows if row.caught_up_share is not None]:
        what = (
            f"{text}: until it has caught up ÷ "
            f"({CAUGHT_UP_TIMES:g} × the first new step + the repeated steps)"
        )
        promise = ("≤ 1", statistics.median(shares) <= 1) if promised else ("", None)
        lines.append(Line(what, _spread(shares, digits=2), *promise))
    if promised and (watched_s := sum(row.without_fault_s for row in rows)):
        alarms = sum(row.false_alarms for row in rows)
        what = f"{text}: restarts without a fault, in {watched_s / 60:.0f} minutes"
        lines.append(Line(what, str(alarms), "0", alarms == 0))
    if promised is not None and (limit_s := promised.detected_within_s):
        took_s = _median(rows, "detected_s")
        lines.append(
            Line(f"{text}: detected", f"{took_s:.1f} s", f"≤ {limit_s:g} s", took_s <= limit_s)
        )
    return lines


def _growth_lines(text: str, rows: Sequence[Row], promised: Case | None) -> list[Line]:
    after = [
        row.grown_s - row.pod_ready_s
        for row in rows
        if row.grown_s is not None and row.pod_ready_s is not None
    ]
    stops = [row.growth_stop_s for row in rows if row.growth_stop_s is not None]
    if not after or not stops:
        return []
    promise = (f"≤ {GROWS_S:g} s", statistics.median(after) <= GROWS_S) if promised else ("", None)
    return [
        Line(
            f"{text}: from the new pod's being ready to the first step with all ranks",
            f"{_spread(after)} s; no step for {_spread(stops)} s",
            *promise,
        )
    ]


def _median(rows: Sequence[Row], name: str) -> float:
    """A run that never recovered counts as infinite."""
    values = [getattr(row, name) for row in rows]
    return statistics.median(math.inf if value is None else value for value in values)


def _spread(values: Sequence[float | int | None], digits: int = 1) -> str:
    known = [float(value) for value in values if value is not None]
    if not known:
        return "never"
    never = f", {len(values) - len(known)} never" if len(known) < len(values) else ""
    middle, least, most = (
        f"{value:.{digits}f}" for value in (statistics.median(known), min(known), max(known))
    )
    return f"{middle} ({least}–{most}){never}"


def measured_rows(file: Path | None) -> list[Row]:
    if file is None or not file.exists():
        return []
    return [Row(**json.loads(line)) for line in file.read_text().splitlines()]


def turns(
    case: Case, profiles: Sequence[str], done: Counter[str], drills: int, *, by_turns: bool
) -> Iterator[tuple[str, int]]:
    """The profile of each cluster, and the number of drills on it. `done`: drills by profile."""
    left = {name: drills - done[name] for name in profiles if name in case.profiles}
    while any(number > 0 for number in left.values()):
        name = max(left, key=lambda name: left[name])  # the first of those with equally many
        yield name, (1 if by_turns else left[name])
        left[name] -= 1 if by_turns else left[name]


def measure_all(
    names: Sequence[str],
    profiles: Sequence[str],
    drills: int,
    on: str,
    file: Path | None,
    *,
    by_turns: bool = False,
    busy: int = 0,
) -> list[Row]:
    """The rows of the file, and the missing ones, which are added to it."""
    rows = measured_rows(file)
    with computing(busy), ExitStack() as stack:
        testbed, testbed_waits = None, True
        for name in names:
            case = CASES[name]
            done = Counter(row.profile for row in rows if row.case == name)
            for chosen, number in turns(case, profiles, done, drills, by_turns=by_turns):
                profile = PROFILES[chosen]
                say(f"{name}, {profile.name}: {case.words}")
                if on == "testbed" and (testbed is None or testbed_waits != case.waits_for_gcs):
                    stack.close()
                    os.environ[WAIT_FOR_GCS] = str(case.waits_for_gcs).lower()
                    testbed, testbed_waits = (
                        Testbed.up(real=True, operator=True),
                        case.waits_for_gcs,
                    )
                    stack.callback(testbed.down)
                with cluster(on, testbed, case, profile) as (backend, storage):
                    for row in measure(name, profile, backend, storage, number, on):
                        rows.append(row)
                        say(f"  {row}")
                        if file is not None:
                            with file.open("a") as stream:
                                stream.write(json.dumps(asdict(row)) + "\n")
    return [row for row in rows if row.case in names and row.place == on]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recovery", description=__doc__)
    parser.add_argument("cases", nargs="*", choices=(*CASES, []), default=list(CASES))
    parser.add_argument("--profiles", default="fast,default", help="separated by commas")
    parser.add_argument("--drills", type=int, default=5)
    parser.add_argument(
        "--by-turns", action="store_true", help="a new cluster for each drill, profiles alternating"
    )
    parser.add_argument("--busy", type=int, default=0, help="how many other processes compute")
    parser.add_argument("--on", choices=(*PLACES,), default="testbed")
    parser.add_argument("--rows", type=Path, help="a file that each drill is added to, as JSON")
    args = parser.parse_args(argv)
    place = PLACES[args.on]

    def measured() -> Table:
        began = load()
        profiles = args.profiles.split(",")
        rows = measure_all(
            args.cases,
            profiles,
            args.drills,
            args.on,
            args.rows,
            by_turns=args.by_turns,
            busy=args.busy,
        )
        return tabled(rows, place, began, args.busy)

    return show(measured)


if __name__ == "__main__":
    sys.exit(main())
