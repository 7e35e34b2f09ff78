"""MLflow: the runs of the experiment tracker that belong to the watched runs.

They are matched by what the script logs, or by its environment variables: no script has to be
changed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Unpack

from msgspec import Struct
from msgspec.structs import replace

from cockpit.model.event import Event, TrackedRunsListed
from cockpit.model.tracking import ModelVersion, RunRef, Runs, TrackedRun, no_runs
from cockpit.sources.mlflow.api import Found, Mlflow
from cockpit.sources.mlflow.settings import URI_VARIABLE, MlflowSettings
from cockpit.sources.polling.source import PollingOptions, PollingSource
from cockpit.sources.ray.http import AnswerError

POLL_S = 15.0
ABSENT_S = 60.0
EXPERIMENTS_S = 60.0
ARTIFACTS_S = 60.0
RUNS = 50
"""If more belong to the watched runs, the newest are reported."""
EARLY_S = 300.0
"""A run may be opened before its Train run begins, and clocks differ."""

RUN_TAGS = ("ray_train_run_id", "ray.train.run_id", "cockpit.run")
"""Tags that hold Ray Train's run id."""
SUBMISSION_TAG = "cockpit.submission"
CONTEXT_VARIABLE = "MLFLOW_RUN_CONTEXT"
"""Tags as JSON that MLflow puts on every run that a process begins
(mlflow/tracking/context/system_environment_context.py)."""

NOWHERE = f"no MLflow is configured: [mlflow] uri, or {URI_VARIABLE}"


def context(submission_id: str) -> dict[str, str]:
    """Environment variables of a job that identify its MLflow runs."""
    return {CONTEXT_VARIABLE: json.dumps({SUBMISSION_TAG: submission_id})}


class Listed(Struct, frozen=True):
    """The artifacts and models of a run of MLflow."""

    artifacts: tuple[str, ...] = ()
    models: tuple[ModelVersion, ...] = ()


class MlflowSource(PollingSource):
    """TrackedRunsListed when something has changed, and SourceHealth (source `mlflow`).

    `runs` returns the watched runs, and is awaited on the loop of this source.
    """

    name = "mlflow"
    first_retry_s, last_retry_s = 1.0, 60.0

    def __init__(
        self,
        settings: MlflowSettings,
        runs: Runs = no_runs,
        *,
        client: Mlflow | None = None,
        poll_s: float = POLL_S,
        **polling: Unpack[PollingOptions],
    ) -> None:
        super().__init__(poll_s=poll_s, **polling)
        self._settings, self._runs = settings, runs
        self._client = client or Mlflow(settings)
        self._experiments: dict[str, str] = {}
        self._experiments_s: float | None = None
        self._more: dict[str, tuple[float, str, Listed]] = {}
        """By run of MLflow: when it was listed, the status of the run then, and what there is."""
        self._complaint = ""
        self._same_runs: tuple[TrackedRun, ...] = ()

    async def poll(self) -> AsyncGenerator[Event, None]:
        if not self._settings.url:
            yield self.health(ABSENT_S, absent=True, error=self._settings.why_not or NOWHERE)
            return
        found = await self._watched()
        if _same_runs(found) != _same_runs(self._same_runs):
            self._same_runs = found
            yield TrackedRunsListed(at_s=self._clock(), source=self.name, runs=found)
        yield self.health(error=self._complaint)

    async def close(self) -> None:
        await self._client.aclose()

    async def _watched(self) -> tuple[TrackedRun, ...]:
        """The MLflow runs of the watched runs, newest first."""
        now_s, self._complaint = self._monotonic(), ""
        if self._experiments_s is None or now_s - self._experiments_s >= EXPERIMENTS_S:
            self._experiments = await self._client.experiments()
            self._experiments_s = now_s
        runs = await self._runs()
        begun = [run.started_s for run in runs if run.started_s]
        if not begun:
            return ()
        listed = await self._client.runs(self._experiments, min(begun) - EARLY_S)
        mine = [
            replace(found.run, run_id=whose)
            for found in listed
            if (whose := belongs(found, runs)) is not None
        ]
        return tuple([await self._with_more(run) for run in mine[:RUNS]])

    async def _with_more(self, run: TrackedRun) -> TrackedRun:
        """Its artifacts and models: listed again from time to time, and once when it is over."""
        now_s = self._monotonic()
        listed_s, status, more = self._more.get(run.id, (now_s, "", Listed()))
        is_due = run.status == "RUNNING" and now_s - listed_s >= ARTIFACTS_S
        if status != run.status or is_due:
            more = await self._listed(run, more)
            self._more[run.id] = (now_s, run.status, more)
        return replace(run, artifacts=more.artifacts, models=more.models)

    async def _listed(self, run: TrackedRun, before: Listed) -> Listed:
        """What cannot be listed stays as before: the files may be deleted, or closed to the server,
        and a server may have no registry.
        """
        artifacts, models = before.artifacts, before.models
        try:
            artifacts = await self._client.artifacts(run.id)
        except AnswerError as error:
            self._complaint = f"the artifacts of {run.name or run.id}: {error}"
        try:
            models = await self._client.model_versions(run.id)
        except AnswerError as error:
            self._complaint = f"the models of {run.name or run.id}: {error}"
        return Listed(artifacts, models)


def _same_runs(runs: Sequence[TrackedRun]) -> list[tuple[TrackedRun, str]]:
    """The parts that can change. A NaN metric is not equal to itself."""
    return [(replace(run, metrics={}), repr(run.metrics)) for run in runs]


def belongs(found: Found, runs: Sequence[RunRef]) -> str | None:
    """Return the id of the Train run to which this MLflow run belongs, or None.

    By a tag with the run id; else by the tag of the submission, or by the name, and then by time: a
    submission may have several runs, and a run that resumes keeps its name.
    """
    for tag in RUN_TAGS:
        for run in runs:
            if found.tags.get(tag) == run.id:
                return run.id
    submission, name = found.tags.get(SUBMISSION_TAG, ""), found.run.name
    submitted = [run for run in runs if submission and run.submission_id == submission]
    named = [run for run in submitted or runs if name and run.name == name]
    return _by_time(found.run.started_s, named or submitted)


def _by_time(at_s: float | None, runs: Sequence[RunRef]) -> str | None:
    """The last run that had begun and not ended by then, else the next one to begin."""
    started = [(run.started_s, run) for run in runs if run.started_s]
    if at_s is None or not started:
        return None
    begun = [(start_s, run) for start_s, run in started if start_s <= at_s]
    going = [one for one in begun if one[1].ended_s is None or at_s <= one[1].ended_s]
    if going:
        return max(going, key=lambda one: one[0])[1].id
    soon = [(start_s, run) for start_s, run in started if at_s < start_s <= at_s + EARLY_S]
    return min(soon, key=lambda one: one[0])[1].id if soon else None
