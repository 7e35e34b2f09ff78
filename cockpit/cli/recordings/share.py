"""`cockpit share RUN`: a recorded run as one file that plays: HTML, a terminal cast, or SVG."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from pathlib import Path

from cockpit.cli.output import links
from cockpit.cli.output.streams import log
from cockpit.cli.recordings.report import read, write
from cockpit.config import paths
from cockpit.model.error import ExitCode, UsageError

FORMATS = ("html", "cast", "svg")
VIEWS = ("overview", "ranks", "pods", "alerts")
FILM = ("overview", "ranks", "drills", "overview")
SIZE = re.compile(r"(\d{2,3})x(\d{2,3})")
MOST_FRAMES = 1_000
MOST_S = 3_600.0


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "Write a recorded run as one file. html: its report and its replay, which plays in a "
        "browser. cast: a terminal cast (asciicast v2), which asciinema plays. svg: an animated "
        "image. The file needs no server and no network. Times are in UTC."
    )
    parser.add_argument("recording", help="a recording's file, its name, its run or its job")
    parser.add_argument(
        "-o", "--output", choices=FORMATS, default="html", help="the kind of file (default: html)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=40.0,
        metavar="S",
        help="how long a cast or an image plays (default: 40)",
    )
    parser.add_argument("--out", metavar="PATH", help="a file or a directory (default: here)")
    parser.add_argument(
        "--frames", type=int, default=100, metavar="N", help="number of frames (default: 100)"
    )
    parser.add_argument(
        "--size",
        default="120x36",
        metavar="CxL",
        help="size of the UI in columns x lines (default: 120x36)",
    )
    parser.add_argument(
        "--views",
        default="",
        help=f"separated by commas (default: {','.join(VIEWS)}). A cast and an image show one "
        f"after the other (default: {','.join(FILM)})",
    )


def run(args: argparse.Namespace) -> int:
    is_film = args.output != "html"
    asked = args.views or ",".join(FILM if is_film else VIEWS)
    views = [name.strip() for name in asked.split(",")]
    size = SIZE.fullmatch(args.size)
    if size is None or not 2 <= args.frames <= MOST_FRAMES or not 1 <= args.seconds <= MOST_S:
        raise UsageError(
            f"--frames must be from 2 to {MOST_FRAMES}, --seconds from 1 to {MOST_S:g}, and --size "
            "COLUMNSxLINES, such as 120x36, up to 999x999."
        )
    os.environ["TZ"] = "UTC"  # as in the report; the reader may be elsewhere
    time.tzset()
    stem, _, document = read(args.recording)
    from cockpit.recorder.reading.library import Library
    from cockpit.recorder.reading.player import Player
    from cockpit.recorder.reading.recording import opened
    from cockpit.report.animation import svg
    from cockpit.report.cast import cast
    from cockpit.report.html import html
    from cockpit.tui.keys import VIEWS as KNOWN
    from cockpit.tui.replay.frames import film, frames, times

    if unknown := [name for name in views if name not in KNOWN]:
        raise UsageError(f"There is no view {unknown[0]!r}.", f"Available: {', '.join(KNOWN)}.")
    player = Player(opened(Library(paths.state_dir()).find(args.recording)), paused=True)
    moments = times(player, args.frames)
    on_terminal = sys.stderr.isatty()

    def progress(done: int) -> None:
        if done % 20 == 0 or (done == len(moments) and on_terminal):
            log(f"{done} of {len(moments)} moments")

    columns, rows = map(int, size.groups())
    draw = film if is_film else frames
    found = asyncio.run(draw(player, moments, views=views, size=(columns, rows), progress=progress))
    title = f"cockpit: {stem}"
    match args.output:
        case "cast":
            text = cast(found, args.seconds, title=title)
        case "svg":
            text = svg(found, args.seconds, title=title)
        case _:
            text = html(document, found)
    target = Path(args.out or ".").expanduser()
    if target.is_dir():
        target /= f"{stem}-replay.{args.output}"
    write(target, text)
    print("Wrote ", end="")
    links.write(str(target), target.absolute().as_uri())
    print(f" ({len(text.encode()) / 1024:,.0f} KiB, {len(moments)} moments)")
    return int(ExitCode.DONE)
