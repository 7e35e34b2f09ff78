"""The run in other systems: Ray Tune's trials and MLflow's runs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from cockpit.model.run import Trial
from cockpit.model.secret import MASKED, is_secret
from cockpit.model.tracking import ModelVersion
from cockpit.report import values
from cockpit.report.document import Block, Column, Columns, Fact, Facts, Kind, Section, Table, table
from cockpit.store.run import RunView
from cockpit.store.store import Experiment, Store

TRIALS_SHOWN = 60
TRACKED_SHOWN = 10
PAIRS_SHOWN = 40


def trials(store: Store) -> Section:
    blocks = [_experiment(e) for e in store.experiments.values() if e.trials]
    return Section("trials", "Tune trials", tuple(blocks))


def _experiment(experiment: Experiment) -> Table:
    """The best ones first where the experiment names its metric."""
    metric, sign = experiment.metric, -1.0 if experiment.mode == "max" else 1.0

    def order(value: float | None) -> float:
        is_finite = value is not None and math.isfinite(value)
        return sign * value if is_finite and value is not None else math.inf

    found = sorted(experiment.trials.values(), key=lambda t: (order(t.metrics.get(metric)), t.id))
    columns: Columns[Trial] = (
        (Column("trial", Kind.TEXT), lambda trial: trial.id),
        (Column("status", Kind.LABEL), lambda trial: trial.status.value),
        (Column("iteration", Kind.COUNT), lambda trial: trial.iteration),
        (
            Column("metric", Kind.NUMBER, values.text(metric, 40) or "metric"),
            lambda trial: trial.metrics.get(metric),
        ),
        (Column("started_s", Kind.MOMENT), lambda trial: trial.started_s),
        (Column("config", Kind.TEXT), lambda trial: _pairs(trial.config)),
        (Column("error", Kind.TEXT), lambda trial: trial.error),
    )
    left_out = len(found) - len(found[:TRIALS_SHOWN])
    goal = {"min": "lowest", "max": "highest"}.get(experiment.mode, "")
    note = f"By {values.text(metric, 60)}, the {goal} first." if metric and goal else ""
    if left_out:
        note += f" {left_out:,} of {len(found):,} are left out."
    title = f"Experiment {values.text(experiment.name, 80)}"
    return table("trials", columns, found[:TRIALS_SHOWN], title, note.strip())


def tracked(store: Store, run: RunView) -> Section:
    """MLflow's runs that name this run, else those that name no other one."""
    ours = [t for t in store.tracked.values() if t.run_id == run.id]
    ours = ours or [t for t in store.tracked.values() if not t.run_id]
    blocks: list[Block] = []
    for one in ours[:TRACKED_SHOWN]:
        metrics = {name: values.number(value) for name, value in one.metrics.items()}
        blocks.append(
            Facts(
                tuple(
                    fact
                    for fact in (
                        Fact("name", one.name),
                        Fact("id", one.id),
                        Fact("experiment", one.experiment),
                        Fact("status", one.status),
                        Fact("url", one.url, Kind.LINK, "page"),
                        Fact("params", _pairs(one.params), title="parameters"),
                        Fact("metrics", _pairs(metrics)),
                        Fact("models", ", ".join(map(_model, one.models[:PAIRS_SHOWN]))),
                        Fact("artifacts", ", ".join(one.artifacts[:PAIRS_SHOWN])),
                    )
                    if fact.value
                )
            )
        )
    return Section("tracked", "Tracked in MLflow", tuple(blocks))


def _model(version: ModelVersion) -> str:
    aliases = f" ({', '.join(version.aliases)})" if version.aliases else ""
    return f"{version.name} {version.version}{aliases}"


def _pairs(pairs: Mapping[str, str]) -> str:
    reported = [
        f"{name}={MASKED if is_secret(name) else value}"
        for name, value in list(pairs.items())[:PAIRS_SHOWN]
    ]
    if len(pairs) > PAIRS_SHOWN:
        reported.append("…")
    return ", ".join(reported)
