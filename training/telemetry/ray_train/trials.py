"""Match trials with runs: Tune reports trials and Train reports runs, both to one stream."""

from __future__ import annotations

from dataclasses import replace

from training.telemetry.wire import Body, Run, Trial, Trials

_KEPT = 2000

_OVER = {"TERMINATED": "FINISHED", "ERROR": "ERRORED"}
"""The state of a run by the end of its trial: Tune kills the process that could have reported it.
"""
_REPORTED = frozenset({"FINISHED", "ERRORED", "ABORTED"})


class TrialRuns:
    """The trials of one driver. A run names its trial."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._reported: dict[str, tuple[Trials, Trial]] = {}

    def wrote(self, body: Body) -> tuple[Body, ...]:
        """The records to write for a record: itself, and what follows from it."""
        match body:
            case Run() if body.trial:
                before = self._runs.get(body.trial)
                self._runs[body.trial] = body
                is_known = before is not None and before.run == body.run
                if is_known or (reported := self._reported.get(body.trial)) is None:
                    return (body,)
                trials, trial = reported
                return body, replace(trials, trials=(replace(trial, run=body.run),))
            case Trials():
                known = tuple(replace(trial, run=self._run(trial)) for trial in body.trials)
                for trial in known:
                    self._reported[trial.id] = (body, trial)
                while len(self._reported) > _KEPT:
                    del self._reported[next(iter(self._reported))]
                return replace(body, trials=known), *self._ended(known)
        return (body,)

    def _run(self, trial: Trial) -> str:
        run = self._runs.get(trial.id)
        return trial.run or (run.run if run else "")

    def _ended(self, trials: tuple[Trial, ...]) -> list[Run]:
        """The runs that end with these trials and have not reported it."""
        ended = []
        for trial in trials:
            run = self._runs.get(trial.id)
            if run is not None and trial.status in _OVER and run.state not in _REPORTED:
                why = trial.error or "its trial ended"
                run = replace(run, state=_OVER[trial.status], message=why)
                self._runs[trial.id] = run
                ended.append(run)
        return ended
