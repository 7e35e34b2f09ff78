"""The application of the RayService, deployed on a real Ray as KubeRay does: over the dashboard."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cockpit.backends.local import GroupSpec, LocalBackend
from cockpit.model.serve import Deployment
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import AnswerError, Http
from tests.local_cluster import running_cluster
from tests.manifests.kustomize import FOLDER
from tests.sources.prometheus_server import free_port
from tests.training.test_serve import BLACK, SETTINGS, learn

PATH = "/api/serve/applications/"
READY_S = 180.0


def config(run: Path, port: int) -> dict[str, Any]:
    """`serveConfigV2` of the manifest, for a run and an address of this host.

    The nodes of a local cluster share its ports, so that only the head has a proxy.
    """
    manifest = yaml.safe_load((FOLDER / "service" / "rayservice.yaml").read_text())
    made: dict[str, Any] = yaml.safe_load(manifest["spec"]["serveConfigV2"])
    [application] = made["applications"]
    assert application["args"]["run_path"] == f"$STORAGE_PATH/{run.name}"
    application["runtime_env"] = {"env_vars": {"STORAGE_PATH": str(run.parent)}}
    address = {"host": "127.0.0.1", "port": port}
    return {**made, "proxy_location": "HeadOnly", "http_options": address}


async def deployed(backend: LocalBackend, wanted: dict[str, Any]) -> tuple[Deployment, ...]:
    """The deployments once all are healthy, or when the time is over."""
    async with Http(backend.dashboard) as http, Dashboard(backend.dashboard) as dashboard:
        deadline = time.monotonic() + READY_S
        await sent(http, json.dumps(wanted).encode(), deadline)
        while True:
            found = await dashboard.deployments()
            healthy = found and all(each.status == "HEALTHY" for each in found)
            if healthy or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.2)


async def sent(http: Http, body: bytes, deadline: float) -> None:
    """Send it again after an error of the dashboard, as KubeRay does at each reconciliation.

    On a busy machine, the first actor of a new cluster may be cancelled before it starts.
    """
    while True:
        try:
            await http.fetch("PUT", PATH, body=body, timeout_s=READY_S)
            return
        except AnswerError as error:
            if error.status < 500 or time.monotonic() > deadline:
                raise
        await asyncio.sleep(1.0)


@pytest.mark.nightly
@pytest.mark.ray
def test_config_of_the_rayservice_serves_the_newest_checkpoint_of_a_run(tmp_path: Path) -> None:
    run = tmp_path / "checkpointed"
    learn(run, SETTINGS)
    port = free_port()
    with running_cluster("served", (GroupSpec("replicas", replicas=1, min=1, max=1),)) as backend:
        found = asyncio.run(deployed(backend, config(run, port)))
        assert [(each.app, each.status, each.target) for each in found] == [
            ("model", "HEALTHY", 1)
        ], found
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}/info", timeout=30).json()["model"] == "convnet"
        answer = httpx.post(f"{url}/predict", json={"image": BLACK}, timeout=30)
        assert answer.status_code == 200, answer.text
        assert answer.json()["step"] == SETTINGS.max_steps
