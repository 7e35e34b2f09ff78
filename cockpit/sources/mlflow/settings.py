"""MLflow's address: `[mlflow]` of the configuration, or MLflow's environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cockpit.model.decoding.boolean import boolean_variable
from cockpit.sources.server_settings import KEYS, ServerSettings, Table

URI_VARIABLE = "MLFLOW_TRACKING_URI"
_VARIABLES = {
    "token": "MLFLOW_TRACKING_TOKEN",
    "username": "MLFLOW_TRACKING_USERNAME",
    "password": "MLFLOW_TRACKING_PASSWORD",
    "ca_file": "MLFLOW_TRACKING_SERVER_CERT_PATH",
    "cert_file": "MLFLOW_TRACKING_CLIENT_CERT_PATH",
}
_KEYS = {"uri": str, "experiments": list} | KEYS


@dataclass(frozen=True, slots=True)
class MlflowSettings(ServerSettings):
    experiments: tuple[str, ...] = ()
    """Names; empty for all."""


def parse(raw: Mapping[str, Any], environ: Mapping[str, str]) -> MlflowSettings:
    """Read the settings.

    `raw` is `[mlflow]`, which may be empty; MLflow's variables are the defaults. Raises UsageError
    for invalid values, and for a file or variable that does not exist.
    """
    table = Table("mlflow", raw, _KEYS, environ)
    uri, set_by = table.text("uri"), "configuration"
    if not uri and (uri := environ.get(URI_VARIABLE, "")):
        set_by = "environment"
    kind = uri.partition("://")[0] if "://" in uri else ""
    if uri and kind not in ("http", "https"):
        what = kind or uri.partition(":")[0]
        why_not = f"MLflow is read over HTTP, and {what} is not: start mlflow server on it"
        return MlflowSettings("", set_by=set_by, why_not=why_not)
    return MlflowSettings(
        **table.server(uri, set_by, "http://mlflow.example:5000", _VARIABLES),
        experiments=table.texts("experiments"),
        verify=table.flag("verify", not boolean_variable(environ, "MLFLOW_TRACKING_INSECURE_TLS")),
    )
