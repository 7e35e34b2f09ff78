"""Report a run to MLflow, from a separate thread of rank 0.

Training never waits for the tracking server, nor fails with it: data that the server does not
accept is kept, up to a limit, and sent when the server responds again. mlflow is imported only if a
server is configured.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from training.loop.settings import RunSettings
from training.loop.world import World
from training.telemetry.worker import attempt_observer

EXPERIMENT = "training"
"""The default experiment, if MLFLOW_EXPERIMENT_NAME is unset."""
RUN_TAG = "cockpit.run"
"""Holds the run's id on the telemetry stream."""
SETTINGS, ENVIRONMENT = "settings.json", "environment.json"
"""Artifacts. `cockpit launch JOB --settings` takes the first."""
KEPT = 1000
"""The number of reports that are kept for an unavailable server; older ones are dropped."""
BATCH = 100
"""The number of parameters that MLflow accepts in one request."""
RETRY_S = 15.0
END_TIMEOUT_S = 30.0
"""How long the end of the run may wait until the server has received everything."""
REQUEST = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
"""MLflow's own are 120 s and 7 times; ours comes back by itself."""
QUIET = {"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}
"""A progress bar fills a log."""
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]+@")
_LONGEST = 500
"""The maximum length of a tag; a parameter may have 6,000."""


class Tracking:
    """Use as a context manager: its exit reports how the run ended."""

    def __init__(self, settings: RunSettings, world: World, resumed: str = "") -> None:
        """`resumed`: the `id` in the checkpoint from which the run resumes."""
        self.id = resumed
        uri = server(settings)
        self._teller: _Teller | None = None
        if uri and world.rank == 0:
            self._teller = _Teller(uri, settings, world.size, resumed)

    def __enter__(self) -> Tracking:
        if self._teller is not None:
            self._teller.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._teller is not None:
            is_well = error is None or isinstance(
                error, SystemExit
            )  # this is how a search ends a trial
            self._teller.end("" if is_well else f"{type(error).__name__}: {error}")

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        if self._teller is not None:
            self._teller.report(metrics, step)
            self.id = self._teller.id

    def stopped(self, why: str) -> None:
        """The run ends before it completed its work."""
        if self._teller is not None:
            self._teller.stopped = why


def server(settings: RunSettings) -> str:
    """The tracking URI of a run; empty without one."""
    return address(settings.mlflow) or os.environ.get("MLFLOW_TRACKING_URI", "")


def experiment_name() -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)


def without_credentials(text: str) -> str:
    """The text without user name and password of an address: logs and runs have other readers."""
    return _CREDENTIALS.sub("", text)


def address(named: str) -> str:
    """A server's address as is. For a folder, a database in it: MLflow 3 rejects plain files."""
    if not named or ":" in named:
        return named
    folder = Path(named).expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'mlflow.db'}"


def artifacts(uri: str) -> str | None:
    """Where a new experiment keeps its files: a server decides, a directory has them in it.

    MLflow would create a folder in the working directory of the process.
    """
    database = uri.removeprefix("sqlite:///")
    return None if database == uri else (Path(database).parent / "artifacts").as_uri()


class _Teller:
    def __init__(self, uri: str, settings: RunSettings, world_size: int, resumed: str) -> None:
        self.id, self.stopped = resumed, ""
        self._uri, self._settings, self._world_size = uri, settings, world_size
        self._client: Any = None
        self._unsaid: deque[tuple[int, int, dict[str, float]]] = deque(maxlen=KEPT)
        """The time (Unix milliseconds), the step, and the metrics."""
        self._status = ""
        self._wake, self._ends = threading.Event(), threading.Event()
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        self._unsaid.append((int(time.time() * 1000), step, dict(metrics)))
        self._wake.set()

    def end(self, error: str) -> None:
        self.stopped = error or self.stopped
        self._status = "FAILED" if self.stopped else "FINISHED"
        self._ends.set()
        self._wake.set()
        self._thread.join(END_TIMEOUT_S)
        if self._thread.is_alive():
            self._warn("it does not answer")

    def _run(self) -> None:
        """Run until the end is sent, or no longer awaited."""
        while True:
            ends = bool(self._status)
            try:
                self._report()
            except Exception as error:  # noqa: BLE001 - any error of a server, or of mlflow
                self._warn(error)
                if ends:
                    return
                self._ends.wait(RETRY_S)
                continue
            if ends:
                return
            self._wake.wait()
            self._wake.clear()

    def _warn(self, error: object) -> None:
        if not self._has_warned:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            line = f"mlflow at {self._uri}: {first[:_LONGEST]}; training continues"
            print(without_credentials(line), flush=True)
        self._has_warned = True

    def _report(self) -> None:
        """Raises what mlflow raises; what was not sent is kept."""
        from mlflow.entities import Metric

        status = self._status
        if self._client is None:
            self._begin()
        while self._unsaid:
            at_ms, step, metrics = self._unsaid[0]
            batch = [Metric(name, value, at_ms, step) for name, value in metrics.items()]
            self._client.log_batch(self.id, metrics=batch)
            self._unsaid.popleft()
        if status:
            if self.stopped:
                self._client.set_tag(self.id, "stopped", self.stopped[:_LONGEST])
            self._client.set_terminated(self.id, status)

    def _begin(self) -> None:
        for name, value in {**REQUEST, **QUIET}.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient
        from mlflow.tracking.context.registry import resolve_tags

        client = MlflowClient(self._uri)
        name = experiment_name()
        experiment = client.get_experiment_by_name(name)
        if experiment:
            experiment_id = experiment.experiment_id
        else:
            experiment_id = client.create_experiment(name, artifacts(self._uri))
        own = {"run_name": self._settings.run_name, "world_size": str(self._world_size)}
        if run := attempt_observer.run():
            own[RUN_TAG] = run
        found = self._resumed(client, experiment_id, run)
        if found is None:
            # With the tags from the environment, including the submission's.
            tags = resolve_tags(own)
            found = client.create_run(experiment_id, tags=tags, run_name=self._settings.run_name)
        else:
            client.update_run(found.info.run_id, status="RUNNING")
        self.id = found.info.run_id
        self._report_settings(client, found, own)
        self._client = client
        self._attach(client)

    def _attach(self, client: Any) -> None:
        """Log the settings and the environment as files. Metrics do not depend on a file store."""
        from training.bench.environment import recorded

        try:
            settings = {
                name: without_credentials(value) if isinstance(value, str) else value
                for name, value in asdict(self._settings).items()
            }
            client.log_dict(self.id, {"settings": settings}, SETTINGS)
            client.log_dict(self.id, recorded(os.environ), ENVIRONMENT)
        except Exception as error:  # noqa: BLE001 - of the store, whose clients have their own
            self._warn(f"no files are logged: {error}")

    def _resumed(self, client: Any, experiment_id: str, run: str) -> Any:
        """The run of MLflow that this one continues: of its checkpoint, or of its stream."""
        if self.id:
            from mlflow.exceptions import MlflowException

            try:
                found = client.get_run(self.id)
                # A trial of a search may resume from the checkpoint of another trial, which is
                # another run.
                if found.data.tags.get("run_name") == self._settings.run_name:
                    return found
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
        if not run:
            return None
        asked = f"tags.`{RUN_TAG}` = '{run}'"
        return next(iter(client.search_runs([experiment_id], asked, max_results=1)), None)

    def _report_settings(self, client: Any, found: Any, own: Mapping[str, str]) -> None:
        """Parameters of MLflow cannot change: a changed value of a resumed run becomes a tag."""
        from mlflow.entities import Param, RunTag

        known = found.data.params
        settings = {
            name: without_credentials(str(value)) for name, value in asdict(self._settings).items()
        }
        new = [Param(name, value) for name, value in settings.items() if name not in known]
        changed = {
            name: value for name, value in settings.items() if known.get(name, value) != value
        }
        tags = [RunTag(name, value) for name, value in own.items()]
        if changed:
            tags.append(RunTag("resumed_with", json.dumps(changed)[:_LONGEST]))
        client.log_batch(found.info.run_id, tags=tags)
        for first in range(0, len(new), BATCH):
            client.log_batch(found.info.run_id, params=new[first : first + BATCH])
