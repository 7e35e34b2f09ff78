"""`cockpit alerts`: problems of the current run and of jobs; with --watch as they are raised.

A single query has no history: it prints every finding, without the delay after which the UI or
--watch raise it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from cockpit import format
from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.cli.output.tables import as_json, print_json, print_object, print_rows
from cockpit.model.error import UnreachableError

if TYPE_CHECKING:
    from cockpit.alerts.settings import AlertSettings
    from cockpit.insight.metrics.diagnosis import Diagnosis
    from cockpit.model.alert import Finding
    from cockpit.model.event import Event
    from cockpit.model.run import RunSummary
    from cockpit.store.store import Store

COLUMNS = ("severity", "kind", "subject", "what")
SOURCES = ("telemetry", "ray", "backend", "failures")


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    tables.arguments(parser)
    tables.watch_argument(parser, "print a line of JSON for each alert raised, changed or cleared")
    parser.add_argument(
        "--severity",
        choices=("info", "warning", "critical"),
        default="info",
        help="the lowest severity to show (default: info)",
    )
    parser.add_argument(
        "--diagnosis",
        action="store_true",
        help="the diagnosis as JSON: shares of the step, goodput, ETA, unsaved steps",
    )
    parser.add_argument("--fail", action="store_true", help="exit with 1 when there is a finding")


def run(args: argparse.Namespace) -> int:
    from cockpit.alerts.settings import configured
    from cockpit.config import file

    settings = configured(file.read())
    with connect.session(args, sources=("telemetry", "ray", "failures")) as session:
        connect.wait_for(session, SOURCES)
        _require_telemetry(session)
        if args.watch:
            return _watch(args, session, settings)
        return _print_once(args, session.store, session.clock(), settings)


def _require_telemetry(session: connect.Session) -> None:
    """Without it nothing is known of runs, and an empty list would be a lie."""
    state = session.store.sources.get("telemetry")
    if state is None or not (state.ok or state.absent):
        raise UnreachableError(
            f"The telemetry source of {session.backend.ref} does not answer.",
            state.error if state else "it did not answer in time",
            "cockpit status shows each source.",
        )


def _print_once(
    args: argparse.Namespace, store: Store, now_s: float, settings: AlertSettings
) -> int:
    from cockpit.insight.detectors.findings import findings
    from cockpit.insight.detectors.hysteresis import is_at_least
    from cockpit.insight.metrics.diagnosis import diagnosis
    from cockpit.model.alert import Severity
    from cockpit.store.selectors import current_run

    going = current_run(store)
    limits, past = settings.limits, _recorded()
    found = findings(store, going, now_s, past, limits, prices=settings.prices)
    found = [it for it in found if is_at_least(it.severity, Severity(args.severity))]
    reported = (
        diagnosis(store, going, now_s, past, limits, settings.prices) if going is not None else None
    )
    if args.diagnosis:
        print_object(reported, "json" if args.output == "table" else args.output)
    else:
        where = f" of run {going.name or going.id}" if going is not None else ": no training run"
        print_rows([row(it) for it in found], COLUMNS, args.output, empty=f"No alerts{where}.")
        if args.output == "table":
            for line in sentences(reported, found):
                print(line)
    return 1 if args.fail and found else 0


def _recorded() -> Sequence[RunSummary]:
    """Recorded runs to compare with."""
    from cockpit.config import paths
    from cockpit.recorder.reading.library import Library

    return Library(paths.state_dir()).summaries()


def row(finding: Finding) -> dict[str, Any]:
    """JSON-ready; `name` is the id that the alert has, or would have."""
    reported: dict[str, Any] = as_json(finding)
    return {"name": f"{finding.kind}/{finding.subject}"} | reported


def sentences(reported: Diagnosis | None, found: list[Finding]) -> list[str]:
    """The actions to try, and the state of the run, as text."""
    lines = [f"  {it.kind}: {it.todo}. {it.why}" for it in found if it.todo]
    if lines:
        lines = ["", "What to try:", *lines]
    if reported is None:
        return lines
    facts = []
    if reported.shares is not None:
        facts.append(f"Step time: {_parts(reported.shares.parts)}")
    if reported.goodput is not None:
        facts.append(f"Goodput: {_parts(reported.goodput.parts)}")
    if reported.eta is not None:
        eta = reported.eta
        facts.append(
            f"Done in {format.in_minutes(eta.left_s, 0)} ({eta.low_s / 60:.0f} to "
            f"{eta.high_s / 60:.0f}): "
            f"{eta.done:.4g} of {eta.target:.6g} {eta.unit}, by {eta.set_by}"
        )
    if reported.at_risk is not None:
        steps = "" if reported.at_risk.steps is None else f"{reported.at_risk.steps:,} steps, "
        facts.append(f"Lost if killed now: {steps}{format.age(reported.at_risk.seconds)}")
    if reported.save_interval is not None:
        facts.append(f"Saving {reported.save_interval.text} ({reported.save_interval.why})")
    if reported.cost is not None and reported.cost.gpus and reported.knows_lost_time:
        facts.append(f"Lost so far: {reported.cost.lost:.2f} GPU-hours")
    if reported.cost is not None and reported.cost.text:
        facts.append(f"Cost so far: {reported.cost.text}")
    return [*lines, *(["", *facts] if facts else [])]


def _parts(parts: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{name} {percent:.0f} %" for name, percent in parts if percent >= 0.5)


def _watch(args: argparse.Namespace, session: connect.Session, settings: AlertSettings) -> int:
    from cockpit.insight.detectors.hysteresis import is_at_least
    from cockpit.model.alert import Severity
    from cockpit.model.event import AlertCleared, AlertRaised, Notice

    least = Severity(args.severity)
    reported: set[str] = set()

    def emit(event: Event) -> None:
        session.dispatch(event)
        if isinstance(event, AlertRaised):
            if is_at_least(event.alert.finding.severity, least):
                state = "changed" if event.alert.id in reported else "raised"
                reported.add(event.alert.id)
                line = {"at_s": event.at_s, "state": state} | row(event.alert.finding)
                print_json(line, indent=None)
        elif isinstance(event, AlertCleared) and event.alert_id in reported:
            reported.discard(event.alert_id)
            print_json(
                {"at_s": event.at_s, "state": "cleared", "name": event.alert_id}, indent=None
            )
        elif isinstance(event, Notice):
            print_json(
                {"at_s": event.at_s, "state": "notice", "name": event.name, "what": event.message},
                indent=None,
            )

    follow(session, settings, emit)


def follow(
    session: connect.Session,
    settings: AlertSettings,
    emit: Callable[[Event], None],
    on_interval: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Check the alerts until interrupted; `on_interval` is called before each check."""
    from cockpit.alerts.monitor import CHECK_EVERY_S, AlertMonitor

    monitor = AlertMonitor(emit, lambda: session.store, settings, _recorded, session.clock)
    try:
        while True:
            session.wait(lambda store: False, CHECK_EVERY_S)
            on_interval()
            monitor.check(session.clock())
    finally:
        monitor.close()
