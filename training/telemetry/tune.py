"""Report the trials of Ray Tune to the telemetry stream without a change to the user's script.

Loaded by `RAY_TUNE_CALLBACKS=training.telemetry.tune.TuneTelemetry` in the driver's environment
(ray 2.60, ray/tune/utils/callback.py), or passed in code, which can also name the optimised metric:

    RunConfig(callbacks=[TuneTelemetry(metric="loss", mode="min")])

An exception of a hook would fail the experiment, so every hook here is guarded.
"""

from __future__ import annotations

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

EVERY_S = 1.0
"""The minimum interval between reports of changed trials."""
VALUES_KEPT = 64
"""The maximum number of entries of a trial's configuration, and of its newest result."""
TEXT_LIMIT = 200

_NO_METRIC = frozenset({"pid", "timestamp", "training_iteration"})
"""Numbers that Tune adds to each result and that have separate fields."""

_SECRET = re.compile(r"secret|token|password|passwd|credential|api_?key", re.IGNORECASE)


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
            reported = trial_of(trial)
            if self._reported.get(reported.id) != reported:
                self._reported[reported.id] = reported
                changed.setdefault(str(trial.experiment_dir_name), []).append(reported)
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


def trial_of(trial: Any) -> Trial:
    """From `ray.tune.experiment.Trial`. Its configuration is text, with secrets masked."""
    result = trial.last_result or {}
    error = trial.get_error() if trial.status == "ERROR" else None
    lines = [line.strip() for line in str(error or "").splitlines() if line.strip()]
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
        error=lines[-1][:TEXT_LIMIT] if lines else "",
    )


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
        yield name, "***" if _SECRET.search(name) else str(value)[:TEXT_LIMIT]


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
