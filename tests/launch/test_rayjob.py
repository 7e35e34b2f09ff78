from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest

from cockpit.actions.jobs import JobActions
from cockpit.launch import submission
from cockpit.launch.environment import JobEnvironment
from cockpit.launch.rayjob import NAME_LIMIT, RayJobOptions, provide, rayjob_spec, resource_name
from cockpit.launch.submission import CALLBACKS, WORKING_DIR
from cockpit.model.driver import DriverResources
from cockpit.model.error import UsageError
from cockpit.model.recovery import FAST
from cockpit.sources.ray.dashboard import Dashboard
from tests.jobs_api import JobsApi
from tests.launch.test_mlflow_server import RayJobs
from tests.launch.test_submission import dashboard, for_drivers, ray
from training.telemetry.names import CALLBACK

__all__ = ["dashboard", "ray"]


def names(package: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(package)).namelist()


def script(folder: Path) -> submission.LaunchSpec:
    (folder / "train.py").write_text("print('hello')\n")
    return submission.script_spec(
        ("python", "train.py"), folder, environment=JobEnvironment({"MINE": "1"})
    )


async def test_on_the_present_cluster_the_code_is_what_a_submission_would_have(
    ray: JobsApi,
    dashboard: Dashboard,
) -> None:
    spec = submission.bundled_spec("checkpointed", {"epochs": "3"})
    made = rayjob_spec(spec, RayJobOptions(ttl_s=60, deadline_s=900))
    await provide(dashboard, spec)
    assert made.working_dir == f"gcs://{ray.uploads[0]}" == made.metadata[WORKING_DIR]
    assert made.package == b""
    assert "--epochs=3" in made.entrypoint
    assert made.runtime_env["env_vars"][CALLBACKS] == ",".join([CALLBACK, *FAST.callbacks])
    assert (made.ttl_s, made.deadline_s, made.own_cluster) == (60, 900, False)
    await provide(dashboard, spec)
    assert len(ray.uploads) == 1


async def test_a_script_has_the_telemetry_in_its_own_folder(
    ray: JobsApi, dashboard: Dashboard, tmp_path: Path
) -> None:
    spec = script(tmp_path)
    made = rayjob_spec(spec, RayJobOptions())
    await provide(dashboard, spec)
    [package] = ray.packages.values()
    assert {"train.py", "training/telemetry/callback.py"} <= set(names(package))
    assert made.runtime_env["env_vars"]["MINE"] == "1"


def test_for_a_cluster_of_its_own_the_code_travels_under_one_folder(tmp_path: Path) -> None:
    made = rayjob_spec(script(tmp_path), RayJobOptions(own_cluster=True, replicas={"gpu": 2}))
    assert {name.partition("/")[0] for name in names(made.package)} == {"code"}
    assert "code/train.py" in names(made.package)
    assert (made.working_dir, dict(made.replicas)) == ("", {"gpu": 2})
    assert WORKING_DIR not in made.metadata


def test_a_training_folder_of_the_users_stays_the_users(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "mine.py").write_text("")
    made = rayjob_spec(script(tmp_path), RayJobOptions(own_cluster=True))
    assert [n for n in names(made.package) if "training" in n] == ["code/training/mine.py"]
    assert CALLBACKS not in made.runtime_env["env_vars"]


@pytest.mark.parametrize(
    "submission_id",
    ["checkpointed-0a1b2c3d", "My_Script.v2-0a1b2c3d", "9lives-0a1b2c3d", "x" * 40 + "-0a1b2c3d"],
)
def test_a_name_is_one_that_kubernetes_takes(submission_id: str) -> None:
    name = resource_name(submission_id)
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert len(name) <= NAME_LIMIT
    assert name.endswith("-0a1b2c3d")


async def test_the_driver_of_a_rayjob_runs_on_a_node_for_drivers_too(
    ray: JobsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.nodes.append(for_drivers(4))
    monkeypatch.setattr(JobActions, "_dashboard", lambda self: ray.dashboard())
    cluster = RayJobs()
    await JobActions(cluster).submit_rayjob(submission.bundled_spec("checkpointed"))
    assert cluster.specs[0].driver.custom == {"driver": 1.0}


def test_times_that_are_none_are_refused() -> None:
    spec = submission.bundled_spec("checkpointed")
    for options in (RayJobOptions(ttl_s=-1), RayJobOptions(deadline_s=0)):
        with pytest.raises(UsageError, match="is too small"):
            rayjob_spec(spec, options)


def test_a_rayjob_runs_in_the_same_as_a_submission(tmp_path: Path) -> None:
    driver = DriverResources(cpus=1)
    wants = JobEnvironment({}, "s3://bucket/code.zip", (), {"uv": ["einops"]}, driver)
    spec = submission.script_spec(("python", "train.py"), tmp_path, environment=wants)
    made = rayjob_spec(spec, RayJobOptions())
    assert made.working_dir == "s3://bucket/code.zip"
    assert made.runtime_env["uv"] == ["einops"]
    (telemetry,) = made.runtime_env["py_modules"]
    assert telemetry.startswith("gcs://")
    assert made.driver == driver
    with pytest.raises(UsageError, match="cannot be the code on a cluster of the job's own"):
        rayjob_spec(spec, RayJobOptions(own_cluster=True))
