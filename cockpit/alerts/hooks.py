"""Send alerts to programs and web hooks, on a background thread.

The queue is bounded: when a hook is slower than the alerts, the oldest waiting ones are dropped and
counted. A failing hook is reported once until it works again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from cockpit.alerts.settings import Hook
from cockpit.format import in_seconds
from cockpit.insight.detectors.hysteresis import is_at_least
from cockpit.model.alert import Alert, Severity
from cockpit.model.clock import server_time
from cockpit.model.event import Event, Notice
from cockpit.model.text import one_line

WAITING = 100
CLOSE_S = 2.0
SOURCE = "alerts"

log = logging.getLogger(__name__)


def message(alert: Alert, *, cleared_s: float | None = None) -> dict[str, Any]:
    """The JSON object that hooks receive. `text` is the line that chat systems expect."""
    finding = alert.finding
    text = "cleared" if cleared_s is not None else finding.severity.value
    return {
        "state": "cleared" if cleared_s is not None else "raised",
        "id": alert.id,
        "kind": finding.kind,
        "subject": finding.subject,
        "severity": finding.severity.value,
        "what": one_line(finding.what, 500),
        "why": one_line(finding.why, 500),
        "todo": one_line(finding.todo, 500),
        "run_id": finding.run_id,
        "raised_s": alert.raised_s,
        "cleared_s": cleared_s,
        "text": f"cockpit {text}: {one_line(finding.what, 500)}",
    }


class Hooks:
    """`tell` does not block and is thread-safe. Without hooks no thread is started."""

    def __init__(
        self,
        hooks: tuple[Hook, ...],
        dispatch: Callable[[Event], None],
        clock: Callable[[], float] = server_time,
    ) -> None:
        self._hooks, self._dispatch, self._clock = hooks, dispatch, clock
        self._queue: deque[tuple[Hook, dict[str, Any]]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._busy = False
        self._failing: set[int] = set()
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def notify(
        self, alert: Alert, *, cleared_s: float | None = None, worst: Severity | None = None
    ) -> None:
        """`worst`: the highest severity that it had: the hooks that received the alert then also
        receive its end.
        """
        body = message(alert, cleared_s=cleared_s)
        severity = worst or alert.finding.severity
        with self._wake:
            if self._closing:
                return
            for hook in self._hooks:
                if not is_at_least(severity, hook.severity):
                    continue
                if cleared_s is not None and not hook.cleared:
                    continue
                if len(self._queue) >= WAITING:
                    self._queue.popleft()
                    self.dropped += 1
                self._queue.append((hook, body))
            if self._queue and self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="cockpit-hooks", daemon=True
                )
                self._thread.start()
            self._wake.notify_all()

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Send the waiting alerts for at most this time; the thread is a daemon."""
        with self._wake:
            self._wake.wait_for(lambda: not self._queue and not self._busy, timeout_s)
            self._closing = True
            self._queue.clear()
            self._wake.notify_all()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._busy = False
                self._wake.notify_all()
                self._wake.wait_for(lambda: self._queue or self._closing)
                if self._closing:
                    return
                hook, body = self._queue.popleft()
                self._busy = True
            self._one(hook, body)

    def _one(self, hook: Hook, body: dict[str, Any]) -> None:
        number = self._hooks.index(hook)
        try:
            why = run_command(hook, body) if hook.command else post(hook, body)
        except (OSError, ValueError, TypeError, subprocess.SubprocessError) as error:
            # The message may contain the URL or a header, so that only the kind of error is
            # reported.
            why = type(error).__name__
        if not why:
            self._failing.discard(number)
            return
        if number not in self._failing:
            self._failing.add(number)
            log.warning("the alert hook %s failed: %s", hook.label, why)
            self._dispatch(
                Notice(
                    at_s=self._clock(),
                    source=SOURCE,
                    kind="Hook",
                    name=hook.label,
                    reason="HookFailed",
                    message=f"The alert hook {hook.label} failed: {why}. The next "
                    "alert runs it again; this notice appears once.",
                    warning=True,
                )
            )


def run_command(hook: Hook, body: dict[str, Any]) -> str:
    """Run it with the JSON on its standard input. Returns why it failed; "" when it did not."""
    process = subprocess.Popen(
        hook.command[0] if hook.shell else list(hook.command),
        shell=hook.shell,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.communicate(json.dumps(body).encode(), timeout=hook.timeout_s)
    except subprocess.TimeoutExpired:
        return f"it took longer than {in_seconds(hook.timeout_s)} and was killed"
    finally:
        if process.poll() is None:
            # A new session, so that all its child processes are killed with it.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return f"it exited with code {process.returncode}" if process.returncode else ""


def post(hook: Hook, body: dict[str, Any]) -> str:
    """POST the JSON. Returns why it failed, without the URL; "" when it did not."""
    import httpx

    async def status() -> int:
        """Of the answer, whose body is not read: a small one may expand to gigabytes."""
        async with (
            asyncio.timeout(hook.timeout_s),
            httpx.AsyncClient(timeout=hook.timeout_s) as client,
            client.stream("POST", hook.url, json=body, headers=dict(hook.headers)) as answer,
        ):
            return answer.status_code

    try:
        code = asyncio.run(status())
    except (TimeoutError, httpx.TimeoutException):
        return f"no answer within {in_seconds(hook.timeout_s)}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return type(error).__name__
    return f"it returned HTTP {code}" if code >= 300 else ""
