"""`cockpit` and `cockpit demo`: the UI, which opens before its cluster is connected.

The connection's modules are imported in the thread that connects, after the first paint.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from cockpit.cli.options.settings import THEME
from cockpit.cli.output import streams
from cockpit.cli.screen import late_imports
from cockpit.config import file
from cockpit.session.memory import collect_often
from cockpit.tui import keymap
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection, Log
from cockpit.tui.terminal.symbols import symbols

WITHOUT_SCREEN = "Without one: cockpit status -o json, or cockpit demo --headless."


def run(args: argparse.Namespace) -> int:
    """The UI on the cluster that the flags select; on Kubernetes also with the fleet."""
    streams.require_terminal(WITHOUT_SCREEN)

    def start(log: Log) -> Connection:
        from cockpit.cli.options import connect

        found = connect.found(args, log)
        if isinstance(found, connect.OnKubernetes):
            from cockpit.cli.screen import kubernetes

            return kubernetes.connection(
                args.where,
                found.configured,
                log,
                read_only=args.read_only,
                protected=args.protected,
            )
        from cockpit.cli.screen.connection import connection

        return connection(found, read_only=args.read_only, protected=args.protected)

    return _show(args, start, args.where.cluster)


def demo(args: argparse.Namespace) -> int:
    """The screen on a cluster that is started for it, with a run on it, and that ends with it."""
    streams.require_terminal(WITHOUT_SCREEN)
    ours = False

    def start(log: Log) -> Connection:
        from cockpit.actions.jobs import JobActions
        from cockpit.cli.cluster import demo_cluster
        from cockpit.cli.screen.connection import connection

        def claimed() -> None:
            nonlocal ours
            ours = True

        backend = demo_cluster.start(args, log, claimed)
        log("Launching the training job …")
        ends = "" if args.keep else f"the local cluster {args.name} and its run"
        made = connection(backend, ends_with_screen=ends)
        assert made.session is not None
        try:
            settings = demo_cluster.settings(args)
            made.session.call(JobActions(backend).launch("checkpointed", settings))
        except BaseException:
            made.close()
            raise
        return made

    try:
        return _show(args, start, args.name)
    finally:
        if ours:
            from cockpit.cli.cluster import demo_cluster

            demo_cluster.end(args, streams.log)


def _show(args: argparse.Namespace, start: Callable[[Log], Connection], cluster: str) -> int:
    symbols()  # report an unknown symbol set before the UI opens
    keymap.use(keymap.parse(file.read().tables.get("keys", {})))

    def started(log: Log) -> Connection:
        connection = start(log)
        collect_often()
        shown = connection.session or connection.fleet
        late_imports.begin(shown.backend.ref.backend if shown else "")
        return connection

    app = CockpitApp(
        started,
        read_only=args.read_only,
        protected=args.protected,
        cluster=cluster,
        theme_name=_theme_name(args),
        context_themes=_context_themes(args),
    )
    try:
        app.run()
        return app.return_code or 0
    finally:
        if app.connection is not None:
            app.connection.close()


def _theme_name(args: argparse.Namespace) -> str:
    """The selected theme; empty without one. UsageError for an unknown one."""
    from cockpit.config.theme_files import theme_named

    return theme_named(args.theme).name if args.theme else ""


def _context_themes(args: argparse.Namespace) -> dict[str, str]:
    """`[context_themes]`, unless a flag or a variable selects the theme. Raises UsageError."""
    from cockpit.config.theme_files import theme_named

    if args.given.get("theme") or os.environ.get(THEME):
        return {}
    table = file.read().tables.get("context_themes", {})
    return {pattern: theme_named(str(name)).name for pattern, name in table.items()}
