"""The MLflow server of the configuration, in the environment of the jobs that are launched.

Credentials never travel: everyone who may list jobs can read a job's environment.
"""

from __future__ import annotations

from msgspec.structs import replace

from cockpit.launch.submission import LaunchSpec
from cockpit.sources.mlflow.settings import URI_VARIABLE, MlflowSettings
from cockpit.sources.server_settings import is_loopback

EXPERIMENT_VARIABLE = "MLFLOW_EXPERIMENT_NAME"
INSECURE_VARIABLE = "MLFLOW_TRACKING_INSECURE_TLS"
ON_THIS_HOST = "local"
"""The backend whose jobs can reach a loopback address of this host."""


def with_mlflow(spec: LaunchSpec, settings: MlflowSettings, backend: str) -> LaunchSpec:
    """Return the job with the server in its environment; the user's variables take precedence."""
    ours = variables(settings, backend)
    named = spec.environment.env_vars
    if not ours or URI_VARIABLE in named:
        return spec
    return replace(spec, environment=replace(spec.environment, env_vars={**ours, **named}))


def variables(settings: MlflowSettings, backend: str) -> dict[str, str]:
    """MLflow's variables of the server that `[mlflow] uri` names; empty without one.

    With a single experiment in the configuration, the job logs to it, since cockpit reads no other.
    """
    if settings.set_by != "configuration" or not _is_reached(settings, backend):
        return {}
    found = {URI_VARIABLE: settings.url}
    if len(settings.experiments) == 1:
        found[EXPERIMENT_VARIABLE] = settings.experiments[0]
    if not settings.verify:
        found[INSECURE_VARIABLE] = "true"
    return found


def plan(spec: LaunchSpec, settings: MlflowSettings, backend: str) -> list[str]:
    """Describe it for the plan."""
    if settings.set_by != "configuration":
        return []
    if not _is_reached(settings, backend):
        return [
            f"MLflow at {settings.url} is on this host, where the job cannot reach it: it uses the "
            "server of its cluster, if there is one."
        ]
    if spec.environment.env_vars.get(URI_VARIABLE) != settings.url:
        return []
    lines = [f"Log to MLflow at {settings.url}."]
    if settings.token or settings.username:
        lines.append(
            "The credentials of [mlflow] are not sent. Set MLFLOW_TRACKING_TOKEN, or username and "
            "password, in the environment of the pods."
        )
    return lines


def _is_reached(settings: MlflowSettings, backend: str) -> bool:
    return bool(settings.url) and (backend == ON_THIS_HOST or not is_loopback(settings.url))
