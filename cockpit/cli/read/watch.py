"""`cockpit watch [RUN]`: print the telemetry as it arrives, one sample per line; or sentences."""

from __future__ import annotations

import argparse
import sys

from cockpit.backends.protocol import Backend
from cockpit.cli.options import connect
from cockpit.cli.output.tables import as_json, print_json
from cockpit.model.event import Event, MetricsReported, RankSampled, RunSeen, SourceHealth
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.telemetry.source import TelemetrySource


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("run", nargs="?", default="", help="only this run, by id or name")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="sentences about cluster, run and alerts instead of samples, for screen readers",
    )
    parser.add_argument(
        "--every",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="with --plain: how often to print the progress of a run that trains (default: 60)",
    )


def run(args: argparse.Namespace) -> int:
    import asyncio

    if args.plain:
        from cockpit.cli.read import sentences

        with connect.session(args, sources=("telemetry", "ray", "failures")) as session:
            sentences.follow(session, args.run, max(1.0, args.every))
        return 0
    asyncio.run(_follow(connect.backend(args, kinds=()), args.run))
    return 0


async def _follow(backend: Backend, run: str) -> None:
    watched = Watched(run)
    try:
        async with Dashboard(backend.dashboard) as dashboard:
            async for event in TelemetrySource(dashboard).events():
                watched.on_event(event)
    finally:
        await backend.aclose()


class Watched:
    """Prints samples; once, on standard error, why there are none to print."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._names: dict[str, str] = {}
        self._sampled: set[str] = set()
        self._printed: set[str] = set()

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunSeen):
            self._names[event.run_id] = event.name
        elif isinstance(event, RankSampled):
            self._sampled.add(event.run_id)
            if self._means(event.run_id):
                for sample in event.samples:
                    names = {"run_id": event.run_id, "run": self._names.get(event.run_id, "")}
                    print_json(names | as_json(sample), indent=None)
        elif isinstance(event, MetricsReported):
            if self._means(event.run_id) and event.run_id not in self._sampled:
                name = self._names.get(event.run_id) or event.run_id
                self._print_once(
                    f"Run {name} sends only reports, no samples: its script does not "
                    "call telemetry.step. To follow the reports: cockpit runs --watch"
                )
        elif isinstance(event, SourceHealth) and event.ok:
            # All stored samples have been read by then.
            if self._wanted and not any(map(self._means, self._names)):
                listed = ", ".join(name or run_id for run_id, name in self._names.items())
                self._print_once(
                    f"Waiting for run {self._wanted!r}. Available: {listed or 'none'}."
                )
            elif not self._names:
                self._print_once("Waiting for a run.")

    def _means(self, run_id: str) -> bool:
        return not self._wanted or self._wanted in (run_id, self._names.get(run_id, ""))

    def _print_once(self, line: str) -> None:
        if line not in self._printed:
            self._printed.add(line)
            print(line, file=sys.stderr)
