"""The best checkpoint of a finished run, as a model of its MLflow run and in MLflow's registry.

A server that fails costs one line in the log: the run itself is done.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from training.loop.progress import COUNTS
from training.loop.settings import RunSettings
from training.loop.tracking import (
    QUIET,
    REQUEST,
    experiment_name,
    server,
    without_credentials,
)
from training.stop import Stop

if TYPE_CHECKING:
    from training.serving.weights import Weights

SCORE = "held_out_loss"
"""The metric of the best checkpoint: the lowest."""
SCORES = (SCORE, "accuracy")
"""Tags of a model version."""
ARTIFACT = "model"
"""Where the model is, in the artifacts of the run."""
LOGGED_STEP = "cockpit.model_step"
"""A tag of the run: a finished run that is launched again logs its model once."""
BEST, NEWEST = "best", "newest"
"""The aliases of a registered model."""


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that is kept."""

    name: str
    metrics: Mapping[str, Any]
    opened: Callable[[], AbstractContextManager[str]]
    """Its directory on this host, for as long as it is open."""


def publish(settings: RunSettings, candidates: Iterable[Candidate]) -> None:
    """Log the best of the candidates; register it with `register_as`."""
    uri = server(settings)
    if not uri or not settings.log_model:
        return
    best = min(candidates, key=lambda item: _score(item.metrics), default=None)
    if best is None:
        return
    try:
        _log(uri, settings, best)
    except Stop as why:
        _warn(f"the model of {best.name} is not logged to MLflow: {why}", settings)
    except Exception as error:  # noqa: BLE001 - any error of a server, or of mlflow
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        _warn(f"mlflow at {uri}: the model of {best.name} is not logged: {first}", settings)


def _warn(what: str, settings: RunSettings) -> None:
    """The run itself is done: its checkpoints are kept, and it resumes at its end."""
    todo = f"launch it again with run_name={settings.run_name}: it has no step left to train, and "
    print(without_credentials(f"warning: {what}; {todo}logs the model"), flush=True)


def _log(uri: str, settings: RunSettings, best: Candidate) -> None:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    # Imported here: it takes a second of CPU time, and most processes of a job log no model.
    from mlflow import MlflowClient

    from training.serving.mlflow_model import save
    from training.serving.weights import loaded

    client = MlflowClient(uri, uri)
    with best.opened() as directory:
        # A short run may have saved its last checkpoint before the server answered.
        run_id = _tracked(Path(directory)) or _by_name(client, settings.run_name)
        if not run_id:
            raise Stop(f"the server at {uri} did not answer while the run trained")
        weights = loaded(best.name, Path(directory), torch.device("cpu"))
    run = client.get_run(run_id)
    step = str(weights.made.step)
    if run.data.tags.get(LOGGED_STEP) != step:
        with TemporaryDirectory(prefix="model-") as folder:
            save(weights, Path(folder) / ARTIFACT)
            client.log_artifacts(run_id, str(Path(folder) / ARTIFACT), ARTIFACT)
        client.set_tag(run_id, LOGGED_STEP, step)
        print(f"logged the model of {best.name} (step {step}) to MLflow", flush=True)
    if settings.register_as and not _is_registered(client, settings.register_as, run_id, step):
        _register(client, settings.register_as, run, weights, best.metrics)


def _is_registered(client: Any, name: str, run_id: str, step: str) -> bool:
    """A finished run that is launched again registers its model once under each name."""
    versions = client.search_model_versions(f"run_id = '{run_id}'")
    return any(item.name == name and item.tags.get("step") == step for item in versions)


def _register(
    client: Any, name: str, run: Any, weights: Weights, metrics: Mapping[str, Any]
) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    tags = {score: str(metrics[score]) for score in SCORES if score in metrics}
    made = client.create_model_version(
        name,
        f"{run.info.artifact_uri}/{ARTIFACT}",
        run.info.run_id,
        tags={**tags, "step": str(weights.made.step)},
    )
    client.set_registered_model_alias(name, NEWEST, made.version)
    before = client.get_registered_model(name).aliases.get(BEST)
    is_best = before is None or _score(tags) < _score(client.get_model_version(name, before).tags)
    if is_best:
        client.set_registered_model_alias(name, BEST, made.version)
    which = f"{NEWEST} and {BEST}" if is_best else NEWEST
    print(f"registered it as {name} version {made.version} ({which})", flush=True)


def _score(metrics: Mapping[str, Any]) -> float:
    """Infinite without a finite one."""
    value = float(metrics.get(SCORE, math.inf))
    return value if math.isfinite(value) else math.inf


def _by_name(client: Any, run_name: str) -> str:
    """The id of the newest MLflow run of this name; empty without one."""
    if not run_name or "'" in run_name:
        return ""
    with _short_requests():
        experiment = client.get_experiment_by_name(experiment_name())
        if experiment is None:
            return ""
        asked = f"tags.run_name = '{run_name}'"
        runs = client.search_runs([experiment.experiment_id], asked, max_results=1)
    return str(runs[0].info.run_id) if runs else ""


@contextmanager
def _short_requests() -> Iterator[None]:
    """With the timeouts of the tracking: by default, mlflow asks a dead server for minutes."""
    ours = {name: value for name, value in REQUEST.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _tracked(directory: Path) -> str:
    """The id of the MLflow run that the checkpoint was saved in."""
    if not (directory / COUNTS).exists():
        return ""
    counts = torch.load(directory / COUNTS, map_location="cpu", weights_only=True)
    return str(counts.get("tracked", ""))
