"""Draw the pictures of the documentation from real runs: `python -m tests.pictures`.

`cockpit` runs on a pseudo-terminal, and the key `w` saves its screen. There are four parts, which
`--only` chooses from:

- `run`: the job `checkpointed` on a local cluster, a kill, its recovery, and the views of one run.
  The film is drawn from its recording.
- `later`: on another local cluster, a frozen rank, the trials of `tune`, and the replicas of
  `serve`.
- `experiments`: two runs that log to an MLflow server.
- `fleet`: two RayClusters of a real API server, whose pods KWOK simulates.

`--recording FILE` starts nothing: it draws the film and the pictures that a recording has, from an
earlier run (`--keep`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

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
from tests.cluster.build import missing
from tests.cluster.kwok import add_nodes
from tests.cluster.raycluster import Group, ray_cluster
from tests.cluster.testbed import Testbed
from tests.sources.mlflow_server import MlflowServer
from tests.sources.prometheus_server import free_port

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
JOB_TIMEOUT_S = 300.0
HANG_TIMEOUT_S = 150.0
CONNECTED_S = 10.0
"""The sources of the UI have answered so long after the cluster is shown."""
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
"""By the name of the file, the keys that open it while the run trains."""
LATER = ("hang", "trials", "serve")
FLEET, EXPERIMENTS = "fleet", "experiments"
TRACKED_TIMEOUT_S = 60.0
"""MLflow is asked each 15 s, for the runs that are known by then."""

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
            confirm(terminal, "kill 1")
            terminal.type("6")
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


def draw_later(folder: Path) -> None:
    """Save the pictures of a hang, and of what runs after it."""
    with TemporaryDirectory() as directory, two_workers(), chdir(directory):
        views, results = folder / "views", Path(directory, "results")
        storage = f"storage_path={results}"
        # With the profile `fast`, a frozen rank is ended before the page is drawn.
        job = launched("checkpointed", storage, workers=2, recovery="default")
        draw_hang(views / "hang.svg")
        run([COCKPIT, "stop", job, "--yes", "--wait"])
        succeeds(launched("checkpointed", storage, "epochs=20", "batch_size=64", workers=2))
        run_path = next(results.glob("*/checkpoint_*")).parent
        succeeds(launched("tune", storage, "samples=6", "epochs=30"))
        draw_view(views / "trials.svg", "7", "TERMINATED")
        port = free_port()
        launched("serve", f"run_path={run_path}", f"port={port}")
        until(lambda: answers(f"http://127.0.0.1:{port}/healthz"), "the model is served")
        draw_view(views / "serve.svg", "i", "HEALTHY")


def draw_hang(target: Path) -> None:
    """Freeze a rank, save the page that explains it, and undo it."""
    with Terminal([COCKPIT, "--local"], VIEW_SIZE) as terminal:
        terminal.wait_for("· step", START_TIMEOUT_S)
        terminal.bytes_in(BEFORE_KILL_S)
        confirm(terminal, "drill rank-freeze rank:1 --set for_s=240")
        deadline = time.monotonic() + HANG_TIMEOUT_S
        while subprocess.run([COCKPIT, "hang", "--fail"], capture_output=True).returncode != 1:
            if time.monotonic() > deadline:
                raise TimeoutError("no hang is explained")
            terminal.bytes_in(3.0)
        type_command(terminal, "hang")
        terminal.bytes_in(DRAWN_S)
        Pictures(terminal).save(target)
        terminal.type("\x1b")
        terminal.bytes_in(DRAWN_S)
        terminal.type("X")
        terminal.wait_for("No (n)")
        terminal.type("y")
        until_drill_ends(terminal)


def draw_experiments(folder: Path) -> None:
    """Save the picture of the runs of MLflow, one of them marked to be compared."""
    with (
        TemporaryDirectory() as directory,
        two_workers(),
        chdir(directory),
        MlflowServer(Path(directory)).running() as server,
    ):
        address = f"MLFLOW_TRACKING_URI={server.url}"
        storage = f"storage_path={directory}/results"
        for rate in ("0.05", "0.1"):
            settings = (storage, "epochs=20", "batch_size=64", f"learning_rate={rate}")
            succeeds(launched("checkpointed", *settings, workers=2, environment=address))
        env = {"MLFLOW_TRACKING_URI": server.url}
        with Terminal([COCKPIT, "--local"], {**VIEW_SIZE, **env}) as terminal:
            terminal.wait_for("ready", START_TIMEOUT_S)
            terminal.bytes_in(CONNECTED_S)
            type_command(terminal, EXPERIMENTS)
            terminal.wait_for("2 in MLflow", TRACKED_TIMEOUT_S)
            terminal.type(" ")
            terminal.bytes_in(DRAWN_S)
            Pictures(terminal).save(folder / "views" / f"{EXPERIMENTS}.svg")


def draw_view(target: Path, keys: str, shows: str) -> None:
    """Open a view in a new UI, and save it once it shows the text."""
    with Terminal([COCKPIT, "--local"], VIEW_SIZE) as terminal:
        terminal.wait_for("ready", START_TIMEOUT_S)
        terminal.bytes_in(CONNECTED_S)
        terminal.type(keys)
        terminal.wait_for(shows)
        terminal.bytes_in(DRAWN_S)
        Pictures(terminal).save(target)


def draw_fleet(folder: Path) -> None:
    """Save the picture of the RayClusters of two namespaces; for one, no node has enough GPUs."""
    if why := missing():
        say(f"no picture of the fleet: {why}")
        return
    testbed = Testbed.up(simulated=True, operator=True)
    try:
        add_nodes(testbed.plane, 3)
        for name, namespace, group in (
            ("pretrain", "team-a", Group("gpu", 4, gpus=4)),
            ("finetune", "team-b", Group("gpu", 2, gpus=1)),
            ("ablation", "team-b", Group("gpu", 2, gpus=16)),
        ):
            testbed.namespace(namespace)
            body = ray_cluster(name, (group,), namespace=namespace, simulated=True)
            path = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters"
            testbed.plane.ask("POST", path, body)
        target = folder / "views" / f"{FLEET}.svg"
        with TemporaryDirectory() as directory, chdir(directory):
            env = {"KUBECONFIG": str(testbed.kubeconfig), "XDG_STATE_HOME": directory}
            with Terminal([COCKPIT], {**VIEW_SIZE, **env}) as terminal:
                terminal.wait_for("ablation", START_TIMEOUT_S)
                terminal.bytes_in(CONNECTED_S)
                Pictures(terminal).save(target)
    finally:
        testbed.down()


def launched(
    job: str, *settings: str, workers: int = 0, recovery: str = "", environment: str = ""
) -> str:
    """Launch a bundled job. Returns its id."""
    say(f"launching {job} …")
    argv = [COCKPIT, "launch", job, *(f"--set={each}" for each in settings)]
    argv += ["--workers", str(workers)] if workers else []
    argv += ["--recovery", recovery] if recovery else []
    argv += ["--env", environment] if environment else []
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.split()[-1]


def succeeds(job: str) -> None:
    """Wait until the job has ended. Raises RuntimeError if it failed."""

    def has_ended() -> bool:
        argv = [COCKPIT, "jobs", "-o", "json"]
        done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
        found: dict[str, Any] = next(one for one in json.loads(done.stdout) if one["id"] == job)
        if found["status"] == "FAILED":
            raise RuntimeError(f"the job {job} has failed: {found['message']}")
        return bool(found["status"] == "SUCCEEDED")

    until(has_ended, f"{job} ends")


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, TimeoutError, ConnectionError):
        return False


def until(holds: Callable[[], bool], what: str) -> None:
    say(f"waiting until {what} …")
    deadline = time.monotonic() + JOB_TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {JOB_TIMEOUT_S:g} s: {what}")
        time.sleep(1.0)


def type_command(terminal: Terminal, command: str) -> None:
    terminal.type(":")
    terminal.bytes_in(1.0)
    terminal.type(f"{command}\r")


def confirm(terminal: Terminal, command: str) -> None:
    """Type a command that changes the cluster, and `y` in its dialog."""
    type_command(terminal, command)
    terminal.wait_for("No (n)")
    terminal.type("y")


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
    parser.add_argument(
        "--only", choices=("run", "later", EXPERIMENTS, FLEET), help="one part of the pictures"
    )
    args = parser.parse_args()
    folder: Path = args.folder.absolute()
    (folder / "views").mkdir(parents=True, exist_ok=True)
    os.environ["TZ"] = "UTC"
    time.tzset()
    if args.recording is not None:
        asyncio.run(draw_recorded(args.recording, folder))
        draw_film(args.recording, folder)
        return 0
    if args.only in (None, "run"):
        with TemporaryDirectory() as temporary:
            recording = (args.keep or Path(temporary) / "run.cockpit").absolute()
            record(folder, recording)
            say("drawing the film …")
            draw_film(recording, folder)
    if args.only in (None, "later"):
        draw_later(folder)
    if args.only in (None, EXPERIMENTS):
        draw_experiments(folder)
    if args.only in (None, FLEET):
        draw_fleet(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
