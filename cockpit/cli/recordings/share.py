"""`cockpit share RUN`: a recorded run as one HTML file, with its report and its replay."""

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

VIEWS = ("overview", "ranks", "pods", "alerts")
SIZE = re.compile(r"(\d{2,3})x(\d{2,3})")
MOST_FRAMES = 1_000


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "Write one HTML file with the report of a recorded run and its replay, which plays in a "
        "browser. The file needs no server and no network. Times are in UTC."
    )
    parser.add_argument("recording", help="a recording's file, its name, its run or its job")
    parser.add_argument("--out", metavar="PATH", help="a file or a directory (default: here)")
    parser.add_argument(
        "--frames", type=int, default=100, metavar="N", help="moments of the run (default: 100)"
    )
    parser.add_argument(
        "--size", default="120x36", metavar="CxL", help="of the UI, in cells (default: 120x36)"
    )
    parser.add_argument(
        "--views", default=",".join(VIEWS), help=f"separated by commas (default: {','.join(VIEWS)})"
    )


def run(args: argparse.Namespace) -> int:
    views = [name.strip() for name in args.views.split(",")]
    size = SIZE.fullmatch(args.size)
    if size is None or not 2 <= args.frames <= MOST_FRAMES:
        raise UsageError(
            f"--frames is from 2 to {MOST_FRAMES}, and --size such as 120x36, at most 999x999."
        )
    os.environ["TZ"] = "UTC"  # as in the report; the reader may be elsewhere
    time.tzset()
    stem, _, document = read(args.recording)
    from cockpit.recorder.reading.library import Library
    from cockpit.recorder.reading.player import Player
    from cockpit.recorder.reading.recording import opened
    from cockpit.report.html import html
    from cockpit.tui.keys import VIEWS as KNOWN
    from cockpit.tui.replay.frames import frames, times

    if unknown := [name for name in views if name not in KNOWN]:
        raise UsageError(f"There is no view {unknown[0]!r}.", f"There is: {', '.join(KNOWN)}.")
    player = Player(opened(Library(paths.state_dir()).find(args.recording)), paused=True)
    moments = times(player, args.frames)
    on_terminal = sys.stderr.isatty()

    def progress(done: int) -> None:
        if done % 20 == 0 or (done == len(moments) and on_terminal):
            log(f"{done} of {len(moments)} moments")

    columns, rows = map(int, size.groups())
    found = asyncio.run(
        frames(player, moments, views=views, size=(columns, rows), progress=progress)
    )
    text = html(document, found)
    target = Path(args.out or ".").expanduser()
    if target.is_dir():
        target /= f"{stem}-replay.html"
    write(target, text)
    print("Wrote ", end="")
    links.write(str(target), target.absolute().as_uri())
    print(f" ({len(text.encode()) / 1024:,.0f} KiB, {len(moments)} moments)")
    return int(ExitCode.DONE)
