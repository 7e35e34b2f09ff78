"""Draw every view, page and dialog in each size and look: `python -m tests.tui.pictures FOLDER`.

The data is simulated, so a picture is the same each time.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from cockpit.config import paths
from cockpit.model.cluster import ClusterPattern
from cockpit.model.event import RanksDumped, ServeListed, SourceHealth, TrackedRunsListed
from cockpit.recorder.reading.library import Library
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection
from cockpit.tui.terminal.screenshot import svg_of, text_of
from cockpit.tui.terminal.symbols import Symbols, use_symbols
from tests.recorder.test_recorder import record, script
from tests.tui import headless, test_all_logs, test_experiments_page, test_hang_page
from tests.tui import test_runs_view as runs
from tests.tui import test_serve_view as serve
from tests.tui.alerting import troubled
from tests.tui.drilled import drilled
from tests.tui.simulated import START_S, Simulation, digits, wide
from tests.tui.simulated_kubernetes import fleet, kube
from tests.tui.tuned import tuned

SIZES = ((20, 5), (80, 24), (120, 40), (200, 50))
LOOKS = {
    "dark": ("cockpit-dark", Symbols.BRAILLE),
    "light": ("cockpit-light", Symbols.BRAILLE),
    "16-colours": ("ansi-16", Symbols.BLOCK),
    "ascii": ("ansi-16", Symbols.ASCII),
}
"""Each with its theme and its symbols."""
LIMIT_S = 60.0


@dataclass(frozen=True)
class Picture:
    """What is drawn: the data, its time, and the keys that lead there."""

    simulation: Callable[[], Simulation]
    at_s: float
    keys: Sequence[str]
    shows: str = ""
    """A text that must be there."""
    on_kubernetes: bool = False
    read_only: bool = False
    protected: Sequence[ClusterPattern] = ()


def typed(command: str) -> tuple[str, ...]:
    return (*f":{command}", "enter")


def served() -> Simulation:
    simulation = digits(kill_s=None)
    found = ServeListed(at_s=START_S, source="serve", deployments=serve.FOUND)
    return with_events(simulation, SourceHealth(at_s=START_S, source="serve", ok=True), found)


def tracked() -> Simulation:
    found = TrackedRunsListed(at_s=START_S, source="mlflow", runs=test_experiments_page.RUNS)
    return with_events(digits(kill_s=None), found)


def hanging() -> Simulation:
    simulation = digits(kill_s=None)
    return with_events(simulation, test_hang_page.dumped("run-3f9a", 1))


def with_events(simulation: Simulation, *events: SourceHealth | ServeListed | TrackedRunsListed
                | RanksDumped) -> Simulation:  # fmt: skip
    simulation._script = sorted([*simulation._script, *events], key=lambda event: event.at_s)
    return simulation


def nothing() -> Simulation:
    return Simulation(())


PICTURES = {
    "overview": Picture(digits, 110, "1", "digits"),
    "overview-hang": Picture(hanging, 60, "1", "STALLED"),
    "overview-kubernetes": Picture(kube, 60, "1", "llm-train", on_kubernetes=True),
    "ranks": Picture(digits, 110, "2", "RANK"),
    "ranks-many": Picture(wide, 60, "2", "RANK"),
    "charts": Picture(digits, 110, "3"),
    "pods": Picture(kube, 60, "4", on_kubernetes=True),
    "jobs": Picture(digits, 110, "5"),
    "drills": Picture(drilled, 112, "6"),
    "trials": Picture(tuned, 60, "7"),
    "alerts": Picture(troubled, 150, "8"),
    "nodes": Picture(kube, 60, "9", on_kubernetes=True),
    "fleet": Picture(kube, 60, "0", on_kubernetes=True),
    "runs": Picture(digits, 60, "r", "baseline"),
    "serve": Picture(served, 60, "i", "Digits"),
    "rank": Picture(digits, 110, ("2", "enter")),
    "hang": Picture(hanging, 60, typed("hang")),
    "experiments": Picture(tracked, 60, typed("experiments"), "baseline"),
    "logs": Picture(digits, 60, "v"),
    "help": Picture(digits, 60, "?"),
    "kill": Picture(digits, 60, ("4", "j", "K")),
    "launch": Picture(digits, 60, "L"),
    "drill-form": Picture(digits, 60, "D"),
    "command": Picture(digits, 60, ":"),
    "palette": Picture(digits, 60, ("ctrl+p",)),
    "read-only": Picture(digits, 60, "4", read_only=True),
    "protected": Picture(digits, 60, "1", "PROTECTED", protected=(ClusterPattern(),)),
    **{
        f"{view}-empty": Picture(nothing, 1, keys)
        for view, keys in {
            "overview": "1", "ranks": "2", "charts": "3", "pods": "4", "jobs": "5", "drills": "6",
            "trials": "7", "alerts": "8", "nodes": "9", "fleet": "0", "serve": "i",
            "hang": typed("hang"), "experiments": typed("experiments"), "logs": "v",
        }.items()
    },
}  # fmt: skip


async def draw(
    picture: Picture, look: str, sizes: Sequence[tuple[int, int]]
) -> list[tuple[str, str]]:
    """The screen in each size, as SVG and as text."""
    theme, symbols = LOOKS[look]
    use_symbols(symbols)
    simulation = picture.simulation()
    simulation.advance(picture.at_s)
    others = fleet(START_S + picture.at_s) if picture.on_kubernetes else None
    connection = Connection(
        simulation.session,
        simulation.actions,
        fleet=others,
        log_source=lambda stream: test_all_logs.AllLogs() if stream.startswith("run:") else None,
    )
    app = CockpitApp(
        lambda say: connection,
        cluster="local:demo",
        theme_name=theme,
        read_only=picture.read_only,
        protected=picture.protected,
    )
    found = []
    with simulation.session, others or nullcontext():
        async with app.run_test(size=max(sizes)) as pilot, asyncio.timeout(LIMIT_S):
            while app.connection is None or not app.capabilities:
                await pilot.pause(0.02)
            await pilot.press(*picture.keys)
            while picture.shows not in text_of(app):
                await pilot.pause(0.02)
            for size in sizes:
                await pilot.resize_terminal(*size)
                for _ in range(2):
                    app.redraw()
                    await pilot.pause()
                found.append((svg_of(app), text_of(app)))
    use_symbols(None)
    return found


@contextmanager
def surroundings() -> Iterator[None]:
    """The fixtures of the tests of the UI, and two recordings."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as state:
        headless.patch(patch)
        patch.setenv("XDG_STATE_HOME", state)
        patch.setenv("TZ", "UTC")
        library = Library(paths.state_dir())
        for name, until_s in (("baseline", 60.0), ("wide", 40.0)):
            record(library.path_of(f"id-{name}"), runs.renamed(script(until_s, None), f"id-{name}",
                                                               name))  # fmt: skip
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.tui.pictures", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[], choices=PICTURES, metavar="NAME")
    parser.add_argument("--png", action="store_true", help="also as PNG, with rsvg-convert")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with surroundings():
        for name in args.only or PICTURES:
            for look in ("dark",) if name.endswith("-empty") else LOOKS:
                drawn = asyncio.run(draw(PICTURES[name], look, SIZES))
                for (width, height), (svg, text) in zip(SIZES, drawn, strict=True):
                    path = args.folder / f"{name}-{width}x{height}-{look}.svg"
                    path.write_text(svg, encoding="utf-8")
                    path.with_suffix(".txt").write_text(text, encoding="utf-8")
                    if args.png:
                        png = ("rsvg-convert", "-z", "0.6", path, "-o", path.with_suffix(".png"))
                        subprocess.run(png, check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
