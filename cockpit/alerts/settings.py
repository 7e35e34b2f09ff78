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
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field

from cockpit.config.file import Configuration
from cockpit.insight.detectors import thresholds
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics import prices
from cockpit.insight.metrics.prices import Prices
from cockpit.model.alert import Severity
from cockpit.model.decoding.settings_table import checked
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


def configured(given: Configuration) -> AlertSettings:
    """The settings of a whole configuration. Raises UsageError as `parse` does."""
    return parse(given.tables.get("alerts", {}), given.hooks, given.tables.get("cost", {}))


def parse(
    alerts: Mapping[str, Any], hooks: Sequence[Any] = (), cost: Mapping[str, Any] | None = None
) -> AlertSettings:
    """From the tables `[alerts]`, `[[hooks]]` and `[cost]`.

    Raises UsageError, which shows no secret.
    """
    return AlertSettings(
        thresholds.parse(alerts),
        tuple(hook(f"hooks[{number}]", raw) for number, raw in enumerate(hooks, 1)),
        prices.parse(cost or {}),
    )


_TYPES = {
    "command": Any,
    "url": Any,
    "headers": dict[str, str],
    "shell": bool,
    "severity": Severity,
    "cleared": bool,
    "timeout_s": Annotated[float, Meta(gt=0, le=600)],
}
EXAMPLES = "docs/diagnosis.md shows examples."


def hook(name: str, raw: Any) -> Hook:
    """One table of `[[hooks]]`; `name` is what errors call it. Raises UsageError."""
    if not isinstance(raw, Mapping):
        raise _wrong(name, "It must be a table: [[hooks]].")
    values = checked(raw, _TYPES, f"{name}.", EXAMPLES, is_secret=True)
    if ("command" in raw) == ("url" in raw):
        raise _wrong(name, "It must have either a command or a url.")
    if "url" in values:
        _require_url(name, values["url"])
    else:
        values["command"] = _command(name, raw["command"], shell=values.get("shell", False))
    if any(
        "\n" in text or "\r" in text for pair in values.get("headers", {}).items() for text in pair
    ):
        raise _wrong(f"{name}.headers", "A header must be one line.")
    return Hook(**values)


def _command(name: str, raw: Any, *, shell: bool) -> tuple[str, ...]:
    if shell and isinstance(raw, str) and raw.strip():
        return (raw,)
    is_list = isinstance(raw, list) and bool(raw) and all(isinstance(label, str) for label in raw)
    if shell or not is_list or not raw[0].strip():
        raise _wrong(
            f"{name}.command",
            'It must be a list of strings; with shell = true, one string: "a | b".',
        )
    return tuple(raw)


def _require_url(name: str, raw: Any) -> None:
    parts = urlsplit(raw) if isinstance(raw, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise _wrong(f"{name}.url", "It must begin with http:// or https:// and name a host.")


def _wrong(what: str, why: str) -> UsageError:
    return UsageError(f"{what} is not valid.", why, EXAMPLES)
