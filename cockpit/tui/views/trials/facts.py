"""All that is known of one trial. Pure."""

from __future__ import annotations

from cockpit import format
from cockpit.model.run import Trial
from cockpit.model.text import one_line
from cockpit.store.store import Experiment
from cockpit.store.trials import best
from cockpit.tui.views.trials.rows import TrialLine


def details(experiment: Experiment, trial: Trial, now_s: float) -> list[tuple[str, str]]:
    """All that is known of a trial, as (name, text); an empty text makes a heading."""
    line = TrialLine(trial, experiment.metric, False, now_s)
    top = best(experiment)
    found = [
        ("experiment", trial.experiment),
        ("status", trial.status.value + (" · the best" if top and top.id == trial.id else "")),
        ("iteration", format.count(trial.iteration)),
        ("time", format.duration(line.took_s)),
        ("node", f"{trial.node_ip or format.DASH}  pid {trial.pid or format.DASH}"),
    ]
    found += [("run", trial.run_id)] if trial.run_id else []
    found += [("error", one_line(trial.error, 2000))] if trial.error else []
    found += [("Configuration", "")] if trial.config else []
    found += [(one_line(name), one_line(text, 400)) for name, text in sorted(trial.config.items())]
    found += [("Newest result", "")] if trial.metrics else []
    for name, value in sorted(trial.metrics.items()):
        goal = f"  ({experiment.mode})" if name == experiment.metric else ""
        found.append((one_line(name), format.number(value, 6) + goal))
    return found
