"""Ends of real processes on a real local cluster, and their recordings.

A recording contains what the store needs for the verdict, and no data of the machine: `python -m
tests.causes.real FOLDER` records them again.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import chdir
from pathlib import Path

from cockpit.backends.local import GroupSpec, LocalBackend
from cockpit.cli.main import main
from cockpit.insight.causes.types import Category, Cause
from cockpit.insight.causes.verdict import cause_of_job, causes_of_run
from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    Event,
    JobsListed,
    LogExcerpted,
    MemoryKillsListed,
    NodesListed,
    PodsListed,
    RunSeen,
)
from cockpit.model.run import JobStatus
from cockpit.recorder.codec import decode, encode
from cockpit.session import builder
from cockpit.store.store import Store
from tests.local_cluster import running_cluster

SCRIPT = Path(__file__).parent / "scripts" / "fails.py"
RECORDED = Path(__file__).parent / "recorded"
KINDS = (
    AttemptEnded, AttemptStarted, JobsListed, LogExcerpted, MemoryKillsListed, NodesListed,
    PodsListed, RunSeen,
)  # fmt: skip
TRAIN = {
    "exception": Category.USER,
    "import": Category.USER,
    "missing-data": Category.DATA,
    "bad-checkpoint": Category.DATA,
    "state-dict": Category.USER,
    "shape": Category.USER,
    "nan": Category.USER,
    "full-disk": Category.STORAGE,
    "no-cuda": Category.USER,
    "memory": Category.HOST_MEMORY,
    "timeout": Category.HANG,
    "killed": Category.KILLED,
    "crash": Category.KILLED,
    "exit": Category.KILLED,
}
"""Runs of Ray Train by the way in which rank 1 fails."""
DRIVERS = {
    "exception": Category.USER,
    "import": Category.USER,
    "argument": Category.USER,
    "missing-data": Category.DATA,
    "full-disk": Category.STORAGE,
    "memory": Category.HOST_MEMORY,
    "killed": Category.KILLED,
    "crash": Category.KILLED,
}
"""Drivers without ranks."""
NO_SCRIPT, STOPPED = "no-script", "stopped"
OTHER_JOBS = {NO_SCRIPT: Category.USER, STOPPED: Category.CANCELLED}
ONCE = {"memory-monitor": Category.HOST_MEMORY}
"""Jobs that were recorded by hand: this one on a head with a low RAY_memory_usage_threshold."""
DRILLED = {
    "rank-kill": Category.KILLED,
    "pod-kill": Category.NODE,
    "raylet-kill": Category.NODE,
    "rank-freeze": Category.HANG,
    "pod-delete": Category.PREEMPTED,
}
"""The drills that ended the attempts of `recorded/drills/local.jsonl`, in order. The recording does
not have the drills themselves."""
UNSURE = frozenset({Category.KILLED})
"""The sender of the signal is not reported: `unknown` is right too."""
WAIT_S = 60.0


class Ends:
    """Everything that a session reported, and its store."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.store = Store()
        self.jobs: dict[str, str] = {}
        """Submission ids by name: `driver-import`, `train`."""

    def of_train(self, name: str) -> Cause:
        run = next(run for run in self.store.runs.values() if run.name == name)
        return causes_of_run(self.store, run)[-1]

    def of_job(self, name: str) -> Cause:
        cause = cause_of_job(self.store, self.store.jobs[self.jobs[name]])
        assert cause is not None, name
        return cause


def made(
    backend: LocalBackend, folder: Path, train: Collection[str], drivers: Collection[str]
) -> Ends:
    """Run all, one after the other, and wait for what the sources report of them."""
    shutil.copy(SCRIPT, folder)
    with chdir(folder):  # launch uploads the folder in which it runs
        return _made(backend, train, drivers)


def _made(backend: LocalBackend, train: Collection[str], drivers: Collection[str]) -> Ends:
    where = ("--local", "--cluster", backend.ref.name)
    ends = Ends()

    def launch(name: str, *command: str, follow: bool = True) -> None:
        before = _submitted(backend)
        flags = ("--follow",) if follow else ()
        main(["launch", "--yes", *flags, *where, "--", *command])
        [ends.jobs[name]] = _submitted(backend) - before

    if train:
        launch("train", "python", SCRIPT.name, "train", *train)
    for name in drivers:
        launch(f"driver-{name}", "python", SCRIPT.name, "driver", name)
    launch(NO_SCRIPT, "python", "nowhere.py")
    launch(STOPPED, "python", SCRIPT.name, "driver", "sleep", follow=False)
    _await_running(backend, ends.jobs[STOPPED])
    main(["stop", ends.jobs[STOPPED], "--yes", *where])
    sources = ("ray", "telemetry", "failures")
    with builder.session_on(backend, sources=sources, listeners=(ends.events.append,)) as session:
        ends.store = session.store
        session.wait(lambda store: _is_complete(store, ends, train), WAIT_S)
        session.drain()
    return ends


def _submitted(backend: LocalBackend) -> set[str]:
    with builder.session_on(backend, sources=("ray",)) as session:
        session.wait(lambda store: "ray" in store.sources, WAIT_S)
        return set(session.store.jobs)


def _await_running(backend: LocalBackend, job: str) -> None:
    def is_running(store: Store) -> bool:
        return job in store.jobs and store.jobs[job].status is JobStatus.RUNNING

    with builder.session_on(backend, sources=("ray",)) as session:
        assert session.wait(is_running, WAIT_S)


def _is_complete(store: Store, ends: Ends, train: Collection[str]) -> bool:
    over = [run.name for run in store.runs.values() if run.state.is_over]
    known = [store.jobs.get(job) for job in ends.jobs.values()]
    if set(train) - set(over) or not all(job is not None and job.status.is_over for job in known):
        return False
    failed = {job.id for job in known if job is not None and job.status is JobStatus.FAILED}
    wanted = {(job, 0) for job in failed}
    wanted |= {(run.id, max(run.attempts)) for run in store.runs.values() if run.attempts}
    return wanted <= store.excerpts.keys()


def recording_of(ends: Ends, name: str) -> list[str]:
    """The events of one end, as lines."""
    job = ends.jobs.get(name) or ends.jobs["train"]
    runs = {run.id for run in ends.store.runs.values() if run.name == name}
    lines = []
    last: dict[type[Event], Event] = {}
    for event in ends.events:
        if not isinstance(event, KINDS):
            continue
        if isinstance(event, JobsListed):
            kept = tuple(one for one in event.jobs if one.id == job)
            last[JobsListed] = JobsListed(at_s=event.at_s, source=event.source, jobs=kept)
        elif isinstance(event, NodesListed | PodsListed | MemoryKillsListed):
            last.setdefault(type(event), event)
        elif isinstance(event, LogExcerpted):
            if event.run_id in runs or (event.job_id == job and not event.run_id and not runs):
                lines.append(encode(event))
        elif event.run_id in runs:
            lines.append(encode(event))
    paths = {sys.prefix: "/venv", str(Path.home()): "/home/user"}
    found = [*map(encode, last.values()), *lines]
    for path, neutral in paths.items():
        found = [line.replace(path, neutral) for line in found]
    return found


def read(path: Path) -> Store:
    store = Store()
    for line in path.read_text().splitlines():
        found = decode(line)
        assert found is not None, path
        store.apply(found[1])
    return store


def label_of(path: Path) -> Category:
    kind, _, name = path.stem.partition(".")
    return {"train": TRAIN, "driver": DRIVERS, "job": OTHER_JOBS | ONCE}[kind][name]


def recorded_cause(path: Path) -> Cause:
    store = read(path)
    if store.runs and path.stem.startswith("train."):
        return causes_of_run(store, next(iter(store.runs.values())))[-1]
    cause = cause_of_job(store, next(iter(store.jobs.values())))
    assert cause is not None, path
    return cause


def drilled_causes() -> dict[str, Cause]:
    store = read(RECORDED / "drills" / "local.jsonl")
    [run] = store.runs.values()
    return dict(zip(DRILLED, causes_of_run(store, run), strict=True))


def record(folder: Path, names: Sequence[str] = ()) -> None:
    from tempfile import TemporaryDirectory

    with (
        running_cluster("causes", [GroupSpec("workers", replicas=2, min=0, max=2)]) as backend,
        TemporaryDirectory() as scratch,
    ):
        ends = made(backend, Path(scratch), names or list(TRAIN), list(DRIVERS))
    folder.mkdir(parents=True, exist_ok=True)
    found: Iterable[tuple[str, str]] = (
        *((f"train.{name}", name) for name in names or TRAIN),
        *((f"driver.{name}", f"driver-{name}") for name in DRIVERS),
        *((f"job.{name}", name) for name in OTHER_JOBS),
    )
    for stem, name in found:
        (folder / f"{stem}.jsonl").write_text("\n".join(recording_of(ends, name)) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2:])
