"""`cockpit watch --plain`: what happens, as one sentence a line, for screen readers and plain logs.

Nothing is painted over, and no state is shown by a colour or a place alone.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator

from cockpit.cli.options import connect
from cockpit.insight.causes.verdict import newest_cause
from cockpit.insight.metrics.live_line import live_line
from cockpit.insight.metrics.stall import stall
from cockpit.model.event import AlertCleared, AlertRaised, Event, Notice
from cockpit.model.text import one_line
from cockpit.store.selectors import current_run, stale_sources
from cockpit.store.store import Store

_NUMBERS = re.compile(r"[\d,.:]+( [kKMG](?=\s))?")


class Sentences:
    """What has changed since the last call. Of a run that makes steps, one line each `every_s`."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._last: dict[str, str] = {}
        self._run_s = -math.inf
        self._notices: set[Notice] = set()
        """Those that were there. Not a time: Kubernetes reports whole seconds, and some late."""

    def new(self, store: Store, now_s: float, run_name: str = "") -> Iterator[str]:
        if store.ref is not None:
            why = f": {one_line(store.health_message)}" if store.health_message else ""
            yield from self._changed("", f"Cluster {store.ref.name} is {store.health.value}{why}.")
        stale = {name: why for name, _, why in stale_sources(store, now_s)}
        for name in store.sources:
            text = f"has no new data: {one_line(stale[name])}" if name in stale else "has new data"
            if name in stale or name in self._last:
                yield from self._changed(name, f"Source {name} {text}.")
        run = current_run(store)
        if run is not None and run_name in ("", run.id, run.name):
            line = live_line(run, now_s, newest_cause(store), stall(run, now_s)).text
            kind = f"{run.id} {_NUMBERS.sub('', line)}"
            if kind != self._last.get("run") or now_s - self._run_s >= self._every_s:
                self._last["run"], self._run_s = kind, now_s
                yield f"Run {run.name or run.id}. {line}."
        for notice in store.notices:
            if notice.warning and notice not in self._notices:
                yield f"{notice.kind} {notice.name}: {notice.reason}. {one_line(notice.message)}."
        self._notices = set(store.notices)

    def alert(self, event: Event) -> str:
        """Of an alert that was raised or cleared; empty for other events."""
        if isinstance(event, AlertRaised):
            found = event.alert.finding
            todo = f" To do: {found.todo.rstrip('.')}." if found.todo else ""
            return f"Alert, {found.severity.value}: {found.what.rstrip('.')}.{todo}"
        return f"Alert cleared: {event.alert_id}." if isinstance(event, AlertCleared) else ""

    def _changed(self, subject: str, text: str) -> Iterator[str]:
        if self._last.get(subject) != text:
            self._last[subject] = text
            yield text


def follow(session: connect.Session, run_name: str, every_s: float) -> None:
    """Print until interrupted."""
    from cockpit.alerts.settings import configured
    from cockpit.cli.read import alerts
    from cockpit.config import file

    sentences = Sentences(every_s)

    def emit(event: Event) -> None:
        session.dispatch(event)
        _print(sentences.alert(event), session.clock())

    def print_new() -> None:
        for text in sentences.new(session.store, session.clock(), run_name):
            _print(text, session.clock())

    alerts.follow(session, configured(file.read()), emit, print_new)


def _print(text: str, now_s: float) -> None:
    if text:
        print(f"{time.strftime('%H:%M:%S', time.localtime(now_s))} {text}", flush=True)
