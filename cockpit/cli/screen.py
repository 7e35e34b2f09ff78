"""`cockpit` and `cockpit demo`: the screen, connected to a cluster while it is already up."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from cockpit.actions import ClusterActions
from cockpit.backends.pod_log import PodLogSource
from cockpit.backends.protocol import Backend
from cockpit.catalogue import bundled_jobs
from cockpit.cli import connect
from cockpit.model.error import UsageError
from cockpit.session import Source
from cockpit.sources.dashboard import Dashboard
from cockpit.sources.logs import JobLogSource
from cockpit.tui.actions import BundledJob, Connection, Say, Setting
from cockpit.tui.app import CockpitApp


def run(args: argparse.Namespace) -> int:
    """The screen on the cluster that the flags name."""
    _require_terminal()
    return _show(args, lambda say: connection(connect.backend(args)), args.cluster)


def demo(args: argparse.Namespace) -> int:
    """The screen on a cluster that is started for it, with a run on it, and that ends with it."""
    from cockpit.cli import demo as verb

    _require_terminal()
    started = False

    def start(say: Say) -> Connection:
        nonlocal started
        backend = verb.cluster_up(args, say)
        started = True
        say("Launching the training job …")
        ends = "" if args.keep else f"the local cluster {args.name} and its run"
        made = connection(backend, ends_with_screen=ends)
        try:
            made.session.call(ClusterActions(backend).launch("checkpointed", verb.settings(args)))
        except BaseException:
            made.session.close()
            raise
        return made

    try:
        return _show(args, start, args.name)
    finally:
        if started:
            verb.cluster_down(args, lambda line: print(line, file=sys.stderr, flush=True))


def connection(backend: Backend, *, ends_with_screen: str = "") -> Connection:
    """A started session on the backend, and what the screen may ask for."""
    session = connect.session_on(backend)
    session.start()
    return Connection(
        session=session,
        actions=ScreenActions(backend, session.clock),
        log_source=_log_source(backend),
        ends_with_screen=ends_with_screen,
    )


class ScreenActions(ClusterActions):
    """The same changes as the verbs make, and the catalogue for the launch dialog."""

    def bundled_jobs(self) -> tuple[BundledJob, ...]:
        return tuple(
            BundledJob(
                job.name,
                job.summary,
                tuple(Setting(s.name, str(s.default), s.help) for s in job.settings),
            )
            for job in bundled_jobs()
        )


def _log_source(backend: Backend) -> Callable[[str], Source | None]:
    def source(stream: str) -> Source | None:
        kind, _, name = stream.partition(":")
        if kind == "job":
            return JobLogSource(Dashboard(backend.dashboard), name)
        return PodLogSource(backend, name) if kind == "pod" else None

    return source


def _show(args: argparse.Namespace, start: Callable[[Say], Connection], cluster: str) -> int:
    app = CockpitApp(start, read_only=args.read_only, cluster=cluster)
    try:
        return app.run() or 0
    finally:
        if app.connection is not None:
            app.connection.session.close()


def _require_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "The screen needs a terminal, and this is a pipe or a file.",
            todo="Use cockpit status -o json, or cockpit demo --headless.",
        )
