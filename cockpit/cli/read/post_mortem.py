"""`cockpit why --recorded [RUN]`: why a recorded run ended, without its cluster."""

from __future__ import annotations

import argparse

from cockpit.cli.output import tables
from cockpit.cli.output.causes import SHOWN, print_causes
from cockpit.config import paths
from cockpit.format import moment
from cockpit.insight.causes.verdict import causes_of_run
from cockpit.insight.hang.verdict import verdict
from cockpit.insight.metrics.live_line import live_line
from cockpit.model.cluster import PodPhase
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.text import one_line
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.recording import opened
from cockpit.store.store import Store


def run(args: argparse.Namespace) -> int:
    library = Library(paths.state_dir())
    name = args.what
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
    of = store.runs.get(recording.run.run_id)
    if of is None:
        raise UsageError(
            f"The recording {recording.path.stem} has no run.",
            recording.damage or "It was left before the run was reported.",
            "cockpit replay shows what it has.",
        )
    causes = causes_of_run(store, of)
    state = live_line(of, end_s, causes[-1] if causes else None).text
    stuck = verdict(of, end_s) if not of.state.is_over else None
    hang = stuck.sentence if stuck is not None and stuck.is_late else ""
    unready = [
        {"name": pod.name, "host": pod.host, "phase": pod.phase, "reason": pod.reason}
        for pod in store.pods.values()
        if not pod.ready and pod.phase is not PodPhase.SUCCEEDED
    ]
    warnings = [
        {
            "at_s": notice.at_s,
            "name": notice.name,
            "reason": notice.reason,
            "message": notice.message,
        }
        for notice in store.notices
        if notice.warning
    ]
    if args.output != "table":
        row = {
            "of": of.name or of.id,
            "recording": str(recording.path),
            "cluster": _cluster(store),
            "end_s": end_s,
            "is_over": of.state.is_over,
            "state": state,
            "causes": causes,
            "hang": hang,
            "unready_pods": unready,
            "warnings": warnings,
            "damage": recording.damage,
        }
        tables.print_object(row, args.output)
        return _code(args, bool(causes))
    print(f"Recording {recording.path.stem} of {_cluster(store) or 'an unknown cluster'}")
    print(f"At its end, {moment(end_s)}: {state}")
    if not of.state.is_over:
        print("The recording ends before the run did: what happened later is not known.")
    if hang:
        print(f"It made no progress then: {hang}")
    if recording.damage:
        print(f"The recording is damaged, this is the rest: {recording.damage}")
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
    print(f"\nSee: cockpit report {recording.path.stem}, cockpit replay {recording.path.stem}")
    return _code(args, bool(causes))


def _code(args: argparse.Namespace, any_cause: bool) -> int:
    return 1 if args.fail and any_cause else int(ExitCode.DONE)


def _cluster(store: Store) -> str:
    return one_line(store.ref.described) if store.ref is not None else ""
