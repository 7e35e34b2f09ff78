"""A UI that writes a heartbeat: `python -m tests.faults.heartbeat_app FILE`.

One line per beat of its event loop, with the step that it shows. Its run is ten times as fast as a
real one. Used to test a terminal that stops reading.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cockpit.store.selectors import current_run
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection
from tests.tui.simulated import Simulation, digits

BEAT_S = 0.1
FROM_S = 20.0
SPEED = 10.0


class BeatingApp(CockpitApp):
    def __init__(self, simulation: Simulation, beats: Path) -> None:
        super().__init__(lambda log: Connection(simulation.session, simulation.actions))
        self._simulation, self._beats = simulation, beats
        self._began = time.monotonic()

    def on_ready(self) -> None:
        self.set_interval(BEAT_S, self.beat)

    def beat(self) -> None:
        with self._beats.open("a") as file:
            run = current_run(self.store)
            print(time.monotonic(), run.step if run and run.step else 0, file=file)
        self._simulation.advance(FROM_S + SPEED * (time.monotonic() - self._began))


if __name__ == "__main__":
    run = digits(kill_s=None, until_s=1_000.0)
    with run.session:
        BeatingApp(run, Path(sys.argv[1])).run()
