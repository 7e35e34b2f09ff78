"""A run's checkpoint behind HTTP: what it answers, what it refuses, and how it begins and ends."""

from __future__ import annotations

import base64
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
import torch

from tests.sources.prometheus_server import free_port
from tests.training.cluster import ROOT, Cluster, drive
from training.checkpoint import sharded
from training.checkpoint.in_folder import FolderCheckpoints
from training.data import digits
from training.data.settings import DataSettings
from training.jobs.serve import build, free, newest, reached
from training.loop import recipe
from training.loop.recipe import Made
from training.loop.settings import TrainSettings
from training.loop.train import train
from training.loop.world import alone
from training.models.settings import ModelSettings
from training.parallel.named_state import STEPS, named
from training.parallel.single_device import whole
from training.serving.mlflow_model import requirements, write
from training.serving.request import Refused, Sampling, asked, largest_bytes
from training.serving.weights import Weights
from training.techniques.average import Average

CPU = torch.device("cpu")
SETTINGS = TrainSettings(workers=1, epochs=2, width=8, max_steps=30, gpu="false")
DIGITS = Made(DataSettings(), ModelSettings(), (1, 8, 8), 10, step=0)
BYTES = Made(DataSettings(), ModelSettings(model="gpt-tiny"), (16,), 256, step=0)
BLACK = [[[0.0] * 8] * 8]
TIMEOUT_S = 120.0


def learn(folder: Path, settings: TrainSettings) -> None:
    with FolderCheckpoints(folder, 0, 1, in_background=False) as checkpoints:
        assert train(settings, alone("false"), checkpoints, whole)["step"] == settings.max_steps


def body(**text: Any) -> bytes:
    return json.dumps(text).encode()


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "not an object"),
        (body(), "one of image and image_base64"),
        (body(image=BLACK, image_base64=""), "one of image and image_base64"),
        (body(image=BLACK, size=3), "'size' is not known"),
        (body(image=[[0.0] * 8] * 8), "not 1x8x8 numbers"),
        (body(image=[[[0.0] * 8] * 7 + [[0.0]]]), "not 1x8x8 numbers"),
        (body(image=[[["1"] * 8] * 8]), "not 1x8x8 numbers"),
        (body(image=[[[True] * 8] * 8]), "not 1x8x8 numbers"),
        (body(image=[[[None] * 8] * 8]), "not 1x8x8 numbers"),
        (body(image=[[[float("nan")] * 8] * 8]), "not finite"),
        (body(image=[[[1e300] * 8] * 8]), "not finite"),
        (body(image_base64="*"), "not base64"),
        (body(image_base64=7), "not base64"),
        (body(image_base64=base64.b64encode(bytes(255)).decode()), "255 bytes, not the 256"),
    ],
)
def test_invalid_image_is_refused_with_a_message(sent: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        asked(sent, DIGITS)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "tokens are wanted"),
        ({"tokens": []}, "tokens are wanted"),
        ({"tokens": "abc"}, "tokens are wanted"),
        ({"tokens": [1, 256]}, "256 is not a token"),
        ({"tokens": [-1]}, "-1 is not a token"),
        ({"tokens": [1.0]}, "1.0 is not a token"),
        ({"tokens": [True]}, "True is not a token"),
        ({"tokens": [1], "new_tokens": 0}, "new_tokens is a whole number from 1 to 1024"),
        ({"tokens": [1], "temperature": -1}, "temperature is a number from 0"),
        ({"tokens": [1], "temperature": float("nan")}, "temperature is a number from 0"),
        ({"tokens": [1], "top_k": 257}, "top_k is a whole number from 0 to 256"),
        ({"tokens": [1], "image": BLACK}, "'image' is not known"),
    ],
)
def test_invalid_tokens_are_refused_with_a_message(said: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        asked(body(**said), BYTES)
    assert refused.value.status == 400


def test_an_image_is_the_same_as_lists_and_as_base64() -> None:
    image = np.random.default_rng(0).random((1, 8, 8), dtype=np.float32)
    lists = asked(body(image=image.tolist()), DIGITS)
    encoded = asked(body(image_base64=base64.b64encode(image.tobytes()).decode()), DIGITS)
    assert torch.equal(lists.inputs, torch.from_numpy(image))
    assert torch.equal(encoded.inputs, lists.inputs)


def test_tokens_come_with_how_to_continue() -> None:
    question = asked(body(tokens=[3, 1], new_tokens=5, temperature=1, top_k=4, seed=9), BYTES)
    assert question.inputs.tolist() == [3, 1]
    assert question.sampling == Sampling(5, 1.0, 4, 9)
    assert asked(body(tokens=[3]), BYTES).sampling == Sampling()


@pytest.mark.slow
def test_application_of_a_rayservice_has_the_settings_of_its_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = build({"run_path": "/x", "replicas": 2, "gpu": "true"})._bound_deployment
    assert (made.num_replicas, made.ray_actor_options["num_gpus"]) == (2, 1)
    assert made.init_args[0].run_path == "/x"
    monkeypatch.setenv("STORAGE_PATH", "s3://bucket/runs")
    made = build({"run_path": "$STORAGE_PATH/r"})._bound_deployment
    assert made.init_args[0].run_path == "s3://bucket/runs/r"
    monkeypatch.delenv("STORAGE_PATH")
    with pytest.raises(ValueError, match="run_path \\$STORAGE_PATH/r: the pods have no such"):
        build({"run_path": "$STORAGE_PATH/r"})
    with pytest.raises(TypeError, match="portt"):
        build({"portt": 1})


def test_the_average_of_the_weights_is_served_where_there_is_one(tmp_path: Path) -> None:
    learn(tmp_path, replace(SETTINGS, ema_decay=0.9, max_steps=12))
    weights = newest(str(tmp_path))
    saved = torch.load(f"{weights.checkpoint}/model.pt", weights_only=True)
    average = torch.load(f"{weights.checkpoint}/average.pt", weights_only=True)["average"]
    for (name, own), averaged in zip(weights.model.named_parameters(), average, strict=True):
        assert torch.equal(own, averaged), name
        assert not torch.equal(own, saved[name]), name


def test_a_model_for_others_has_neither_the_password_of_its_data_nor_lacks_a_package(
    tmp_path: Path,
) -> None:
    data = DataSettings(data_path="s3://me:s3same@bucket/data")
    made = replace(DIGITS, data=data, model=ModelSettings(model="mlp", width=4))
    write(Weights("run/checkpoint", made, made.build()), tmp_path)
    assert recipe.read(tmp_path).data.data_path == "s3://bucket/data"
    packages = [
        {item.partition("==")[0] for item in requirements(of)} for of in ("mlp", "resnet18")
    ]
    assert packages[1] - packages[0] == {"torchvision"}


def test_a_checkpoint_in_parts_is_served_as_a_whole_one(tmp_path: Path) -> None:
    """As fsdp2 and pipeline save them."""
    learn(tmp_path / "whole", replace(SETTINGS, max_steps=5))
    weights = newest(str(tmp_path / "whole"))
    counts = torch.load(f"{weights.checkpoint}/progress.pt", weights_only=True)
    average = Average(weights.model, 0.9)
    for averaged in average.state()["average"]:
        averaged.add_(1)
    optimizer = torch.optim.SGD(weights.model.parameters())
    parts = named(weights.model).states(weights.model, optimizer, average)
    with FolderCheckpoints(tmp_path / "parts", 0, 1, in_background=False) as checkpoints:
        checkpoints.report({}, 5, {"progress.pt": counts, **parts})
    found = newest(str(tmp_path / "parts")).model
    for (name, own), trained in zip(
        found.named_parameters(), weights.model.parameters(), strict=True
    ):
        assert torch.equal(own, trained + 1), name


def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learn(tmp_path, replace(SETTINGS, max_steps=30, checkpoint_every_steps=20))
    file = max(tmp_path.glob("checkpoint_*")) / "model.pt"
    file.write_bytes(file.read_bytes()[:-1])
    assert newest(str(tmp_path)).made.step == 20
    assert f"{file.parent.name} is not used: model.pt has" in capsys.readouterr().out


def test_a_run_without_a_checkpoint_is_an_error_that_reports_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="give the directory that holds checkpoint_"):
        newest(str(tmp_path))
    with pytest.raises(SystemExit, match="--run-path is missing"):
        newest("")


def test_checkpoint_without_a_description_is_an_error(tmp_path: Path) -> None:
    learn(tmp_path, replace(SETTINGS, max_steps=5))
    newest_of_all = max(tmp_path.glob("checkpoint_*"))
    counts = torch.load(newest_of_all / "progress.pt", weights_only=True)
    del counts["made"]
    with FolderCheckpoints(tmp_path, 0, 1, in_background=False) as checkpoints:
        checkpoints.report({}, 6, {"progress.pt": counts, "model.pt": {}})
    with pytest.raises(SystemExit, match="does not describe the model"):
        newest(str(tmp_path))


def test_parts_that_are_not_all_there_are_an_error(tmp_path: Path) -> None:
    """torch raises this with something that is not an Exception."""
    learn(tmp_path, replace(SETTINGS, max_steps=5))
    weights = newest(str(tmp_path))
    counts = torch.load(f"{weights.checkpoint}/progress.pt", weights_only=True)
    tensors = {f"model/{name}": tensor for name, tensor in weights.model.state_dict().items()}
    parts = sharded.save(tensors | {STEPS: torch.tensor(5)})
    with FolderCheckpoints(tmp_path, 0, 1, in_background=False) as checkpoints:
        checkpoints.report({}, 6, {"progress.pt": counts, **parts})
    with pytest.raises(SystemExit, match=r"its parts cannot be read: .*average/"):
        newest(str(tmp_path))


def test_an_address_that_is_taken_or_answers_nothing_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=f"cannot listen on 127.0.0.1:{port}"):
            free("127.0.0.1", port)
        reached("127.0.0.1", port)
    free("127.0.0.1", port)
    with pytest.raises(SystemExit, match=f"nothing answers on 127.0.0.1:{port}"):
        reached("127.0.0.1", port)


@pytest.mark.slow
@pytest.mark.ray
def test_tokens_of_any_length_are_answered_together_as_each_alone() -> None:
    from training.serving.server import logits_of

    torch.manual_seed(0)
    weights = Weights("run/checkpoint", BYTES, BYTES.build().eval())
    asked_together = [torch.tensor([1, 2, 3]), torch.arange(16), torch.tensor([7])]
    together = logits_of(weights, asked_together, CPU)
    for tokens, logits in zip(asked_together, together, strict=True):
        (alone,) = logits_of(weights, [tokens], CPU)
        torch.testing.assert_close(logits, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.ray
def test_the_next_token_is_the_likeliest_or_drawn_from_a_seed() -> None:
    from training.serving.server import next_token

    logits = torch.linspace(0, 3, 32)

    def drawn(sampling: Sampling) -> list[int]:
        generator = torch.Generator().manual_seed(sampling.seed)
        return [int(next_token(logits, sampling, generator)) for _ in range(50)]

    assert set(drawn(Sampling())) == {31}
    assert set(drawn(Sampling(temperature=5.0, top_k=3))) == {29, 30, 31}
    assert set(drawn(Sampling(temperature=1e-300, top_k=3))) == {31}, "no float32"
    free = Sampling(temperature=5.0, seed=3)
    assert drawn(free) == drawn(free)
    assert drawn(free) != drawn(replace(free, seed=4))


@pytest.mark.slow
@pytest.mark.ray
def test_after_a_checkpoint_of_a_model_that_there_cannot_be_the_next_is_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.serving import server

    learn(tmp_path, replace(SETTINGS, max_steps=5))
    files = Path(newest(str(tmp_path)).checkpoint).glob("*.pt")
    states = {file.name: torch.load(file, weights_only=True) for file in files}
    counts = states["progress.pt"]
    cannot_be = {"made": counts["made"] | {"model": {"model": "gpt-tiny"}}}
    replica = server.Server(server.Serving(str(tmp_path), "false", 1, 0.0, poll_s=0.01))
    try:
        with FolderCheckpoints(tmp_path, 0, 1, in_background=False) as checkpoints:
            checkpoints.report({}, 6, states | {"progress.pt": counts | cannot_be})
            until(lambda: "is not used: gpt-tiny is" in capsys.readouterr().out, 10)
            checkpoints.report({}, 7, states | {"progress.pt": counts | {"step": 7}})
            until(lambda: replica._weights.made.step == 7, 10)
    finally:
        replica._ended.set()


def test_a_newer_checkpoint_that_cannot_be_loaded_once_is_tried_again() -> None:
    from training.serving import server

    weights = Weights("run/checkpoint_1", DIGITS, DIGITS.build())
    newer = replace(weights, checkpoint="run/checkpoint_2")
    replica = object.__new__(server.Server)
    replica._device, replica._weights, replica._poll_s = CPU, weights, 0.0
    replica._ended = Event()
    failed = torch.OutOfMemoryError("CUDA out of memory")
    found: Iterator[Exception | Weights] = iter([failed, newer])

    def newest(*_: object) -> Weights:
        item = next(found)
        if isinstance(item, Exception):
            raise item
        replica._ended.set()
        return item

    replica._run = Mock(newest=newest)
    replica._watch()
    assert replica._weights is newer


def test_checkpoint_of_another_kind_is_loaded_and_reported_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from training.serving import server

    weights = Weights("run/checkpoint_1", DIGITS, DIGITS.build())
    other = Weights("run/checkpoint_2", replace(DIGITS, classes=3), weights.model)
    replica = object.__new__(server.Server)
    replica._device, replica._weights, replica._poll_s = CPU, weights, 0.0
    replica._ended = Event()
    known: list[str] = []

    def newest(device: torch.device, unchanged: str) -> Weights | None:
        known.append(unchanged)
        if len(known) == 3:
            replica._ended.set()
        return None if unchanged == other.checkpoint else other

    replica._run = Mock(newest=newest)
    replica._watch()
    assert known == ["run/checkpoint_1", "run/checkpoint_2", "run/checkpoint_2"]
    assert capsys.readouterr().out.count("checkpoint_2 is not used: it is of another kind") == 1
    assert replica._weights is weights


@dataclass
class Server:
    process: subprocess.Popen[str]
    run: Path
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, **text: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/predict", json=text, timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Server]:
    run, log, port = cluster.directory / "run", cluster.directory / "serve.log", free_port()
    learn(run, SETTINGS)
    flags = {"run-path": run, "port": port, "replicas": 2, "poll-s": 0.2, "batch-wait-ms": 10}
    argv = [label for name, value in flags.items() for label in (f"--{name}", str(value))]
    process = subprocess.Popen(
        [sys.executable, "-m", "training.jobs.serve", *argv],
        cwd=ROOT,
        env=cluster.environment,
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until(lambda: "answers at http://" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()[-4000:]
        yield Server(process, run, port, log)
    finally:
        process.kill()
        process.wait()


def until(holds: Callable[[], bool], limit_s: float = 900.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.ray
def test_many_requests_at_once_are_answered_as_the_model_does(server: Server) -> None:
    weights = newest(str(server.run))
    images, _ = digits.load().held_out.batch(np.arange(32), None)
    with torch.inference_mode():
        expected = weights.model(images).softmax(dim=1)
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda image: server.ask(image=image.tolist()), images))
    for answer, probabilities in zip(answers, expected, strict=True):
        assert answer.status_code == 200, answer.text
        text = answer.json()
        # Sums are rounded in another order in batches of another size.
        assert text["probabilities"] == pytest.approx(probabilities.tolist(), abs=1e-5)
        assert text["class"] == int(probabilities.argmax())
        assert text["step"] == 30


@pytest.mark.slow
@pytest.mark.ray
def test_info_and_health_are_served(server: Server) -> None:
    about = httpx.get(f"{server.url}/info", timeout=TIMEOUT_S).json()
    assert about["model"] == "convnet"
    assert about["shape"] == [1, 8, 8]
    assert about["predict"] == '{"image": nested lists of 1x8x8 numbers}'
    well = httpx.get(f"{server.url}/healthz", timeout=TIMEOUT_S).json()
    assert well == {"ok": True, "checkpoint": about["checkpoint"], "step": about["step"]}


@pytest.mark.slow
@pytest.mark.ray
def test_a_bad_request_has_the_status_that_is_due_and_a_sentence(server: Server) -> None:
    garbage = httpx.post(f"{server.url}/predict", content=b"{", timeout=TIMEOUT_S)
    assert (garbage.status_code, garbage.json()) == (400, {"error": "the body is not JSON"})
    large = httpx.post(
        f"{server.url}/predict", content=b" " * (largest_bytes(DIGITS) + 1), timeout=TIMEOUT_S
    )
    assert large.status_code == 413
    assert "larger than 67584 bytes" in large.json()["error"]
    assert httpx.get(f"{server.url}/predict", timeout=TIMEOUT_S).status_code == 405
    assert httpx.get(f"{server.url}/other", timeout=TIMEOUT_S).status_code == 404
    assert server.ask(image=BLACK).status_code == 200


@pytest.mark.slow
@pytest.mark.ray
def test_a_newer_checkpoint_is_taken_on_and_no_request_is_dropped(server: Server) -> None:
    assert server.ask(image=BLACK).json()["step"] == 30
    learn(server.run, replace(SETTINGS, max_steps=40))
    answers: list[httpx.Response] = []

    def taken_on() -> bool:
        answers.append(server.ask(image=BLACK))
        newest = answers[-10:]
        return len(newest) == 10 and all(answer.json().get("step") == 40 for answer in newest)

    until(taken_on)
    assert {answer.status_code for answer in answers} == {200}


@pytest.mark.slow
@pytest.mark.ray
def test_stopped_server_answers_active_requests_and_leaves_no_process(
    server: Server, cluster: Cluster
) -> None:
    """The last one: it ends the server of this module."""
    replicas = [title for title in serving(cluster) if "ServeReplica" in title]
    assert len(replicas) == 2
    with ThreadPoolExecutor(8) as clients:
        asked_before = [clients.submit(server.ask, image=BLACK) for _ in range(8)]
        until(lambda: any(answer.done() for answer in asked_before))
        server.process.send_signal(signal.SIGTERM)
        statuses = [answer.result().status_code for answer in asked_before]
    # On a busy machine, one that arrives after the signal finds no application: 404.
    assert set(statuses) <= {200, 404}
    assert statuses.count(200) >= 1
    assert server.process.wait(300) == 0, server.log.read_text()[-4000:]
    until(lambda: not serving(cluster))
    with socket.socket() as there:
        assert there.connect_ex(("127.0.0.1", server.port)) != 0


def serving(cluster: Cluster) -> list[str]:
    """The names of Ray Serve's processes on this cluster, which all have its token."""
    token = cluster.environment["RAY_AUTH_TOKEN_PATH"].encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            title = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if token in (process / "environ").read_bytes() and title.startswith("ray::"):
                found.append(title)
    return [title for title in found if "Serve" in title or "Proxy" in title]


@pytest.mark.nightly  # with images: tests/launch/test_jobs_on_local.py
@pytest.mark.slow
@pytest.mark.ray
def test_the_check_asks_a_language_model_too_and_ends(cluster: Cluster, tmp_path: Path) -> None:
    settings = replace(
        SETTINGS,
        data="synthetic-tokens",
        model="gpt-tiny",
        vocabulary=32,
        sequence_length=16,
        examples=256,
        max_steps=5,
    )
    learn(tmp_path, settings)
    argv = ["--run-path", str(tmp_path), "--port", str(free_port()), "--check", "24"]
    outcome = drive(cluster, ["-m", "training.jobs.serve", *argv])
    assert outcome.code == 0, outcome.output[-4000:]
    assert "checked 24 examples: accuracy 0." in outcome.output
