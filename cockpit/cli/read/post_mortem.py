"""`cockpit why --recorded` and `--history`: why a run ended, without its cluster.

The one reads a recording, the other a session of KubeRay's History Server. Both are a store as it
was at the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from cockpit.cli.output import tables
from cockpit.cli.output.causes import SHOWN, print_causes
from cockpit.config import paths
from cockpit.format import moment
from cockpit.insight.causes.types import Cause
from cockpit.insight.causes.verdict import cause_of_job, causes_of_run
from cockpit.insight.hang.verdict import verdict
from cockpit.insight.metrics.live_line import live_line
from cockpit.model.cluster import PodPhase
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.text import one_line
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.recording import opened
from cockpit.store.run import RunView
from cockpit.store.store import Store


class Subject(Struct, frozen=True):
    """What is left of a cluster: its store, and where that is from."""

    store: Store
    end_s: float
    kind: str
    """`recording` or `session`: the key of its name in JSON."""
    name: str
    title: str
    """The first line for people."""
    run_id: str = ""
    """The run to explain; empty: the newest."""
    damage: str = ""
    """What could not be read."""
    see: str = ""
    """What shows more."""


def run(args: argparse.Namespace) -> int:
    subject = _stored(args) if args.history else _recorded(args.what)
    of = _run_of(subject, args.what if args.history else "")
    return _print_run(args, subject, of) if of is not None else _print_jobs(args, subject)


def _recorded(name: str) -> Subject:
    library = Library(paths.state_dir())
    if not name:
        listed = library.list()
        if not listed:
            raise UsageError(
                f"There are no recordings in {library.directory}.",
                "A run is recorded while the UI or cockpit record watches it.",
                "See: cockpit record --help",
            )
        name = listed[0].name
    with opened(library.find(name)) as recording:
        store, end_s = recording.store(), recording.end_s
    stem = recording.path.stem
    if recording.run.run_id not in store.runs:
        raise UsageError(
            f"The recording {stem} has no run.",
            recording.damage or "The recording ended before the run was reported.",
            "cockpit replay shows what it has.",
        )
    return Subject(
        store,
        end_s,
        "recording",
        str(recording.path),
        f"Recording {stem} of {_cluster(store) or 'an unknown cluster'}",
        recording.run.run_id,
        recording.damage,
        f"See: cockpit report {stem}, cockpit replay {stem}",
    )


def _stored(args: argparse.Namespace) -> Subject:
    from cockpit.cli.options import history

    found = history.read(args.where, args.session)
    session = found.session
    place = f"RayCluster {session.cluster} in namespace {session.namespace}"
    flags = f"-n {session.namespace} --cluster {session.cluster} {session.name}"
    return Subject(
        found.store,
        found.end_s,
        "session",
        session.name,
        f"Session {session.name} of {place}, from the History Server",
        damage=found.missing,
        see=f"To replay it: cockpit recordings import {flags}",
    )


def _run_of(subject: Subject, name: str) -> RunView | None:
    """The run of the subject, or the one of that name; None if there are only jobs."""
    runs = subject.store.runs
    if subject.run_id:
        return runs[subject.run_id]
    newest = sorted(runs.values(), key=lambda of: -of.started_s)
    if name:
        newest = [of for of in newest if name in (of.id, of.name, of.submission_id)]
        if not newest and name not in subject.store.jobs:
            there = [of.name or of.id for of in runs.values()] + list(subject.store.jobs)
            raise UsageError(
                f"There is no run or job {one_line(name)!r} in it.",
                f"Available: {', '.join(dict.fromkeys(there)) or 'none'}.",
            )
    return newest[0] if newest else None


def _print_run(args: argparse.Namespace, subject: Subject, of: RunView) -> int:
    store, end_s = subject.store, subject.end_s
    causes = causes_of_run(store, of)
    state = live_line(of, end_s, causes[-1] if causes else None).text
    stuck = verdict(of, end_s) if not of.state.is_over else None
    hang = stuck.sentence if stuck is not None and stuck.is_late else ""
    unready, warnings = _unready(store), _warnings(store)
    if args.output != "table":
        row = {
            "of": of.name or of.id,
            subject.kind: subject.name,
            "cluster": _cluster(store),
            "end_s": end_s,
            "is_over": of.state.is_over,
            "state": state,
            "causes": causes,
            "hang": hang,
            "unready_pods": unready,
            "warnings": warnings,
            "damage": subject.damage,
        }
        tables.print_object(row, args.output)
        return _code(args, causes)
    print(subject.title)
    print(f"At its end, {moment(end_s)}: {state}")
    if not of.state.is_over:
        print(f"The {subject.kind} ends before the run did: what happened later is not known.")
    if hang:
        print(f"It made no progress then: {hang}")
    _print_damage(subject)
    print()
    print_causes(f"Run {of.name or of.id} ({of.state.value})", causes)
    for title, columns, rows in (
        ("Pods that were not ready then", ("name", "host", "phase", "reason"), unready),
        ("Warnings", ("at_s", "name", "reason", "message"), warnings),
    ):
        if rows:
            rest = f", the newest {SHOWN} of {len(rows)}" if len(rows) > SHOWN else ""
            print(f"\n{title}{rest}:")
            tables.print_table(rows[-SHOWN:], columns)
    print(f"\n{subject.see}")
    return _code(args, causes)


def _print_jobs(args: argparse.Namespace, subject: Subject) -> int:
    """Of a session without telemetry, what Ray reported of its jobs."""
    store = subject.store
    jobs = [job for job in store.jobs.values() if args.what in ("", job.id)]
    causes = tuple(cause for job in jobs if (cause := cause_of_job(store, job)) is not None)
    if args.output != "table":
        row = {
            "of": args.what,
            subject.kind: subject.name,
            "cluster": _cluster(store),
            "end_s": subject.end_s,
            "jobs": [{"name": job.id, "status": job.status.value} for job in jobs],
            "causes": causes,
            "damage": subject.damage,
        }
        tables.print_object(row, args.output)
        return _code(args, causes)
    print(subject.title)
    if not args.what:
        print("It has no telemetry of a run. Its jobs are:")
    tables.print_rows(
        [{"name": job.id, "status": job.status.value, "ended_s": job.ended_s} for job in jobs],
        ("name", "status", "ended_s"),
        "table",
        empty="No jobs.",
    )
    _print_damage(subject)
    print()
    print_causes("Jobs" if not args.what else f"Job {one_line(args.what)}", causes)
    return _code(args, causes)


def _print_damage(subject: Subject) -> None:
    if subject.damage:
        print(f"The {subject.kind} is damaged; only its readable part is shown: {subject.damage}")


def _unready(store: Store) -> list[dict[str, Any]]:
    return [
        {"name": pod.name, "host": pod.host, "phase": pod.phase, "reason": pod.reason}
        for pod in store.pods.values()
        if not pod.ready and pod.phase is not PodPhase.SUCCEEDED
    ]


def _warnings(store: Store) -> list[dict[str, Any]]:
    return [
        {
            "at_s": notice.at_s,
            "name": notice.name,
            "reason": notice.reason,
            "message": notice.message,
        }
        for notice in store.notices
        if notice.warning
    ]


def _code(args: argparse.Namespace, causes: Sequence[Cause]) -> int:
    return 1 if args.fail and causes else int(ExitCode.DONE)


def _cluster(store: Store) -> str:
    return one_line(store.ref.described) if store.ref is not None else ""
