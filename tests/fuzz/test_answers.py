"""Answers of the dashboard, MLflow and Prometheus: an error, or values that can be shown."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout, suppress
from typing import Any

import pytest

from cockpit.cli.output.lists import columns, rows_of
from cockpit.cli.output.status import print_status
from cockpit.cli.output.tables import print_rows
from cockpit.model.cluster import DashboardRoute
from cockpit.model.decoding.limited_json import loads
from cockpit.model.error import CockpitError
from cockpit.model.event import JobsListed, NodesListed
from cockpit.sources.json_server import MISUNDERSTOOD
from cockpit.sources.mlflow.api import Mlflow
from cockpit.sources.mlflow.settings import MlflowSettings
from cockpit.sources.prometheus import api
from cockpit.sources.ray import answers
from cockpit.sources.ray.dashboard import Dashboard, _read, _submission
from cockpit.sources.ray.train_runs import TrainRunsSource, _Reported
from cockpit.store.store import Store
from tests.fuzz.cases import assert_clean, broken, broken_bytes, examine, quick_and_nightly
from tests.sources.fake_dashboard import autoscaler_answer, job, node

RUN = {
    "train_runs": [
        {
            "id": "ab12",
            "name": "digits",
            "job_id": "01000000",
            "status": "RUNNING",
            "status_detail": "Traceback\nboom",
            "start_time_ns": 1_763_712_000_000_000_000,
            "end_time_ns": 1_763_712_900_000_000_000,
            "job_details": {"submission_id": "j-1"},
            "run_settings": {"run_config": {"failure_config": {"max_failures": 3}}},
            "attempts": [
                {
                    "status": "ERRORED",
                    "status_detail": "a worker died",
                    "start_time_ns": 1_763_712_000_000_000_000,
                    "end_time_ns": 1_763_712_600_000_000_000,
                    "workers": [
                        {
                            "world_rank": 1,
                            "node_id": "a" * 56,
                            "node_ip": "127.0.0.11",
                            "pid": 42,
                            "gpu_ids": [0],
                            "log_file_path": "/tmp/ray/s/logs/train/worker.log",
                        }
                    ],
                }
            ],
        }
    ]
}
LOGS = {"data": {"result": {"internal": ["raylet.out", "old/"], "worker": ["w.log"]}}}
ONE_JOB = job("j-1") | {
    "metadata": {"owner": "jane"},
    "end_time": 1_763_713_000_000,
    "runtime_env": {"env_vars": {"A": "b"}, "working_dir": "gcs://x", "py_modules": ["gcs://y"]},
}

AUTOSCALER = autoscaler_answer(
    demand=[[{"CPU": 1.0}, 2]],
    pg_demand=[[{"bundles": [[{"GPU": 1.0}, 2]], "strategy": "PACK"}, 1]],
    error="Traceback\nboom",
    pendingNodes=[["10.0.0.12", "gpu_worker", "setting-up"]],
    pendingLaunches={"gpuWorker": 2},
    failedNodes=[["10.0.0.13", "gpu_worker"]],
    nodeTypeMapping={"10.0.0.11": "gpu_worker"},
    nodeAvailabilitySummary={
        "nodeAvailabilities": {
            "gpuWorker": {
                "nodeType": "gpu_worker",
                "lastCheckedTimestamp": 1.0,
                "unavailableNodeInformation": {"category": "c", "description": "d"},
            }
        }
    },
)

PARSERS: dict[str, tuple[Any, Any]] = {
    "nodes": ({"data": {"summary": [node(), node("b" * 56, alive=False)]}}, answers.nodes),
    "addresses": ({"data": {"result": {"result": [{"node_ip": "a"}]}}}, answers.addresses),
    "autoscaler": (AUTOSCALER, answers.autoscaler),
    "jobs": ([ONE_JOB, job("j-2", "FAILED")], lambda raw: [answers.job(one) for one in raw]),
    "train runs": (RUN, answers.train_runs),
    "log files": (LOGS, answers.log_files),
    "submission": (ONE_JOB, _submission),
}


@pytest.mark.parametrize("name", PARSERS)
@quick_and_nightly(3_000)
def test_dashboard_answer_is_an_error_or_clean(name: str, cases: int) -> None:
    document, parse = PARSERS[name]

    def check(raw: Any) -> None:
        with suppress(CockpitError):
            found = _read("/path", loads(json.dumps(raw)), parse)
            if name != "submission":  # it is sent again, unchanged
                assert_clean(found)

    examine(broken(document), check, cases)


@quick_and_nightly(4_000)
def test_fuzzed_dashboard_answers_can_be_stored_and_printed(cases: int) -> None:
    def check(raw: Any) -> None:
        store = Store()
        store_answers(store, raw)
        with redirect_stdout(io.StringIO()):
            for verb in ("nodes", "jobs", "runs", "ranks", "pods"):
                rows = rows_of(verb, store, 0.0)
                print_rows(rows, columns(verb, rows), "table")
                print_rows(rows, (), "json")
            print_status(store, "table", 1_763_712_000.0)
            print_status(store, "json", 1_763_712_000.0)

    whole = {name: PARSERS[name][0] for name in ("nodes", "jobs", "train runs")}
    examine(broken(whole), check, cases)


def store_answers(store: Store, raw: Any) -> None:
    """As the sources do, of each answer that is understood."""
    if not isinstance(raw, dict):
        return
    with suppress(CockpitError, KeyError):
        nodes = _read("/nodes", raw["nodes"], answers.nodes)
        store.apply(NodesListed(at_s=1.0, source="ray", nodes=nodes))
    with suppress(CockpitError, KeyError):
        jobs = _read("/jobs", raw["jobs"], lambda found: [answers.job(one) for one in found])
        store.apply(JobsListed(at_s=1.0, source="ray", jobs=tuple(jobs)))
    with suppress(CockpitError, KeyError):
        source = TrainRunsSource(Dashboard(DashboardRoute("http://x")), awaited_s=0.0)
        for run in _read("/runs", raw["train runs"], answers.train_runs):
            for event in source._news(run, _Reported(0.0)):
                store.apply(event)


@quick_and_nightly(4_000)
def test_bytes_are_json_or_a_value_error(cases: int) -> None:
    def check(raw: bytes) -> None:
        with suppress(ValueError):
            found = loads(raw)
            if re.search(rb"[0-9]{64}", raw) is None:
                assert json.dumps(found) == json.dumps(json.loads(raw))

    examine(broken_bytes(broken(*(one for one, _ in PARSERS.values())).map(_dumped)), check, cases)


def _dumped(raw: Any) -> bytes:
    return json.dumps(raw).encode()


CURVES = {
    "metric": {"__name__": "up", "gpu": "0", "Hostname": "n"},
    "values": [[1_763_712_000.5, "1.5"], [1_763_712_001, "NaN"]],
}


@quick_and_nightly(3_000)
def test_prometheus_series_is_an_error_or_numbers(cases: int) -> None:
    def check(raw: Any) -> None:
        with suppress(*MISUNDERSTOOD):
            curve = api._curve(raw)
            assert all(type(value) is float for value in (*curve.times, *curve.values))

    examine(broken(CURVES), check, cases)


RUNS = {
    "runs": [
        {
            "info": {
                "experiment_id": "1",
                "run_id": "r1",
                "run_name": "a run",
                "status": "RUNNING",
                "start_time": 1_763_712_000_000,
                "end_time": 1_763_712_900_000,
            },
            "data": {
                "tags": [{"key": "t", "value": "v"}],
                "params": [{"key": "lr", "value": "0.1"}],
                "metrics": [{"key": "loss", "value": 0.5, "timestamp": 1, "step": 3}],
            },
        }
    ]
}


@quick_and_nightly(3_000)
def test_mlflow_run_is_an_error_or_clean(cases: int) -> None:
    settings = MlflowSettings("http://x")
    client = Mlflow(settings)

    def check(raw: Any) -> None:
        if not isinstance(raw, dict):
            return
        with suppress(CockpitError):
            for item in client._listed(raw, "runs"):
                with client.server.understood():
                    assert_clean(client._found(item, {"1": "digits"}).run)

    examine(broken(RUNS), check, cases)
