from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.launch import submission
from cockpit.launch.environment import JobEnvironment
from cockpit.launch.job import BundledJob, JobSetting
from cockpit.launch.rayjob import RayJobOptions, rayjob_spec
from cockpit.model.driver import DriverResources
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.recovery import DEFAULT, FAST
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import AnswerError, MissingError
from tests.jobs_api import JobsApi
from tests.sources.fake_dashboard import job, node
from training.telemetry.names import CALLBACK


@pytest.fixture
def ray() -> JobsApi:
    return JobsApi()


@pytest.fixture
def dashboard(ray: JobsApi) -> Dashboard:
    return ray.dashboard()


async def test_a_bundled_job_is_uploaded_once_and_carries_the_telemetry(
    ray: JobsApi, dashboard: Dashboard
) -> None:
    first = await submission.launch(
        dashboard, submission.bundled_spec("checkpointed", {"epochs": "5"}, 2)
    )
    await submission.launch(dashboard, submission.bundled_spec("checkpointed"))
    assert len(ray.uploads) == 1
    sent = ray.jobs[first.id]
    assert sent["entrypoint"] == (
        f"python -m training.jobs.checkpointed --epochs=5 --workers=2 --run-name={first.id}"
    )
    assert sent["runtime_env"]["working_dir"] == f"gcs://{ray.uploads[0]}"
    callbacks = ",".join([CALLBACK, *FAST.callbacks])
    assert sent["runtime_env"]["env_vars"]["RAY_TRAIN_CALLBACKS"] == callbacks
    assert sent["runtime_env"]["env_vars"]["RAY_TRAIN_ENABLE_STATE_TRACKING"] == "1"
    assert first.metadata["cockpit.job"] == "checkpointed"


async def test_a_script_runs_in_a_copy_of_its_folder_with_the_callback_beside_it(
    ray: JobsApi, dashboard: Dashboard, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("")
    spec = submission.script_spec(("python", "train.py", "--name", "two words"), tmp_path)
    started = await submission.launch(dashboard, spec)
    sent = ray.jobs[started.id]
    assert started.id.startswith("train-")
    assert sent["entrypoint"] == "python train.py --name 'two words'"
    assert len(ray.uploads) == 2
    runtime_env = sent["runtime_env"]
    assert {runtime_env["working_dir"], *runtime_env["py_modules"]} == {
        f"gcs://{name}" for name in ray.uploads
    }


async def test_a_script_with_a_training_package_of_its_own_goes_without_the_callback(
    ray: JobsApi, dashboard: Dashboard, tmp_path: Path
) -> None:
    # Ray Train fails a run whose callback cannot be imported.
    (tmp_path / "training").mkdir()
    spec = submission.script_spec(("python", "train.py"), tmp_path)
    assert spec.has_own_training
    started = await submission.launch(dashboard, spec)
    runtime_env = ray.jobs[started.id]["runtime_env"]
    assert "py_modules" not in runtime_env
    assert "RAY_TRAIN_CALLBACKS" not in runtime_env["env_vars"]


async def test_a_job_reports_its_recovery_profile_and_has_its_settings_and_callbacks(
    ray: JobsApi, dashboard: Dashboard
) -> None:
    spec = replace(submission.bundled_spec("checkpointed"), recovery=FAST)
    started = await submission.launch(dashboard, spec)
    assert started.metadata["cockpit.recovery"] == "fast"
    env = ray.jobs[started.id]["runtime_env"]["env_vars"]
    assert FAST.job_env.items() <= env.items()
    assert env["RAY_TRAIN_CALLBACKS"] == ",".join([CALLBACK, *FAST.callbacks])
    again = replace(spec, recovery=DEFAULT, submission_id="again")
    plain = submission.environment(again)
    assert plain["RAY_TRAIN_CALLBACKS"] == CALLBACK
    assert "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S" not in plain


def test_an_older_training_of_ours_in_the_users_folder_goes_without_the_recovery_callback(
    tmp_path: Path,
) -> None:
    telemetry = tmp_path / "training" / "telemetry"
    telemetry.mkdir(parents=True)
    (telemetry / "callback.py").write_text("")
    spec = replace(submission.script_spec(("python", "train.py"), tmp_path), recovery=FAST)
    assert submission.environment(spec)["RAY_TRAIN_CALLBACKS"] == CALLBACK


def test_the_users_callbacks_and_variables_are_kept() -> None:
    own = {
        "RAY_TRAIN_CALLBACKS": "mine.Callback",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "9",
        "MLFLOW_RUN_CONTEXT": "{}",
    }
    spec = submission.LaunchSpec(("python", "train.py"), "mine-1", environment=JobEnvironment(own))
    env = submission.environment(spec)
    assert env["RAY_TRAIN_CALLBACKS"].startswith(f"mine.Callback,{CALLBACK}")
    assert env["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] == "9"
    assert env["MLFLOW_RUN_CONTEXT"] == "{}"
    again = submission.environment(replace(spec, environment=JobEnvironment(env)))
    assert again == env
    assert (
        "mine-1"
        in submission.environment(replace(spec, environment=JobEnvironment()))["MLFLOW_RUN_CONTEXT"]
    )


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("checkpoint", {}, "no bundled job 'checkpoint': did you mean checkpointed?"),
        ("checkpointed", {"epoch": "1"}, "no setting 'epoch': did you mean epochs?"),
        ("checkpointed", {"epochs": "many"}, "epochs=many is not a whole number"),
        ("checkpointed", {"stop_on_nan": "maybe"}, "stop_on_nan=maybe is not true or false"),
        ("checkpointed", {"precision": "BF61"}, "is not one of its choices: did you mean bf16?"),
    ],
)
def test_a_wrong_name_or_value_is_refused_with_what_there_is(
    name: str, settings: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UsageError) as raised:
        submission.bundled_spec(name, settings)
    assert sentence in raised.value.what
    assert raised.value.why


def test_a_job_without_ranks_or_a_named_run_is_launched_without_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve = BundledJob("serve", "m.serve", "s", (JobSetting("port", "int", 8000, "of HTTP"),))
    monkeypatch.setattr(submission, "bundled_job", lambda name: serve)
    assert submission.bundled_spec("serve", {"port": "80"}).entrypoint == (
        "python", "-m", "m.serve", "--port=80",
    )  # fmt: skip
    with pytest.raises(UsageError, match="Job serve has a fixed number of workers"):
        submission.bundled_spec("serve", {}, 2)


def test_a_name_that_is_given_to_the_run_is_kept() -> None:
    spec = submission.bundled_spec("checkpointed", {"run-name": "mine", "storage_path": "/store"})
    assert spec.entrypoint[3:] == ("--run-name=mine", "--storage-path=/store")


async def test_a_job_that_is_over_is_resumed_with_the_same_code_and_run(
    ray: JobsApi, dashboard: Dashboard
) -> None:
    first = await submission.launch(dashboard, submission.bundled_spec("checkpointed"))
    with pytest.raises(UsageError, match="is RUNNING"):
        await submission.resume(dashboard, first.id)
    await submission.stop(dashboard, first.id)
    ray.packages.clear()  # Ray drops packages that no job uses
    again = await submission.resume(dashboard, first.id)
    assert again.id != first.id
    assert again.entrypoint == first.entrypoint
    assert again.metadata["cockpit.resumed_from"] == first.id
    assert ray.jobs[again.id]["runtime_env"] == ray.jobs[first.id]["runtime_env"]
    assert len(ray.uploads) == 2


async def test_a_job_whose_code_no_longer_exists_reports_it(
    ray: JobsApi, dashboard: Dashboard
) -> None:
    removed = {"runtime_env": {"working_dir": "gcs://_ray_pkg_gone.zip"}, "status": "FAILED"}
    ray.jobs["old"] = job("old") | removed
    with pytest.raises(CockpitError, match="no longer on the cluster"):
        await submission.resume(dashboard, "old")


async def test_a_running_job_is_not_deleted_and_a_stopped_one_is(
    ray: JobsApi, dashboard: Dashboard
) -> None:
    started = await submission.launch(dashboard, submission.bundled_spec("checkpointed"))
    with pytest.raises(UsageError) as raised:
        await submission.delete(dashboard, started.id)
    assert f"cockpit stop {started.id}" in raised.value.todo
    assert (await submission.stop(dashboard, started.id)).status == "STOPPED"
    assert (await submission.stop(dashboard, started.id)).status == "STOPPED"
    await submission.delete(dashboard, started.id)
    assert ray.jobs == {}


@pytest.mark.parametrize("change", [submission.stop, submission.delete, submission.resume])
async def test_an_unknown_job_names_one_that_is_like_it(
    ray: JobsApi, dashboard: Dashboard, change: Any
) -> None:
    ray.jobs["digits-1a2b"] = job("digits-1a2b")
    with pytest.raises(MissingError, match=r"no job 'digits-1a2': did you mean digits-1a2b\?"):
        await change(dashboard, "digits-1a2")


async def test_a_submission_that_ray_refuses_reports_why(
    ray: JobsApi, dashboard: Dashboard
) -> None:
    spec = submission.bundled_spec("checkpointed", submission_id="twice")
    await submission.launch(dashboard, spec)
    with pytest.raises(AnswerError, match="rejected job twice") as raised:
        await submission.launch(dashboard, spec)
    assert "submission_id twice exists" in raised.value.why


async def test_what_a_job_runs_in_reaches_ray_and_is_kept_when_it_is_resumed(
    ray: JobsApi, dashboard: Dashboard, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("")
    wants = JobEnvironment(
        {"NCCL_DEBUG": "INFO"},
        str(tmp_path),
        ("s3://bucket/lib.zip",),
        {"pip": ["einops"], "config": {"setup_timeout_seconds": 60}},
        DriverResources(cpus=2, memory_bytes=4 << 30, custom={"slot": 1}),
    )
    spec = submission.script_spec(("python", "train.py"), Path("/"), environment=wants)
    first = await submission.launch(dashboard, spec)
    sent = ray.jobs[first.id]
    assert sent["entrypoint_num_cpus"] == 2
    assert sent["entrypoint_memory"] == 4 << 30
    assert sent["entrypoint_resources"] == {"slot": 1}
    assert "entrypoint_num_gpus" not in sent
    assert sent["runtime_env"]["pip"] == ["einops"]
    assert sent["runtime_env"]["config"] == {"setup_timeout_seconds": 60}
    assert sent["runtime_env"]["env_vars"]["NCCL_DEBUG"] == "INFO"
    assert sent["runtime_env"]["py_modules"][0] == "s3://bucket/lib.zip"
    ray.jobs[first.id] |= {"status": "FAILED"}
    again = ray.jobs[(await submission.resume(dashboard, first.id)).id]
    for name in ("runtime_env", "entrypoint_num_cpus", "entrypoint_memory", "entrypoint_resources"):
        assert again[name] == sent[name]


async def test_files_that_were_confirmed_are_uploaded_and_no_later_ones(
    ray: JobsApi, dashboard: Dashboard, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("")
    spec = submission.script_spec(("python", "train.py"), tmp_path)
    confirmed = replace(spec, uploads=spec.chosen())
    (tmp_path / "later.py").write_text("")

    def sent(package: bytes) -> set[str]:
        with zipfile.ZipFile(io.BytesIO(package)) as archive:
            names = {Path(name).name for name in archive.namelist()}
        return names & {"train.py", "later.py"}

    for launched, names in ((confirmed, {"train.py"}), (spec, {"train.py", "later.py"})):
        package = rayjob_spec(launched, RayJobOptions(own_cluster=True)).package
        assert sent(package) == names
        again = replace(launched, submission_id=submission.new_submission_id("train"))
        found = ray.jobs[(await submission.launch(dashboard, again)).id]["runtime_env"]
        assert sent(ray.packages[found["working_dir"].removeprefix("gcs://")]) == names


async def test_code_that_is_a_uri_is_not_uploaded(ray: JobsApi, dashboard: Dashboard) -> None:
    wants = JobEnvironment(working_dir="s3://bucket/code.zip")
    spec = submission.script_spec(("python", "train.py"), Path("/"), environment=wants)
    sent = ray.jobs[(await submission.launch(dashboard, spec)).id]
    assert sent["runtime_env"]["working_dir"] == "s3://bucket/code.zip"
    assert sent["runtime_env"]["py_modules"] == [f"gcs://{name}" for name in ray.uploads]
    assert len(ray.uploads) == 1, "the telemetry"


def for_drivers(places: float, name: str = "d" * 56, *, alive: bool = True) -> dict[str, Any]:
    made = node(name, head=False, alive=alive)
    made["raylet"]["resourcesTotal"] = {"driver": places}
    return made


async def test_a_driver_runs_on_a_node_for_drivers_while_there_is_a_free_place(
    ray: JobsApi, dashboard: Dashboard
) -> None:
    ray.head = "d" * 56
    ray.nodes += [for_drivers(4, "e" * 56, alive=False), for_drivers(1)]
    for reserved in ({"driver": 1.0}, None):
        spec = submission.bundled_spec("checkpointed")
        sent = ray.jobs[(await submission.launch(dashboard, spec)).id]
        assert sent.get("entrypoint_resources") == reserved
        assert submission.DRIVER not in sent["metadata"], "the user did not ask for it"
    for each in ray.jobs.values():
        each["status"] = "SUCCEEDED"
    again = await submission.resume(dashboard, next(iter(ray.jobs)))
    assert ray.jobs[again.id]["entrypoint_resources"] == {"driver": 1.0}
    ray.jobs[again.id]["status"] = "SUCCEEDED"
    ray.nodes = [node()]
    again = await submission.resume(dashboard, again.id)
    assert "entrypoint_resources" not in ray.jobs[again.id], "such a node is gone"


async def test_a_pending_job_may_take_the_last_place_for_drivers(
    ray: JobsApi, dashboard: Dashboard
) -> None:
    ray.nodes.append(for_drivers(1))
    first = await submission.launch(dashboard, submission.bundled_spec("checkpointed"))
    ray.jobs[first.id] |= {"status": "PENDING", "driver_node_id": None}
    second = await submission.launch(dashboard, submission.bundled_spec("checkpointed"))
    assert "entrypoint_resources" not in ray.jobs[second.id]


async def test_nodes_that_are_listed_otherwise_do_not_prevent_a_launch(
    ray: JobsApi, dashboard: Dashboard
) -> None:
    ray.nodes = [{"raylet": None}]
    started = await submission.launch(dashboard, submission.bundled_spec("checkpointed"))
    assert "entrypoint_resources" not in ray.jobs[started.id]


async def test_what_the_user_reserves_for_the_driver_is_not_changed(
    ray: JobsApi, dashboard: Dashboard
) -> None:
    ray.nodes.append(for_drivers(4))
    wants = JobEnvironment(driver=DriverResources(cpus=0))
    spec = submission.bundled_spec("checkpointed", environment=wants)
    sent = ray.jobs[(await submission.launch(dashboard, spec)).id]
    assert sent["entrypoint_num_cpus"] == 0
    assert "entrypoint_resources" not in sent


async def test_a_head_with_the_resource_is_no_node_for_drivers(
    ray: JobsApi, dashboard: Dashboard
) -> None:
    ray.nodes[0]["raylet"]["resourcesTotal"] = {"driver": 4}
    started = await submission.launch(dashboard, submission.bundled_spec("checkpointed"))
    assert "entrypoint_resources" not in ray.jobs[started.id]


def test_a_working_directory_is_for_a_command_and_must_be_there() -> None:
    with pytest.raises(UsageError, match="brings its own working directory"):
        submission.bundled_spec("ddp", environment=JobEnvironment(working_dir="/tmp"))
    with pytest.raises(UsageError, match="is not a folder"):
        submission.script_spec(("a",), Path("/"), environment=JobEnvironment(working_dir="/none"))
