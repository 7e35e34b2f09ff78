"""The configuration of alerts: thresholds in `[alerts]`, hooks in `[[hooks]]`.

[alerts]
straggler_percent = 30

[[hooks]]
command = ["notify-send", "cockpit"]   # the alert is JSON on its standard input
severity = "critical"

[[hooks]]
url = "https://hooks.example/T000/B000"
headers = { Authorization = "Bearer …" }
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from cockpit.insight.detectors import thresholds
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics import prices
from cockpit.insight.metrics.prices import Prices
from cockpit.model.alert import Severity
from cockpit.model.error import UsageError

TIMEOUT_S = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Hook:
    """A program or a URL that receives alerts; exactly one of `command` and `url` is set."""

    command: tuple[str, ...] = ()
    url: str = dataclasses.field(default="", repr=False)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    shell: bool = False
    """Hand `command`, one text, to the shell."""
    severity: Severity = Severity.WARNING
    """The lowest severity that it receives."""
    cleared: bool = True
    """Whether it is called when an alert clears."""
    timeout_s: float = TIMEOUT_S

    @property
    def label(self) -> str:
        """The program or the host. Arguments and paths are not shown: they may contain secrets."""
        if self.command:
            return f"command {self.command[0].split()[0]}" if self.command[0].split() else "command"
        return f"webhook {urlsplit(self.url).hostname or ''}".strip()


class AlertSettings(Struct, frozen=True):
    limits: Thresholds = field(default_factory=Thresholds)
    hooks: tuple[Hook, ...] = ()
    prices: Prices = field(default_factory=Prices)


def parse(
    alerts: Mapping[str, Any], hooks: Sequence[Any] = (), cost: Mapping[str, Any] | None = None
) -> AlertSettings:
    """From the tables `[alerts]`, `[[hooks]]` and `[cost]`.

    Raises UsageError, which shows no secret.
    """
    return AlertSettings(
        thresholds.parse(alerts),
        tuple(_hook(f"hooks[{number}]", raw) for number, raw in enumerate(hooks, 1)),
        prices.parse(cost or {}),
    )


_KNOWN = ("command", "url", "headers", "shell", "severity", "cleared", "timeout_s")


def _hook(name: str, raw: Any) -> Hook:
    if not isinstance(raw, Mapping):
        raise _wrong(name, "It is a table: [[hooks]].")
    for key in raw:
        if key not in _KNOWN:
            raise _wrong(f"{name}.{key}", f"There are: {', '.join(_KNOWN)}.")
    if ("command" in raw) == ("url" in raw):
        raise _wrong(name, "It has either a command or a url.")
    shell = _truth(name, raw, "shell", False)
    return Hook(
        command=_command(name, raw["command"], shell=shell) if "command" in raw else (),
        url=_url(name, raw["url"]) if "url" in raw else "",
        headers=_headers(name, raw.get("headers", {})),
        shell=shell,
        severity=_severity(name, raw.get("severity", Severity.WARNING)),
        cleared=_truth(name, raw, "cleared", True),
        timeout_s=_seconds(name, raw.get("timeout_s", TIMEOUT_S)),
    )


def _command(name: str, raw: Any, *, shell: bool) -> tuple[str, ...]:
    if shell and isinstance(raw, str) and raw.strip():
        return (raw,)
    is_list = isinstance(raw, list) and bool(raw) and all(isinstance(label, str) for label in raw)
    if shell or not is_list or not raw[0].strip():
        raise _wrong(
            f"{name}.command", 'It is a list of strings; with shell = true, one string: "a | b".'
        )
    return tuple(raw)


def _url(name: str, raw: Any) -> str:
    parts = urlsplit(raw) if isinstance(raw, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise _wrong(f"{name}.url", "It begins with http:// or https:// and names a host.")
    return str(raw)


def _headers(name: str, raw: Any) -> dict[str, str]:
    if not isinstance(raw, Mapping) or not all(isinstance(v, str) for v in raw.values()):
        raise _wrong(f"{name}.headers", "They are a table of texts.")
    if any("\n" in text or "\r" in text for pair in raw.items() for text in pair):
        raise _wrong(f"{name}.headers", "A header is one line.")
    return dict(raw)


def _severity(name: str, raw: Any) -> Severity:
    try:
        return Severity(raw)
    except ValueError as error:
        raise _wrong(f"{name}.severity", f"It is one of: {', '.join(Severity)}.") from error


def _truth(name: str, raw: Mapping[str, Any], key: str, default: bool) -> bool:
    value = raw.get(key, default)
    if not isinstance(value, bool):
        raise _wrong(f"{name}.{key}", "It is true or false.")
    return value


def _seconds(name: str, raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 < raw <= 600:
        raise _wrong(f"{name}.timeout_s", "It is a number of seconds, up to 600.")
    return float(raw)


def _wrong(what: str, why: str) -> UsageError:
    return UsageError(f"{what} is not understood.", why, "docs/diagnosis.md shows examples.")
