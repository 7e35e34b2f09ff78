"""The newest state of the cluster, which each new recording begins with."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from cockpit.model.event import (
    AlertCleared,
    AlertRaised,
    ClusterSeen,
    Event,
    GpuActivityListed,
    GroupsListed,
    JobsListed,
    MachinesListed,
    NodesListed,
    Notice,
    PodsListed,
    SourceHealth,
    TrackedRunsListed,
    TrialsListed,
)
from cockpit.model.run import Trial

NOTICES = 50
ENDED_TRIALS = 100
"""Of an experiment, besides those that go on. A sweep has a recording for each of its runs: with
all trials in each of them their size would grow with the square of their number."""

_LISTED = (
    ClusterSeen,
    GroupsListed,
    PodsListed,
    NodesListed,
    MachinesListed,
    JobsListed,
    GpuActivityListed,
    TrackedRunsListed,
    SourceHealth,
)


@dataclass(slots=True)
class ClusterSnapshot:
    """Folds events in, and returns the few that describe the present."""

    _listed: dict[tuple[str, str], Event] = field(default_factory=dict)
    _trials: dict[str, dict[str, Trial]] = field(default_factory=dict)
    _ended_trials: dict[str, dict[str, Trial]] = field(default_factory=dict)
    _experiments: dict[str, TrialsListed] = field(default_factory=dict)
    _alerts: dict[str, AlertRaised] = field(default_factory=dict)
    _notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=NOTICES))

    def take(self, event: Event) -> None:
        if isinstance(event, _LISTED):
            self._listed[type(event).__name__, event.source] = event
        elif isinstance(event, TrialsListed):
            self._take_trials(event)
        elif isinstance(event, AlertRaised):
            self._alerts[event.alert.id] = event
        elif isinstance(event, AlertCleared):
            self._alerts.pop(event.alert_id, None)
        elif isinstance(event, Notice):
            self._notices.append(event)

    def events(self) -> Iterator[Event]:
        yield from self._listed.values()
        yield from self._notices
        yield from self._alerts.values()
        for name, event in self._experiments.items():
            trials = (*self._ended_trials[name].values(), *self._trials[name].values())
            # Under another source than the stream's, which reports them again: else it would be
            # taken for something that the recording has already.
            yield replace(event, trials=trials, source="recorder")

    def _take_trials(self, event: TrialsListed) -> None:
        self._experiments[event.experiment] = event
        going = self._trials.setdefault(event.experiment, {})
        ended = self._ended_trials.setdefault(event.experiment, {})
        for trial in event.trials:
            going.pop(trial.id, None)
            ended.pop(trial.id, None)
            (ended if trial.status.is_over else going)[trial.id] = trial
        while len(ended) > ENDED_TRIALS:
            del ended[next(iter(ended))]
