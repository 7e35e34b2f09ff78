"""The MLflow server of the configuration, for a verb that needs one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cockpit.model.error import UsageError

if TYPE_CHECKING:
    from cockpit.sources.mlflow.api import Mlflow


def client() -> Mlflow:
    """Close it after use. Raises UsageError without a server."""
    from cockpit.config import file
    from cockpit.sources.mlflow.api import Mlflow
    from cockpit.sources.mlflow.settings import parse
    from cockpit.sources.mlflow.source import NOWHERE

    settings = parse(file.read().tables.get("mlflow", {}), os.environ)
    if not settings.url:
        raise UsageError("There is no MLflow server.", f"{settings.why_not or NOWHERE}.")
    return Mlflow(settings)
