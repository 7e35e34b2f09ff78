"""The best checkpoint of a run in a real MLflow server: logged, registered, and loaded again."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cockpit.launch.job import bundled_job
from cockpit.launch.settings_file import read as settings_file
from tests.sources.mlflow_server import MlflowServer
from tests.sources.prometheus_server import free_port
from tests.training.cluster import Cluster, drive
from tests.training.test_serve import until
from training.data import load
from training.jobs.baseline import Settings
from training.jobs.plain import directory, work
from training.loop import tracking
from training.loop.settings import TrainSettings
from training.loop.world import alone
from training.parallel.single_device import whole
from training.serving import publish as publishing
from training.serving.publish import Candidate, publish
from training.serving.registry import NoModel, Registered, source
from training.serving.server import Server, Serving, logits_of
from training.serving.weights import Run

pytestmark = pytest.mark.usefixtures("one_thread", "temporary_folder")

CPU = torch.device("cpu")
NAME = "digits"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with MlflowServer(tmp_path_factory.mktemp("mlflow")).running() as running:
        yield running


@pytest.fixture(autouse=True)
def of_the_server(server: MlflowServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a launched job has it."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    monkeypatch.setattr(tracking, "END_TIMEOUT_S", 300.0)  # a busy host imports MLflow for long
    monkeypatch.setitem(tracking.REQUEST, "MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    enter = tracking.Tracking.__enter__

    def entered(self: tracking.Tracking) -> tracking.Tracking:
        """Train only when the server knows the run: a checkpoint contains the id known by then."""
        enter(self)
        reporter = self._teller
        assert reporter is not None
        until(lambda: bool(reporter.id), 120)
        return self

    monkeypatch.setattr(tracking.Tracking, "__enter__", entered)


def trained(storage: Path, **settings: Any) -> TrainSettings:
    given = Settings(
        storage_path=str(storage), batch_size=64, width=8, epochs=1, register_as=NAME, gpu="false"
    )
    given = replace(given, **settings)
    assert work(given, alone("false"), whole)["step"] > 0
    return given


CLIENT = """
import sys
import mlflow.pyfunc, numpy
model = mlflow.pyfunc.load_model(sys.argv[1])
examples = numpy.load(sys.argv[2] + "/examples.npy")
numpy.save(sys.argv[2] + "/probabilities.npy", model.predict(examples)["probabilities"])
import training
assert "code" in training.__file__, training.__file__
"""


@pytest.mark.slow
def test_best_checkpoint_is_a_model_version_with_signature_that_serve_loads_and_follows(
    server: MlflowServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import mlflow.models
    from mlflow import MlflowClient

    client = MlflowClient(server.url, server.url)
    good = trained(tmp_path, run_name="good", epochs=2)
    first = client.get_model_version_by_alias(NAME, "best")
    assert client.get_model_version_by_alias(NAME, "newest").version == first.version == "1"
    assert 0 < float(first.tags["held_out_loss"]) < 2.3

    # Any client loads it with its signature, without this repository.
    examples = load(good).held_out.batch(np.arange(4), None)[0]
    np.save(tmp_path / "examples.npy", examples.numpy())
    server.script(CLIENT, f"models:/{NAME}@best", str(tmp_path), PYTHONPATH="")
    given = np.load(tmp_path / "probabilities.npy")
    weights = Run(directory(good).path).newest(CPU)
    assert weights is not None
    own = torch.stack(logits_of(weights, list(examples), CPU)).softmax(dim=-1)
    assert np.allclose(given, own.numpy(), atol=1e-6)
    found = mlflow.models.get_model_info(f"models:/{NAME}@best").signature
    takes, gives = found.inputs, found.outputs
    assert [(item.name, item.shape) for item in takes] == [("image", (-1, 1, 8, 8))]
    assert [(item.name, item.shape) for item in gives] == [("probabilities", (-1, 10))]

    served = source(f"models:/{NAME}@best")
    assert isinstance(served, Registered)
    loaded = served.newest(CPU)
    assert loaded is not None
    assert (loaded.name, loaded.made.step) == ("digits-v1", weights.made.step)
    assert served.newest(CPU, loaded.checkpoint) is None, "it is the same version"

    # A worse run becomes the newest, and the best stays.
    trained(tmp_path, run_name="worse", max_steps=1)
    assert client.get_model_version_by_alias(NAME, "best").version == "1"
    assert client.get_model_version_by_alias(NAME, "newest").version == "2"
    assert served.newest(CPU, loaded.checkpoint) is None
    serving = Serving(f"models:/{NAME}@best", "false", 1, 0.0, poll_s=0.05, tracking_uri=server.url)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    replica = Server(serving)
    try:
        assert replica._weights.name == "digits-v1"
        client.set_registered_model_alias(NAME, "best", "2")
        until(lambda: replica._weights.name == "digits-v2", 30)
        assert replica._weights.made.step == 1
    finally:
        replica._ended.set()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)

    # Launched again, a finished run makes no version.
    capsys.readouterr()
    trained(tmp_path, run_name="worse", max_steps=1)
    assert "registered" not in capsys.readouterr().out
    assert len(client.search_model_versions(f"name='{NAME}'")) == 2

    # Under another name it makes one.
    for _ in range(2):
        trained(tmp_path, run_name="worse", max_steps=1, register_as="other")
    [other] = client.search_model_versions("name='other'")
    assert (other.run_id, other.tags["step"]) == (
        client.get_model_version(NAME, "2").run_id,
        "1",
    )
    assert "logged the model" not in capsys.readouterr().out

    run = client.get_run(str(first.run_id))
    assert run.data.tags["cockpit.model_step"] == first.tags["step"]
    for name in (tracking.ENVIRONMENT, tracking.SETTINGS):
        client.download_artifacts(str(first.run_id), name, str(tmp_path))
    environment = json.loads((tmp_path / tracking.ENVIRONMENT).read_text())
    assert environment["torch"] == str(torch.__version__)
    assert environment["packages"]["numpy"] == np.__version__
    again = settings_file(str(tmp_path / tracking.SETTINGS))
    again.require(bundled_job("baseline"))
    assert again.settings["epochs"] == "2"


def test_language_model_takes_any_number_of_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    # Loading a model leaves its code, a part of `training`, in a new directory and in sys.path.
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trained(
        tmp_path,
        run_name="tokens",
        register_as="tokens",
        data="synthetic-tokens",
        model="gpt-tiny",
        sequence_length=16,
        examples=32,
        batch_size=2,
        max_steps=1,
    )
    model = mlflow.pyfunc.load_model("models:/tokens@best")
    given = model.predict(np.array([[3, 1, 4]], dtype=np.int64))["probabilities"]
    assert given.shape == (1, 256)
    assert given.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "path", ["models:/", "models:/digits", "models:/digits/x", "models:/a/1@b"]
)
def test_address_of_no_model_version_is_refused(path: str) -> None:
    with pytest.raises(NoModel, match="is no model version"):
        source(path)


def test_missing_model_version_is_reported_with_the_message_of_the_server() -> None:
    with pytest.raises(NoModel, match="is not available: RESOURCE_DOES_NOT_EXIST"):
        Registered("models:/nothing@best").newest(CPU)


@pytest.mark.slow
def test_server_that_fails_costs_one_line_and_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    given = trained(tmp_path, run_name="unlogged", max_steps=1, log_model=False)
    [path] = sorted(Path(directory(given).path).glob("checkpoint_*"))
    candidate = Candidate(path.name, {}, lambda: nullcontext(str(path)))

    def refuse(*args: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, "log_artifacts", refuse)
        capsys.readouterr()
        publish(replace(given, log_model=True), [candidate])
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("warning: mlflow at ")
    assert f"the model of {path.name} is not logged: no space left; launch it again" in line
    # Its checkpoint does not know the run if the server answered after it was saved.
    monkeypatch.setattr(publishing, "_tracked", lambda directory: "")
    publish(replace(given, log_model=True, run_name="unknown"), [candidate])
    assert "did not answer while the run trained; launch it again" in capsys.readouterr().out
    publish(replace(given, log_model=True, register_as=""), [candidate])
    assert capsys.readouterr().out.startswith(f"logged the model of {path.name} (step 1)")


@pytest.mark.nightly
@pytest.mark.ray
def test_serve_answers_requests_from_a_model_version(
    cluster: Cluster, server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path, run_name="served", register_as="served", max_steps=20)
    monkeypatch.setitem(cluster.environment, "MLFLOW_TRACKING_URI", server.url)
    argv = ["-m", "training.jobs.serve", "--run-path=models:/served@newest", "--check=20"]
    ran = drive(cluster, [*argv, f"--port={free_port()}", "--gpu=false"], limit_s=300)
    assert ran.code == 0, ran.output[-4000:]
    assert "convnet of served-v1 (step 20) answers at" in ran.output


def test_model_of_a_run_that_ended_before_the_server_answered_is_reported_as_not_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://jane:secret@127.0.0.1:9")
    untracked = Candidate(
        "checkpoint_1", {"held_out_loss": 0.1}, lambda: nullcontext(str(tmp_path))
    )
    publish(Settings(run_name="short", register_as=NAME), [untracked])
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "warning: mlflow at http://127.0.0.1:9: the model of checkpoint_1 is not logged: "
    )
    assert line.endswith(
        "; launch it again with run_name=short: it has no step left to train, and logs the model"
    )
    assert "secret" not in line
