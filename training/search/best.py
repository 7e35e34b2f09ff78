"""The result of a search."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class TrialResult:
    id: str
    config: Mapping[str, Any]
    metrics: Mapping[str, Any]
    """Its newest result; empty if it never reported."""
    checkpoint: str = ""
    """The step of that result."""
    error: str = ""
    """The last line of its error."""

    def value(self, metric: str) -> float | None:
        """None if it was not reported, or is not a number."""
        value = self.metrics.get(metric)
        return None if value is None or math.isnan(value) else float(value)


def ranked(trials: Iterable[TrialResult], metric: str, mode: str) -> list[TrialResult]:
    """The best first, those without a value last. A failed trial is ranked by what it reported."""
    sign = -1.0 if mode == "max" else 1.0

    def key(trial: TrialResult) -> float:
        value = trial.value(metric)
        return math.inf if value is None else sign * value

    return sorted(trials, key=key)


def table(trials: Sequence[TrialResult], metric: str, epochs: int) -> str:
    names = sorted({name for trial in trials for name in trial.config})
    rows = [["trial", "ended", "epoch", metric, *names]]
    for trial in trials:
        value = trial.value(metric)
        epoch = float(trial.metrics.get("epoch", 0.0))
        ended = "failed" if trial.error else "finished" if epoch >= epochs else "stopped"
        rows.append(
            [trial.id, ended, f"{epoch:g}", "–" if value is None else f"{value:.4f}"]
            + [cell(trial.config.get(name, "–")) for name in names]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, *(f"{trial.id}: {trial.error}" for trial in trials if trial.error)])


def cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def chosen(
    settings: Any, config: Mapping[str, Any], of: type[Any], without: Collection[str]
) -> dict[str, Any]:
    """The settings with which another job trains like this: the configuration, and settings of the
    search that differ from the defaults of `of`.
    """
    asked = {
        item.name: getattr(settings, item.name)
        for item in fields(of)
        if item.name not in without and getattr(settings, item.name) != item.default
    }
    return asked | dict(config)


def commands(job: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    """As commands, with and without cockpit."""
    texts = {name: _text(value) for name, value in settings.items()}
    given = [f"--set {shlex.quote(f'{name}={text}')}" for name, text in texts.items()]
    flags = [f"--{name.replace('_', '-')} {shlex.quote(text)}" for name, text in texts.items()]
    return (
        " ".join(["cockpit launch", job, *given]),
        " ".join([f"python -m training.jobs.{job}", *flags]),
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
