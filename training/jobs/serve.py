"""Serve a run's newest checkpoint over HTTP, with Ray Serve, until it is stopped.

    python -m training.jobs.serve --run-path ~/ray_results/checkpointed-20261121-180000
    python -m training.jobs.serve --run-path models:/digits@best

The second form serves a model version of MLflow's registry, and follows the alias.

`GET /info` describes the input of `POST /predict`, and `GET /healthz` the checkpoint in use. The
checkpoint describes its model and data. A newer checkpoint is loaded while requests are served.
`--check 200` sends held-out examples over HTTP, prints the results, and ends.
"""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import torch

from training.data import load
from training.jobs import job, missing_resources
from training.serving.check import check
from training.serving.registry import source
from training.serving.weights import Weights
from training.settings import parse, setting
from training.stop import Stop

APPLICATION = "model"
ANSWERS_S = 10.0


@dataclass(frozen=True)
class Settings:
    """Serve"""

    run_path: str = setting(
        "",
        "directory of the run whose newest checkpoint is served, or a model of MLflow, such as "
        "models:/NAME@ALIAS; required",
    )
    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0: all interfaces of the head")
    port: int = setting(8000, "port to listen on", at_least=1, at_most=65535)
    replicas: int = setting(1, "number of serving processes, one CPU or GPU each", at_least=1)
    gpu: str = setting(
        "auto", "use GPUs; auto: if there is one for each replica", ("auto", "true", "false")
    )
    max_batch: int = setting(32, "maximum number of requests in a batch", at_least=1)
    batch_wait_ms: float = setting(
        2.0, "milliseconds that a request waits for its batch to fill", at_least=0
    )
    poll_s: float = setting(10.0, "seconds between checks for a newer checkpoint", at_least=0.1)
    drain_s: float = setting(20.0, "seconds to finish active requests at the end", at_least=0)
    check: int = setting(
        0, "number of held-out examples to send before ending; 0: serve until stopped", at_least=0
    )
    at_once: int = setting(8, "check: number of simultaneous requests", at_least=1)
    when_lacking: str = setting(
        "wait", "wait or fail if the cluster lacks resources for all replicas", ("wait", "fail")
    )


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.serve", job("serve").summary)
    try:
        run(settings, newest(settings.run_path))
    except Stop as why:
        raise SystemExit(f"stopped: {why}") from None


def newest(run_path: str) -> Weights:
    """Exits if there is nothing to serve, before anything is started."""
    if not run_path:
        raise SystemExit(
            "--run-path is missing: the directory of a run, with its checkpoints, or models:/…"
        )
    try:
        weights = source(run_path).newest(torch.device("cpu"))
    except Stop as why:
        raise SystemExit(f"the model of {run_path} cannot be served: {why}") from None
    if weights is None:
        raise SystemExit(
            f"no checkpoint in {run_path} is whole: give the directory that holds checkpoint_…, "
            "seen by all nodes"
        )
    return weights


def run(settings: Settings, weights: Weights) -> None:
    import ray
    from ray import serve

    if not ray.is_initialized():
        ray.init()
    stopped = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    takes = missing_resources.found(
        settings.gpu, settings.replicas, settings.when_lacking, of="replicas"
    ).resource
    if not serve.status().proxies:
        free(settings.host, settings.port)

    serve.start(
        proxy_location="HeadOnly", http_options={"host": settings.host, "port": settings.port}
    )
    try:
        serve.run(application(settings, gpu=takes == "GPU"), name=APPLICATION)
        reached(settings.host, settings.port)
        made = weights.made
        print(
            f"{made.model.model} of {weights.name} (step {made.step}) answers at "
            f"http://{settings.host}:{settings.port}/predict",
            flush=True,
        )
        if settings.check:
            held_out = load(made.data)
            done = check(settings.host, settings.port, held_out, settings.check, settings.at_once)
            print(done, flush=True)
        else:
            stopped.wait()
            print("stopped: requests that are under way are answered first", flush=True)
    finally:
        serve.delete(APPLICATION)
        if not serve.status().applications:
            serve.shutdown()


def build(arguments: dict[str, Any]) -> Any:
    """The application of a RayService: `arguments` are settings, and `gpu` is `true` or `false`.

    `run_path` may contain variables of the pods, such as `$STORAGE_PATH`. Raises ValueError for one
    that is not set. KubeRay starts Ray Serve, with the address in `serveConfigV2`.
    """
    settings = Settings(**arguments)
    run_path = os.path.expandvars(settings.run_path)
    if "$" in run_path:
        raise ValueError(f"run_path {settings.run_path}: the pods have no such variable")
    settings = replace(settings, run_path=run_path)
    return application(settings, gpu=settings.gpu == "true")


def application(settings: Settings, *, gpu: bool) -> Any:
    from ray import serve

    from training.serving.server import Server, Serving

    serving = Serving(
        settings.run_path,
        "true" if gpu else "false",
        settings.max_batch,
        settings.batch_wait_ms / 1e3,
        settings.poll_s,
        os.environ.get("MLFLOW_TRACKING_URI", ""),
    )
    deployment: Any = serve.deployment(Server).options(
        name="Server",
        num_replicas=settings.replicas,
        max_ongoing_requests=4 * settings.max_batch,
        graceful_shutdown_timeout_s=settings.drain_s,
        ray_actor_options={"num_cpus": 1, "num_gpus": int(gpu)},
    )
    return deployment.bind(serving)


def free(host: str, port: int) -> None:
    """Exits if another process listens there."""
    with socket.socket() as there:
        there.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            there.bind((host, port))
        except OSError as error:
            raise SystemExit(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another --port"
            ) from None


def reached(host: str, port: int) -> None:
    """Exits if Serve was already running: it keeps its first address."""
    try:
        socket.create_connection((host, port), timeout=ANSWERS_S).close()
    except OSError as error:
        raise SystemExit(
            f"nothing answers on {host}:{port} ({error}): Ray Serve was running on this cluster "
            "before, with another address; give that as --host and --port, or end it first"
        ) from None


if __name__ == "__main__":
    main()
