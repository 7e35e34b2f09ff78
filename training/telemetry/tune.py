"""Report the trials of Ray Tune to the telemetry stream without a change to the user's script.

Loaded by `RAY_TUNE_CALLBACKS=training.telemetry.tune.TuneTelemetry` in the driver's environment
(ray 2.60, ray/tune/utils/callback.py), or passed in code, which can also name the optimised metric:

    RunConfig(callbacks=[TuneTelemetry(metric="loss", mode="min")])

An exception of a hook would fail the experiment, so every hook here is guarded.
"""

from __future__ import annotations

import logging
import numbers
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import ray
from ray.tune import Callback

from training.telemetry.failsafe import guarded
from training.telemetry.settings import FINAL_FLUSH_TIMEOUT_S
from training.telemetry.wire import Body, Trial, Trials

log = logging.getLogger(__name__)

EVERY_S = 1.0
"""The minimum interval between reports of changed trials."""
VALUES_KEPT = 64
"""The maximum number of entries of a trial's configuration, and of its newest result."""
TEXT_LIMIT = 200

_FAILED = "ERROR"

_NO_METRIC = frozenset({"pid", "timestamp", "training_iteration"})
"""Numbers that Tune adds to each result and that have separate fields."""

_NAME = r"secret|token|password|passwd|credential|api_?key"
_SECRET = re.compile(_NAME, re.IGNORECASE)
_HOLDS_SECRET = re.compile(rf"(?:{_NAME})\w*['\"]?\s*[=:]|://[^\s/:@]*:[^\s/@]+@", re.IGNORECASE)
"""A list of settings, an object or an address, as text: `{'password': …`, `https://user:password@…`."""


class Outbox(Protocol):
    def send(self, t: float, body: Body) -> None: ...

    def drain(self, timeout_s: float) -> None: ...


class TuneTelemetry(Callback):  # type: ignore[misc]
    """Report each trial when it is new or changed."""

    def __init__(
        self,
        metric: str = "",
        mode: str = "",
        outbox: Callable[[], Outbox] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metric, self._mode = metric, mode
        self._open, self._clock = outbox or _outbox, clock
        self._outbox: Outbox | None = None
        self._reported: dict[str, Trial] = {}
        self._reported_s: float | None = None
        self._is_broken = False

    def __getstate__(self) -> dict[str, Any]:
        """Tune may pickle an experiment's callbacks; the route to the aggregator is not pickled."""
        return {**self.__dict__, "_outbox": None}

    @guarded
    def setup(self, *args: Any, **info: Any) -> None:
        """The aggregator lives as long as its creator: the driver outlives its trials."""
        self._outbox = self._open()

    @guarded
    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now_s = self._clock()
        if self._reported_s is None or now_s - self._reported_s >= EVERY_S:
            self._reported_s = now_s
            self._report(trials)

    @guarded
    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self._report(trials)
        if self._outbox is not None:
            self._outbox.drain(FINAL_FLUSH_TIMEOUT_S)

    def _report(self, trials: Iterable[Any]) -> None:
        changed: dict[str, list[Trial]] = {}
        for trial in trials:
            try:
                reported = self._described(trial)
                if self._reported.get(reported.id) != reported:
                    changed.setdefault(str(trial.experiment_dir_name), []).append(reported)
            except Exception:
                if not self._is_broken:
                    log.warning("telemetry: a trial could not be reported", exc_info=True)
                self._is_broken = True
        if not changed:
            return
        if self._outbox is None:
            self._outbox = self._open()
        for experiment, news in changed.items():
            self._outbox.send(
                time.time(),
                Trials(
                    experiment=experiment,
                    trials=tuple(news),
                    metric=self._metric,
                    mode=self._mode,
                ),
            )
            self._reported |= {trial.id: trial for trial in news}

    def _described(self, trial: Any) -> Trial:
        """Its error is read once it is there: a file of the storage, for which Tune waits."""
        before = self._reported.get(str(trial.trial_id))
        known = before.error if before is not None and before.status == _FAILED else ""
        return trial_of(trial, known or None)


def trial_of(trial: Any, error: str | None = None) -> Trial:
    """From `ray.tune.experiment.Trial`. Its configuration is text, with secrets masked.

    `error`: if it is known; else it is read.
    """
    result = trial.last_result or {}
    if error is None:
        error = _error(trial) if trial.status == _FAILED else ""
    updated_s = result.get("timestamp")
    return Trial(
        id=str(trial.trial_id),
        status=str(trial.status),
        config=dict(_texts(flat(trial.config))),
        metrics=dict(_numbers(flat(result))),
        iteration=int(result.get("training_iteration") or 0),
        started_s=trial.run_metadata.start_time,
        updated_s=float(updated_s) if updated_s is not None else None,
        node_ip=str(result.get("node_ip") or ""),
        pid=int(result.get("pid") or 0),
        error=error,
    )


def _error(trial: Any) -> str:
    """The last line of its traceback."""
    try:
        text = str(trial.get_error() or "")
    except Exception as error:  # noqa: BLE001 - a storage may raise anything
        return f"its error could not be read: {error}"[:TEXT_LIMIT]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:TEXT_LIMIT] if lines else ""


def flat(nested: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a/b": 1}`, as Tune itself writes it."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}/")
        else:
            found[name] = value
    return found


def _texts(config: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in list(config.items())[:VALUES_KEPT]:
        text = str(value)
        is_secret = _SECRET.search(name) or _HOLDS_SECRET.search(text)
        yield name, "***" if is_secret else text[:TEXT_LIMIT]


def _numbers(result: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    """Tune repeats the configuration in each result."""
    known = [
        (name, float(value))
        for name, value in result.items()
        if isinstance(value, numbers.Real)
        and not isinstance(value, bool)
        and not name.startswith("config/")
        and name not in _NO_METRIC
    ]
    return known[:VALUES_KEPT]


def _outbox() -> Outbox:
    from training.telemetry.head.outbox import ActorOutbox

    return ActorOutbox(ray.get_runtime_context().get_job_id())
