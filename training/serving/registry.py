"""A model version of MLflow's registry, as `serve` loads and follows it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from training.loop.tracking import without_credentials
from training.serving.mlflow_model import WEIGHTS, read
from training.serving.weights import Run, Weights
from training.stop import Stop

SCHEME = "models:/"
EXAMPLE = f"{SCHEME}digits@best"


class NoModel(Stop):
    """The registry does not have it, or the server does not answer."""


class Registered:
    """`models:/NAME@ALIAS`, which may move to another version, or `models:/NAME/VERSION`."""

    def __init__(self, path: str, uri: str = "") -> None:
        """`uri` of the server; empty: MLFLOW_TRACKING_URI. Raises NoModel for what is neither."""
        self.path, self._uri = path, uri or None
        self._name, at, self._alias = path.removeprefix(SCHEME).partition("@")
        self._version = ""
        if not at:
            self._name, _, self._version = self._name.partition("/")
        if "/" in self._name or not self._name or bool(self._alias) == self._version.isdecimal():
            raise NoModel(f"{path} is no model version: for example {EXAMPLE}, {SCHEME}digits/3")

    def newest(self, device: torch.device, known: str = "") -> Weights | None:
        """None when it still is the version `known`.

        Raises NoModel if it is unavailable at the moment, Stop if it contains no usable model.
        """
        import mlflow.artifacts
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        try:
            client = MlflowClient(self._uri, self._uri)
            found: Any = (
                client.get_model_version_by_alias(self._name, self._alias)
                if self._alias
                else client.get_model_version(self._name, self._version)
            )
            name = f"{self._name}-v{found.version}"
            if name == known:
                return None
            with TemporaryDirectory(prefix="model-") as folder:
                uri = f"{found.source}/{WEIGHTS}"  # of models:/… the server would be another
                at = mlflow.artifacts.download_artifacts(
                    uri, dst_path=folder, tracking_uri=self._uri
                )
                return read(Path(at), name, device)
        except (MlflowException, OSError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise NoModel(f"{self.path} is not available: {without_credentials(first)}") from error


def source(path: str, uri: str = "") -> Run | Registered:
    """Of `models:/…` on the server `uri`, or of the directory of a run."""
    return Registered(path, uri) if path.startswith(SCHEME) else Run(path)
