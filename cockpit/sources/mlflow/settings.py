"""MLflow's address: `[mlflow]` of the configuration, or MLflow's environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cockpit.model.decoding.boolean import boolean_variable
from cockpit.model.secret import sendable
from cockpit.sources.server_settings import Table

URI_VARIABLE = "MLFLOW_TRACKING_URI"
TOKEN_VARIABLE = "MLFLOW_TRACKING_TOKEN"

_KEYS = {
    "uri": str,
    "experiments": list,
    "token_file": str,
    "token_env": str,
    "username": str,
    "password_file": str,
    "password_env": str,
    "ca_file": str,
    "cert_file": str,
    "verify": bool,
}


@dataclass(frozen=True, slots=True)
class MlflowSettings:
    """`repr` leaves out what is secret."""

    url: str
    """Without a trailing slash, user or password; empty without a server."""
    experiments: tuple[str, ...] = ()
    """Names; empty for all."""
    token: str = field(default="", repr=False)
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    ca_file: str = ""
    cert_file: str = ""
    """The client's certificate, with its key."""
    verify: bool = True
    set_by: str = ""
    """`configuration` or `environment`."""
    why_not: str = ""
    """With an empty url, where more is known than that none is configured."""


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
    address = table.address(uri, "http://mlflow.example:5000")
    verify = not boolean_variable(environ, "MLFLOW_TRACKING_INSECURE_TLS")
    return MlflowSettings(
        url=address.url,
        experiments=table.texts("experiments"),
        token=table.secret("token") or sendable(environ.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE),
        username=table.text("username")
        or address.username
        or environ.get("MLFLOW_TRACKING_USERNAME", ""),
        password=table.secret("password")
        or address.password
        or environ.get("MLFLOW_TRACKING_PASSWORD", ""),
        ca_file=table.path("ca_file") or environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH", ""),
        cert_file=table.path("cert_file") or environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH", ""),
        verify=table.flag("verify", verify),
        set_by=set_by if address.url else "",
    )
