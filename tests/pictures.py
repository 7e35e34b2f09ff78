"""Draw the pictures of the documentation from a real run: `python -m tests.pictures`.

Takes about five minutes: a local cluster, the job `checkpointed`, `cockpit` on a pseudo-terminal, a
kill, its recovery, and in each view the key `w`, which saves the screen. The film is drawn from the
recording of that run. `--recording FILE` starts nothing: it draws the film and the pictures that
a recording has, from an earlier run (`--keep`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from cockpit.config import paths
from cockpit.recorder.drills import DrillHistory
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.player import Player
from cockpit.recorder.reading.recording import opened
from cockpit.report.animation import svg
from cockpit.report.cast import cast
from cockpit.tui.app import CockpitApp
from cockpit.tui.replay.frames import film
from cockpit.tui.replay.session import connection
from cockpit.tui.terminal.screenshot import svg_of
from tests.bench.cluster import two_workers
from tests.bench.process import COCKPIT, run
from tests.bench.table import say
from tests.bench.terminal import Terminal

DOCS = Path(__file__).parents[1] / "docs"
SIZE = {"COLUMNS": "160", "LINES": "44"}
VIEW_SIZE = {"COLUMNS": "120", "LINES": "32"}
START_TIMEOUT_S = 300.0
BEFORE_KILL_S = 50.0
DRILL_AFTER_S = 8.0
RECOVERY_TIMEOUT_S = 240.0
AFTER_RECOVERY_S = 25.0
SAVE_TIMEOUT_S = 20.0
DRAWN_S = 3.0
"""A view is saved so long after it was opened: it may first read something."""
TOAST_S = 10.0
"""The message about a saved picture is not in the next one."""
DRILL_TIMEOUT_S = 330.0
VIEWS: Mapping[str, Sequence[str]] = {
    "ranks": ("2",),
    "rank": ("2", "\r"),
    "charts": ("3",),
    "pods": ("4",),
    "jobs": ("5", "\r"),
    "drills": ("6",),
    "alerts": ("8",),
    "nodes": ("9",),
    "runs": ("r",),
    "logs": ("v",),
}
"""By the name of the file, the keys that open it. A local cluster has no fleet, and this run has no
trials and no Serve."""

RECORDED: Mapping[str, tuple[float, Sequence[str]]] = {
    "views/drill": (DRILL_AFTER_S, ("6",)),
    "overview": (40.0, ("1",)),
    **{
        f"views/{name}": (60.0, [{"\r": "enter"}.get(key, key) for key in VIEWS[name]])
        for name in ("ranks", "rank", "charts", "pods", "drills", "alerts", "nodes")
    },
}
"""What a recording can show: the seconds after the kill, and the keys. It has no logs."""

FILM_SIZE = (100, 30)
FILM_S, FILM_FRAMES = 40.0, 80
FILM_VIEWS = ("overview", "ranks", "overview", "charts")
BEFORE_FILM_S, AFTER_FILM_S = 20.0, 70.0
"""The film begins so long before the kill, and ends at most so long after it."""


class Pictures:
    """The pictures that the key `w` of a terminal saves in the current directory."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def save(self, target: Path) -> None:
        before = set(Path().glob("cockpit-*.svg"))
        self._terminal.bytes_in(1.0)  # the name has the second
        self._terminal.type("w")
        deadline = time.monotonic() + SAVE_TIMEOUT_S
        while not (made := set(Path().glob("cockpit-*.svg")) - before):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the screen saved no picture for {target.name}")
            self._terminal.bytes_in(0.2)
        shutil.copy(made.pop(), target)


def record(folder: Path, recording: Path) -> None:
    """Save the pictures of a run that recovers from a kill, and its recording."""
    with TemporaryDirectory() as directory, two_workers(), chdir(directory):
        results = f"storage_path={directory}/results"
        run([COCKPIT, "launch", "checkpointed", "--workers", "2", "--set", results])
        with Terminal([COCKPIT, "--local"], SIZE) as terminal:
            terminal.wait_for("· step", START_TIMEOUT_S)
            terminal.bytes_in(BEFORE_KILL_S)
            terminal.type(":")
            terminal.bytes_in(1.0)
            terminal.type("kill 1\r")
            terminal.wait_for("No (n)")
            terminal.type("y6")
            terminal.bytes_in(DRILL_AFTER_S)
            Pictures(terminal).save(folder / "views" / "drill.svg")
            terminal.type("1")
            terminal.wait_for("recovered in", RECOVERY_TIMEOUT_S)
            terminal.bytes_in(AFTER_RECOVERY_S)
            Pictures(terminal).save(folder / "overview.svg")
            until_drill_ends(terminal)
        with Terminal([COCKPIT, "--local"], VIEW_SIZE) as terminal:
            terminal.wait_for("· step", START_TIMEOUT_S)
            for name, keys in VIEWS.items():
                for key in keys:
                    terminal.type(key)
                    terminal.bytes_in(DRAWN_S)
                Pictures(terminal).save(folder / "views" / f"{name}.svg")
                terminal.type("\x1b")  # closes a page, and nothing in a view
                terminal.bytes_in(TOAST_S)
        shutil.copy(Library(paths.state_dir()).list()[0].path, recording)


def until_drill_ends(terminal: Terminal) -> None:
    """The UI that ends before its drill aborts it. The terminal is read as long."""
    deadline = time.monotonic() + DRILL_TIMEOUT_S
    while not DrillHistory().all()[0]:
        if time.monotonic() > deadline:
            raise TimeoutError("the drill has no verdict")
        terminal.bytes_in(2.0)


async def draw_recorded(recording: Path, folder: Path) -> None:
    """Draw the views of a recorded run as they were while it ran."""
    for name, (after_s, keys) in RECORDED.items():
        size = SIZE if name in ("overview", "views/drill") else VIEW_SIZE
        player = Player(opened(recording), paused=True)
        player.seek(killed_s(player) + after_s)
        player.settle()
        made = connection(player)
        app = CockpitApp(lambda say, made=made: made)  # type: ignore[misc]
        try:
            async with app.run_test(size=(int(size["COLUMNS"]), int(size["LINES"]))) as pilot:
                while app.connection is None or not app.capabilities:
                    await pilot.pause(0.02)
                app.capabilities = {}  # the keys are dim in a recording, and not in its run
                await pilot.press(*keys)
                for _ in range(2):
                    app.redraw()
                    await pilot.pause()
                (folder / f"{name}.svg").write_text(svg_of(app), encoding="utf-8")
        finally:
            made.close()


def killed_s(player: Player) -> float:
    """When the run was killed: the first drill of the recording."""
    return next(marker.at_s for marker in player.markers if marker.kind == "drill")


def film_moments(player: Player, count: int = FILM_FRAMES) -> list[float]:
    """From shortly before the kill until the run has been well for a while."""
    kill_s = killed_s(player)
    begin_s = max(player.begin_s, kill_s - BEFORE_FILM_S)
    end_s = min(player.end_s, kill_s + AFTER_FILM_S)
    return [begin_s + (end_s - begin_s) * at / (count - 1) for at in range(count)]


def draw_film(recording: Path, folder: Path) -> None:
    """Of a run that was killed and has recovered, as a cast and as an image."""
    player = Player(opened(recording), paused=True)
    found = asyncio.run(film(player, film_moments(player), views=FILM_VIEWS, size=FILM_SIZE))
    title = "cockpit: a pod is killed, and the run recovers"
    (folder / "demo.cast").write_text(cast(found, FILM_S, title=title), encoding="utf-8")
    (folder / "demo.svg").write_text(svg(found, FILM_S, title=title), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.pictures", description=__doc__)
    parser.add_argument("--recording", type=Path, help="draw what this recording has, and no more")
    parser.add_argument("--folder", type=Path, default=DOCS, help="where to write (default: docs)")
    parser.add_argument("--keep", type=Path, help="keep the recording of the run in this file")
    args = parser.parse_args()
    folder: Path = args.folder.absolute()
    (folder / "views").mkdir(parents=True, exist_ok=True)
    os.environ["TZ"] = "UTC"
    time.tzset()
    if args.recording is not None:
        asyncio.run(draw_recorded(args.recording, folder))
        draw_film(args.recording, folder)
        return 0
    with TemporaryDirectory() as temporary:
        recording = (args.keep or Path(temporary) / "run.cockpit").absolute()
        record(folder, recording)
        say("drawing the film …")
        draw_film(recording, folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
