"""The MLflow server of the configuration reaches the jobs, and its credentials do not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.actions.jobs import JobActions
from cockpit.backends.protocol import RayJobSpec
from cockpit.cli import main as cli
from cockpit.cli.options import connect
from cockpit.config import paths
from cockpit.launch import submission
from cockpit.launch.environment import JobEnvironment
from cockpit.launch.mlflow_server import variables, with_mlflow
from cockpit.launch.rayjob import RayJobOptions
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import UsageError
from cockpit.sources.mlflow.settings import parse
from tests.simulated_backend import ScriptedBackend

SERVER = "http://mlflow:5000"
KUBERNETES = ClusterRef("kuberay", "trainer", "ml", "prod")


def configure(text: str) -> None:
    paths.config_dir().mkdir(parents=True)
    (paths.config_dir() / "config.toml").write_text(f"[mlflow]\n{text}\n")


@dataclass(slots=True)
class RayJobs(ScriptedBackend):
    specs: list[RayJobSpec] = field(default_factory=list)

    async def create_rayjob(self, spec: RayJobSpec) -> str:
        self.specs.append(spec)
        return spec.name


@pytest.mark.parametrize(
    ("raw", "environ", "backend", "expected"),
    [
        ({"uri": SERVER}, {}, "kuberay", {"MLFLOW_TRACKING_URI": SERVER}),
        (
            {"uri": "http://me:secret@mlflow:5000/", "token_env": "T"},
            {"T": "secret"},
            "address",
            {"MLFLOW_TRACKING_URI": SERVER},
        ),
        (
            {"uri": SERVER, "experiments": ["digits"], "verify": False},
            {},
            "kuberay",
            {
                "MLFLOW_TRACKING_URI": SERVER,
                "MLFLOW_EXPERIMENT_NAME": "digits",
                "MLFLOW_TRACKING_INSECURE_TLS": "true",
            },
        ),
        ({"uri": "http://localhost:5000"}, {}, "kuberay", {}),
        (
            {"uri": "http://localhost:5000"},
            {},
            "local",
            {"MLFLOW_TRACKING_URI": "http://localhost:5000"},
        ),
        ({}, {"MLFLOW_TRACKING_URI": SERVER}, "kuberay", {}),
        ({}, {}, "local", {}),
    ],
)
def test_jobs_get_the_address_that_they_can_reach_without_credentials(
    raw: dict[str, Any], environ: dict[str, str], backend: str, expected: dict[str, str]
) -> None:
    assert variables(parse(raw, environ), backend) == expected


def test_an_address_that_the_user_names_wins_with_everything_about_it() -> None:
    named = {"MLFLOW_TRACKING_URI": "http://other:5000"}
    spec = submission.bundled_spec("checkpointed", environment=JobEnvironment(named))
    settings = parse({"uri": SERVER, "experiments": ["digits"]}, {})
    assert with_mlflow(spec, settings, "kuberay") == spec
    free = replace(spec, environment=JobEnvironment({"MLFLOW_EXPERIMENT_NAME": "mine"}))
    ours = submission.environment(with_mlflow(free, settings, "kuberay"))
    assert ours["MLFLOW_TRACKING_URI"] == SERVER
    assert ours["MLFLOW_EXPERIMENT_NAME"] == "mine"


async def test_every_launched_job_has_the_server_of_the_configuration() -> None:
    """A key, a game day and the verb launch by the same actions."""
    configure(f'uri = "{SERVER}"')
    cluster = RayJobs(ref=KUBERNETES)
    spec = submission.bundled_spec("checkpointed")
    await JobActions(cluster).submit_rayjob(spec, RayJobOptions(own_cluster=True))
    [made] = cluster.specs
    assert made.runtime_env["env_vars"]["MLFLOW_TRACKING_URI"] == SERVER


async def test_an_invalid_table_stops_the_launch_before_anything_is_created() -> None:
    configure('url = "http://mlflow"')
    cluster = RayJobs(ref=KUBERNETES)
    with pytest.raises(UsageError, match="there is no 'url'"):
        await JobActions(cluster).submit_rayjob(submission.bundled_spec("checkpointed"))
    assert not cluster.specs


@pytest.mark.parametrize(
    ("configured", "lines"),
    [
        (
            f'uri = "{SERVER}"\nusername = "me"',
            (f"Log to MLflow at {SERVER}.", "The credentials of [mlflow] are not sent. "),
        ),
        ('uri = "http://127.0.0.1:5000"', ("MLflow at http://127.0.0.1:5000 is on this host, ",)),
    ],
)
def test_the_plan_names_the_server_of_the_job(
    configured: str,
    lines: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(configured)
    scripted = ScriptedBackend(ref=KUBERNETES)
    monkeypatch.setattr(connect, "backend", lambda args, **how: scripted)
    assert cli.main(["launch", "checkpointed", "--via=rayjob", "--own-cluster", "--dry-run"]) == 0
    plan = capsys.readouterr().err
    assert all(line in plan for line in lines)
