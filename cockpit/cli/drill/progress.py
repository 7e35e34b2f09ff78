"""Run a drill to its end and print its progress on standard error."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from cockpit.cli.output.streams import tell
from cockpit.drills.engine.drill import Experiment
from cockpit.insight.recovery.measurement import recovery
from cockpit.model.drill import Milestone, ProbeResult, Stage
from cockpit.model.text import one_line
from cockpit.session.session import Session
from cockpit.store.drill import DrillView
from cockpit.store.store import Store

T = TypeVar("T")

POLL_S = 0.2
SAYS = {True: "holds", False: "does NOT hold", None: "is unknown"}


def waited(session: Session, work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine on the session's loop while the store's queue is drained."""
    running = session.submit(work)
    while not running.done():
        session.wait(lambda store: running.done(), POLL_S)
    return running.result()


def follow(
    session: Session,
    work: Coroutine[Any, Any, T],
    abort: Callable[[str], None],
    show: Callable[[Store], None],
) -> tuple[T, bool]:
    """Return the result of a drill, and whether Ctrl-C ended it; `show` prints its progress.

    The first Ctrl-C aborts the drill, which undoes its faults; a later one does not stop that.
    """
    running = session.submit(work)
    interrupted = False
    while True:
        try:
            while not running.done():
                session.wait(lambda store: running.done(), POLL_S)
                show(session.store)
            session.drain()
            show(session.store)
            return running.result(), interrupted
        except KeyboardInterrupt:
            tell("Undoing it first …" if interrupted else "Interrupted: aborting the drill …")
            interrupted = True
            abort("interrupted")


class Lines:
    """Tells each stage, probe and milestone of one experiment once, with the time since it began.

    What is new is told in order of time; what a source tells late comes late.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._stages = 0
        self._message = ""
        self._probes = 0
        self._reached: set[tuple[str, Milestone]] = set()

    def tell(self, store: Store) -> None:
        """What is new in the store."""
        view = store.drilling.get(self._experiment.id)
        if view is None:
            return
        for at_s, words in sorted([*self._of_drill(view), *self._milestones(store)]):
            tell(f"{at_s - view.began_s:7.1f} s  {one_line(words)}")

    def _of_drill(self, view: DrillView) -> Iterator[tuple[float, str]]:
        if view.message not in ("", self._message) and self._stages == len(view.stages):
            yield view.stages[-1][1], f"{view.stage.value}: {view.message}"
        self._message = view.message
        for stage, at_s in view.stages[self._stages :]:
            words = f": {view.message}" if view.message and stage is view.stage else ""
            if stage is Stage.PREPARING:
                words = ": nothing is done yet"
            if stage is not Stage.ENDED:
                yield at_s, stage.value + words
        for result in view.probes[self._probes :]:
            yield result.at_s, probe_line(result)
        self._stages, self._probes = len(view.stages), len(view.probes)

    def _milestones(self, store: Store) -> Iterator[tuple[float, str]]:
        readings = dict(self._experiment.readings)
        for drill in [d for d in store.drills if d.id.startswith(f"{self._experiment.id}.")]:
            reading = readings.get(drill.id) or readings.get(drill.id.rpartition(".")[0])
            for instant in recovery(store, drill, reading).instants:
                if (drill.id, instant.milestone) in self._reached:
                    continue
                self._reached.add((drill.id, instant.milestone))
                at_s = drill.injected_s + instant.after_s
                if instant.milestone is Milestone.INJECTED:
                    yield at_s, f"{drill.fault} of {drill.target or 'the cluster'}"
                else:
                    # A run that was down already had its last step before: + 0.0 makes -0.0 0.0.
                    after_s = round(instant.after_s, 1) + 0.0
                    yield at_s, f"{after_s:+.1f} s {instant.milestone.value} ({instant.source})"


def probe_line(result: ProbeResult) -> str:
    """One probe's answer, in words."""
    return f"{result.probe} {SAYS[result.ok]} {result.when}: {result.value}"
