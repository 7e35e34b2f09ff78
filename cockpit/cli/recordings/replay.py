"""`cockpit replay FILE|RUN`: a recording on the same screens, or one moment of it as text."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from cockpit.cli.output import streams, tables
from cockpit.config import paths
from cockpit.model.error import UsageError

if TYPE_CHECKING:
    from cockpit.recorder.reading.player import Player
    from cockpit.tui.changes.actions import Connection, Log


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("recording", help="a recording's file, its name, its run or its job")
    parser.add_argument(
        "--speed", type=float, default=10.0, metavar="N", help="times real time (default: 10)"
    )
    parser.add_argument(
        "--at",
        default="",
        metavar="TIME",
        help="start this long after the beginning: 90 (seconds), 5m or 1h30m; or end",
    )
    parser.add_argument(
        "--headless", action="store_true", help="print the state at --at (default: the end)"
    )
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if not 0 < args.speed <= 100_000:
        raise UsageError(
            f"--speed {args.speed:g} is not valid.",
            todo="Use a value above 0 and up to 100,000: --speed 10",
        )
    at_s = seconds(args.at) if args.at not in ("", "end") else None
    if args.headless or args.output != "table":
        return _headless(args, at_s)
    return _screen(args, at_s)


def seconds(text: str) -> float:
    """`90`, `90s`, `5m`, `1h30m`. Raises UsageError."""
    found = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text)
    if not text or found is None:
        raise UsageError(f"{text!r} is not a time.", todo="Like this: --at 90, --at 5m, --at 1h30m")
    sizes = (86_400, 3_600, 60, 1)
    return sum(float(n) * size for n, size in zip(found.groups(), sizes, strict=True) if n)


def _player(args: argparse.Namespace, at_s: float | None) -> Player:
    from cockpit.recorder.reading.library import Library
    from cockpit.recorder.reading.player import Player
    from cockpit.recorder.reading.recording import opened

    player = Player(
        opened(Library(paths.state_dir()).find(args.recording)), speed=args.speed, paused=True
    )
    if at_s is not None:
        player.seek(player.begin_s + at_s)
    elif args.at == "end" or args.headless or args.output != "table":
        player.seek(player.end_s)
    return player


def _headless(args: argparse.Namespace, at_s: float | None) -> int:
    from cockpit.cli.output import status
    from cockpit.format import moment

    player = _player(args, at_s)
    recording = player.recording
    with recording:
        player.settle()
        if args.output == "table":
            print(f"{recording.path.stem} at {moment(player.position_s)}")
            status.print_status(player.store, "table", player.position_s)
        else:
            reported = {
                "name": recording.path.stem,
                "path": str(recording.path),
                "begin_s": player.begin_s,
                "end_s": player.end_s,
                "at_s": player.position_s,
                "summary": recording.run,
                "markers": player.markers,
                "damage": recording.damage,
                **status.status(player.store, player.position_s),
            }
            tables.print_object(reported, args.output)
        if recording.damage:
            print(
                f"The recording is damaged; only its readable part is shown: {recording.damage}",
                file=sys.stderr,
            )
    return 0


def _screen(args: argparse.Namespace, at_s: float | None) -> int:
    streams.require_terminal("Without one: cockpit replay --headless, or cockpit report.")
    from cockpit.config import file
    from cockpit.config.theme_files import theme_named
    from cockpit.tui import keymap
    from cockpit.tui.replay.app import ReplayApp
    from cockpit.tui.terminal.symbols import symbols

    symbols()  # report an unknown symbol set before the UI opens
    keymap.use(keymap.parse(file.read().tables.get("keys", {})))
    player = _player(args, at_s)  # and so is what is no recording

    def start(log: Log) -> Connection:
        from cockpit.tui.replay.session import connection

        player.play(paused=player.at_end)
        return connection(player)

    theme = theme_named(args.theme).name if args.theme else ""
    app = ReplayApp(start, read_only=args.read_only, cluster=args.recording, theme_name=theme)
    try:
        app.run()
        return app.return_code or 0
    finally:
        if app.connection is not None:
            app.connection.close()
        if player.recording.damage:
            print(
                "The recording is damaged; only its readable part was shown: "
                f"{player.recording.damage}.",
                file=sys.stderr,
            )
