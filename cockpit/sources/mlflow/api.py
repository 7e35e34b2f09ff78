"""The parts of MLflow's REST API (2.0) that are read here, as typed calls.

MLflow's own client is not used: importing it takes over a second and brings pandas and Flask.
Every method may raise UnreachableError, NotAllowedError and AnswerError.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from cockpit.model.decoding.value_range import moment_s
from cockpit.model.error import UsageError
from cockpit.model.text import one_line
from cockpit.model.tracking import ModelVersion, TrackedRun
from cockpit.sources.json_server import JsonServer, ServerKind
from cockpit.sources.mlflow.settings import MlflowSettings

MLFLOW = ServerKind(
    name="MLflow",
    noun="an MLflow tracking server",
    reach="check that it runs, and the address",
    credentials="give credentials under [mlflow], or in MLFLOW_TRACKING_TOKEN or _USERNAME",
    refused=(
        "refused",
        "check the credentials; a server may also refuse its own address (allowed hosts)",
    ),
    narrow="set the experiments to read in [mlflow]",
    timeout_s=15.0,
    limit_bytes=16 << 20,
)
API = "/api/2.0/mlflow/"
FILES = "/api/2.0/mlflow-artifacts/artifacts/"
EXPERIMENTS_A_PAGE = 200
RUNS_A_PAGE = 100
PAGES = 5
"""The maximum length of each list, newest first; MLflow keeps everything."""
ARTIFACTS = 200
VERSIONS = 100
ID = re.compile(r"[A-Za-z0-9_-]+")
"""Ids that can be quoted in a filter."""
VALUE_LIMIT = 500
"""Characters of a parameter."""


class Found(Struct, frozen=True):
    """An MLflow run, with the tags that identify its owner."""

    run: TrackedRun
    tags: Mapping[str, str]


class Stored(Struct, frozen=True):
    """A run, and where its artifacts are."""

    page: str
    """In MLflow's UI."""
    artifact_uri: str


class Mlflow:
    """A client of one tracking server. `limits`: as for JsonServer."""

    def __init__(self, settings: MlflowSettings, **limits: Any) -> None:
        self._settings = settings
        self.url = settings.url
        self.server = JsonServer(MLFLOW, settings, **limits)

    async def aclose(self) -> None:
        await self.server.aclose()

    async def experiments(self) -> dict[str, str]:
        """Names by id, last modified first; only the requested ones, if any are named."""
        found: dict[str, str] = {}
        body = {"max_results": EXPERIMENTS_A_PAGE, "order_by": ["last_update_time DESC"]}
        async with aclosing(self._pages("experiments/search", body)) as pages:
            async for page in pages:
                for raw in self._listed(page, "experiments"):
                    with self.server.understood():
                        found[one_line(str(raw["experiment_id"]))] = one_line(str(raw["name"]))
        wanted = self._settings.experiments
        return {key: name for key, name in found.items() if not wanted or name in wanted}

    async def runs(self, experiments: Mapping[str, str], since_s: float) -> tuple[Found, ...]:
        """Runs that began since, newest first, with their parameters and newest metrics."""
        if not experiments:
            return ()
        body = {
            "experiment_ids": list(experiments),
            "filter": f"attributes.start_time >= {int(since_s * 1000)}",
            "order_by": ["attributes.start_time DESC"],
            "max_results": RUNS_A_PAGE,
        }
        found = []
        async with aclosing(self._pages("runs/search", body)) as pages:
            async for page in pages:
                for raw in self._listed(page, "runs"):
                    with self.server.understood():
                        found.append(self._found(raw, experiments))
        return tuple(found)

    async def tagged(
        self, experiments: Mapping[str, str], tag: str, value: str
    ) -> tuple[Stored, ...]:
        """Runs with the tag, newest first. `value` may contain no quote."""
        if not experiments:
            return ()
        body = {
            "experiment_ids": list(experiments),
            "filter": f"tags.`{tag}` = '{value}'",
            "order_by": ["attributes.start_time DESC"],
            "max_results": RUNS_A_PAGE,
        }
        page = await self._ask("POST", "runs/search", json=body)
        found = []
        for raw in self._listed(page, "runs"):
            with self.server.understood():
                info = raw["info"]
                experiment_id, run_id = str(info["experiment_id"]), str(info["run_id"])
                place = str(info.get("artifact_uri") or "")
                found.append(Stored(one_line(self.page_of(experiment_id, run_id)), place))
        return tuple(found)

    async def store(self, run: Stored, name: str, content: bytes) -> None:
        """Add a file to the artifacts of a run, or replace it.

        Raises UsageError if the server does not store the files of the run itself.
        """
        scheme, _, path = run.artifact_uri.partition(":")
        if scheme != "mlflow-artifacts":
            raise UsageError(
                f"{self.server.where} does not store the files of this run itself.",
                f"They are in {one_line(scheme)}: storage that only jobs reach.",
                "Start it with --serve-artifacts, or add the file with MLflow's own client.",
            )
        path = urlsplit(run.artifact_uri).path if path.startswith("//") else path
        await self.server.send(
            "PUT", FILES + quote(f"{path.strip('/')}/{name}"), name, content=content
        )

    async def artifacts(self, run_id: str) -> tuple[str, ...]:
        """The first level below the artifact root, sorted; a folder ends with a slash."""
        raw = await self._ask("GET", "artifacts/list", params={"run_id": run_id})
        names = []
        for file in self._listed(raw, "files")[:ARTIFACTS]:
            with self.server.understood():
                names.append(one_line(str(file["path"])) + "/" * bool(file.get("is_dir")))
        return tuple(sorted(names))

    async def model_versions(self, run_id: str) -> tuple[ModelVersion, ...]:
        """The versions of registered models that this run has logged, by name and number."""
        if not ID.fullmatch(run_id):
            return ()
        params = {"filter": f"run_id='{run_id}'", "max_results": str(VERSIONS)}
        raw = await self._ask("GET", "model-versions/search", params=params)
        found = []
        for version in self._listed(raw, "model_versions"):
            with self.server.understood():
                name, number = one_line(str(version["name"])), one_line(str(version["version"]))
                page = f"{self._settings.url}/#/models/{quote(name, safe='')}/versions/{number}"
                found.append(ModelVersion(name, number, url=page))
        # A search leaves out the aliases (MLflow 3.17).
        aliases = {name: await self._aliases(name) for name in {each.name for each in found}}
        named = [
            replace(each, aliases=tuple(a for a, v in aliases[each.name] if v == each.version))
            for each in found
        ]
        return tuple(sorted(named, key=lambda each: (each.name, each.version)))

    async def _aliases(self, model: str) -> list[tuple[str, str]]:
        """Each alias of a registered model, and the version that it names; sorted."""
        raw = await self._ask("GET", "registered-models/get", params={"name": model})
        found = []
        with self.server.understood():
            for each in self._listed(raw["registered_model"], "aliases"):
                found.append((one_line(str(each["alias"])), one_line(str(each["version"]))))
        return sorted(found)

    def page_of(self, experiment_id: str, run_id: str) -> str:
        """The run's page in MLflow's UI."""
        experiment, run = quote(experiment_id, safe=""), quote(run_id, safe="")
        return f"{self._settings.url}/#/experiments/{experiment}/runs/{run}"

    def _found(self, raw: Mapping[str, Any], experiments: Mapping[str, str]) -> Found:
        info, data = raw["info"], raw.get("data") or {}
        tags = _pairs(data, "tags")
        experiment_id, run_id = one_line(str(info["experiment_id"])), one_line(str(info["run_id"]))
        run = TrackedRun(
            id=run_id,
            name=one_line(str(info.get("run_name") or tags.get("mlflow.runName") or "")),
            experiment=experiments.get(experiment_id, experiment_id),
            status=one_line(str(info.get("status") or "")),
            started_s=_seconds(info.get("start_time")),
            ended_s=_seconds(info.get("end_time")),
            params={
                one_line(name): one_line(value, VALUE_LIMIT)
                for name, value in _pairs(data, "params").items()
            },
            metrics={
                one_line(str(metric["key"])): _number(metric["value"])
                for metric in data.get("metrics") or ()
            },
            url=self.page_of(experiment_id, run_id),
        )
        return Found(run, tags)

    async def _pages(
        self, path: str, asked: Mapping[str, Any]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        token = ""
        for _ in range(PAGES):
            body = {**asked, **({"page_token": token} if token else {})}
            page = await self._ask("POST", path, json=body)
            yield page
            token = str(page.get("next_page_token") or "")
            if not token:
                return

    async def _ask(self, method: str, path: str, **sent: Any) -> Mapping[str, Any]:
        return await self.server.ask(method, API + path, path, **sent)

    def _listed(self, page: Mapping[str, Any], name: str) -> Sequence[Any]:
        """A list that is empty is left out of the answer."""
        found = page.get(name) or []
        if not isinstance(found, list):
            raise self.server.strange(f"{name} is a {type(found).__name__}")
        return found


def _pairs(data: Mapping[str, Any], name: str) -> dict[str, str]:
    return {str(pair["key"]): str(pair.get("value", "")) for pair in data.get(name) or ()}


def _number(value: Any) -> float:
    """MLflow's SQL store has no infinity: it stores the largest float instead."""
    number = float(value)
    return math.copysign(math.inf, number) if abs(number) == sys.float_info.max else number


def _seconds(milliseconds: Any) -> float | None:
    return None if not milliseconds else moment_s(float(milliseconds) / 1000)
