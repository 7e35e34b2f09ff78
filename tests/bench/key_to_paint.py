"""The latency from a key to its effect on the terminal: `python -m tests.bench.key_to_paint`.

The UI on a simulated RayCluster of 1,000 and of 5,000 pods, where 50 change a second, in a real
pseudo-terminal of 200×50. `j` moves the cursor; its effect is complete once the name of the next
pod has arrived.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from statistics import median
from tempfile import TemporaryDirectory

from cockpit.model.event import Notice, PodsListed
from cockpit.store.selectors import pods_in_order
from tests.bench.table import Line, Table, load, percentile, show
from tests.bench.terminal import Terminal
from tests.tui.simulated_kubernetes import churned, many

SIZES = (1_000, 5_000)
KEYS = 120
EVENTS_PER_S, CHANGES_PER_S = 10, 50
P50_S, P99_S = 0.010, 0.050


def names(count: int) -> list[str]:
    """The pods in the order of the table."""
    simulation = many(count)
    simulation.advance(0)
    simulation.session.drain()
    return [pod.name for pod in pods_in_order(simulation.session.store)]


def screen(count: int) -> None:
    """The screen alone, until it is ended."""
    from cockpit.tui.app import CockpitApp
    from cockpit.tui.changes.actions import Connection

    simulation = many(count)
    simulation.advance(0)
    session = simulation.session

    def churn() -> None:
        session.wait(lambda store: bool(store.pods), 10)
        pods, tick = tuple(session.store.pods.values()), 0
        began = time.monotonic()
        while True:
            tick += 1
            time.sleep(max(0.0, began + tick / EVENTS_PER_S - time.monotonic()))
            before, pods = pods, churned(pods, tick, CHANGES_PER_S // EVENTS_PER_S)
            session.dispatch(PodsListed(at_s=session.clock(), source="backend", pods=pods))
            for old, new in zip(before, pods, strict=True):
                if old is not new:
                    session.dispatch(
                        Notice(
                            at_s=session.clock(),
                            source="backend",
                            kind="Pod",
                            name=f"pod {tick}",
                            reason="Changed",
                            message=new.phase.value,
                        )
                    )

    with session:
        session.wait(lambda store: bool(store.pods), 10)
        threading.Thread(target=churn, daemon=True).start()
        CockpitApp(lambda log: Connection(session, simulation.actions)).run()


def presses(count: int) -> list[float]:
    """Seconds from each key to its effect."""
    wanted = names(count)
    gap = random.Random(7)
    took: list[float] = []
    with TemporaryDirectory() as empty:
        env = {"XDG_STATE_HOME": empty, "XDG_CONFIG_HOME": empty}
        argv = [sys.executable, "-m", "tests.bench.key_to_paint", str(count)]
        with Terminal(argv, env) as terminal:
            terminal.wait_for("● ready")
            terminal.type("4")
            terminal.wait_for(wanted[1])
            list(terminal.texts(2.0))
            for name in wanted[1 : KEYS + 1]:
                # Between the keys, at no fixed distance from the screen's own clock.
                quiet = time.monotonic() + gap.uniform(0.1, 0.25)
                while (left := quiet - time.monotonic()) > 0:
                    list(terminal.texts(left))
                pressed = time.time()
                terminal.type("j")
                took.append(terminal.wait_for(name) - pressed)
    return took


def measure() -> Table:
    began = load()
    lines: list[Line] = []
    for count in SIZES:
        took = presses(count)
        middle, late = median(took), percentile(took, 99)
        promised = count == SIZES[0]
        lines += [
            Line(
                f"{count:,} pods, key to paint, p50",
                f"{1e3 * middle:.1f} ms",
                f"≤ {1e3 * P50_S:.0f} ms" if promised else "",
                middle <= P50_S if promised else None,
            ),
            Line(
                f"{count:,} pods, key to paint, p99",
                f"{1e3 * late:.1f} ms (max {1e3 * max(took):.1f})",
                f"≤ {1e3 * P99_S:.0f} ms" if promised else "",
                late <= P99_S if promised else None,
            ),
        ]
    return Table(
        "Key to paint",
        f"{KEYS} presses of `j` in the Pods view of a simulated RayCluster, in a pseudo-terminal "
        f"of 200×50, while {CHANGES_PER_S} pods change each second: the time until the terminal "
        "receives the name of the next pod.",
        lines,
        began,
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.environ.setdefault("TERM", "xterm-256color")
        screen(int(sys.argv[1]))
    else:
        sys.exit(show(measure))
