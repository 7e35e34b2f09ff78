"""Run a drill to its end and print its progress on standard error."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from cockpit.actions.drills import DrillActions
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.drills.engine.drill import Experiment
from cockpit.drills.plan.kill import KillPlan
from cockpit.format import in_seconds
from cockpit.insight.recovery.measurement import recovery
from cockpit.model.drill import Milestone, ProbeResult, Recovery, Stage, Verdict
from cockpit.model.error import CockpitError
from cockpit.model.text import as_sentence, one_line
from cockpit.session.session import Session
from cockpit.store.drill import DrillView
from cockpit.store.store import Store

T = TypeVar("T")

POLL_S = 0.2
OUTCOMES = {True: "holds", False: "does NOT hold", None: "is unknown"}


def waited(session: Session, work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine on the session's loop while the store's queue is drained."""
    return result_of(session, session.submit(work))


def result_of(session: Session, running: Future[T]) -> T:
    """The result of what runs on the session's loop. Raises what it raised."""
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
            log("Undoing it first …" if interrupted else "Interrupted: aborting the drill …")
            interrupted = True
            abort("interrupted")


class Lines:
    """Print each stage, probe and milestone of one experiment once, with the time since it began.

    New entries are printed in order of time; a source may report some of them late.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._stages = 0
        self._message = ""
        self._probes = 0
        self._reached: set[tuple[str, Milestone]] = set()

    def print_new(self, store: Store) -> None:
        view = store.drilling.get(self._experiment.id)
        if view is None:
            return
        for at_s, text in sorted([*self._of_drill(view), *self._milestones(store)]):
            log(f"{in_seconds(at_s - view.began_s, 1):>9}  {one_line(text)}")

    def _of_drill(self, view: DrillView) -> Iterator[tuple[float, str]]:
        if view.message not in ("", self._message) and self._stages == len(view.stages):
            yield view.stages[-1][1], f"{view.stage.value}: {view.message}"
        self._message = view.message
        for stage, at_s in view.stages[self._stages :]:
            text = f": {view.message}" if view.message and stage is view.stage else ""
            if stage is Stage.PREPARING:
                text = ": nothing is done yet"
            if stage is not Stage.ENDED:
                yield at_s, stage.value + text
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
                    after = f"{'' if after_s < 0 else '+'}{in_seconds(after_s, 1)}"
                    yield at_s, f"{after} {instant.milestone.value} ({instant.source})"


def probe_line(result: ProbeResult) -> str:
    """One probe's answer, as text."""
    return f"{result.probe} {OUTCOMES[result.ok]} {result.when}: {result.value}"


POD_ENDED = "pod ended"
NOT_MEASURED = "the recovery was not measured (--no-wait)"


def kill(session: Session, actions: DrillActions, plan: KillPlan, *, wait: bool = True) -> Recovery:
    """Print each milestone on standard error as it is reached, and return the recovery.

    Without `wait` the drill ends once the pod is deleted. Raises CockpitError if the pod was not
    killed, and KeyboardInterrupt once the drill has ended after a Ctrl-C.
    """
    experiment = actions.experiment(plan.drill)
    printed: set[str] = set()

    def show(store: Store) -> None:
        drill = next((d for d in store.drills if d.id.startswith(f"{experiment.id}.")), None)
        if drill is None:
            return
        if not wait:
            experiment.abort(NOT_MEASURED)
            return
        measured = recovery(store, drill, experiment.readings.get(drill.id))
        for name, at_s, source in milestones(measured):
            if name not in printed:
                printed.add(name)
                log(f"  {in_seconds(at_s, 1):>8}  {name} ({source})")

    record, interrupted = follow(session, actions.drill(experiment), experiment.abort, show)
    if experiment.error is not None:
        raise experiment.error
    if interrupted:
        raise KeyboardInterrupt
    if not record.recoveries:
        raise CockpitError("Nothing was killed.", as_sentence(record.why))
    if wait and record.verdict is Verdict.ABORTED:
        log(f"The drill was aborted: {record.why}.")
    return record.recoveries[0]


def milestones(measured: Recovery) -> list[tuple[str, float, str]]:
    """Return the reached milestones in order of time: name, seconds, source."""
    found = [
        (instant.milestone.value, instant.after_s, instant.source)
        for instant in measured.instants
        if instant.milestone is not Milestone.INJECTED
    ]
    if measured.pod_gone_s is not None:
        found.append((POD_ENDED, measured.pod_gone_s, "backend"))
    return sorted(found, key=lambda item: item[1])


def as_row(measured: Recovery) -> dict[str, Any]:
    """The keys of the summary that `cockpit demo --headless` prints as `drill`."""
    row = tables.as_json(measured)
    drill = row.pop("drill")
    return {
        "fault": drill["fault"],
        "target": drill["target"],
        "ranks": drill["ranks"],
        "steps_lost": measured.steps_lost,
        "recovered": measured.recovered,
        "milestones": row.pop("instants"),
        "loss": row.pop("continuity"),
        **row,
    }
