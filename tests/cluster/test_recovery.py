"""End to end: a real run on real pods loses one of them, and recovers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cockpit.cli.main import main
from cockpit.session import builder
from tests.cluster.fixtures import RealCluster
from tests.cluster.raycluster import STORAGE
from tests.local_cluster import LIGHT_FLAGS

Cockpit = Callable[..., Any]
START_TIMEOUT_S = 150.0


@pytest.fixture
def cockpit(
    ray_on_kubernetes: RealCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Cockpit:
    """A verb on the cluster; what it prints, decoded."""
    ref = ray_on_kubernetes.ref
    monkeypatch.setenv("KUBECONFIG", str(ray_on_kubernetes.kubeconfig))

    def run(*argv: str) -> Any:
        where = ("-n", ref.namespace, "--cluster", ref.name, "--context", ref.context)
        code = main([*argv, *where])
        out, errors = capsys.readouterr()
        assert code == 0, errors
        return json.loads(out) if "json" in argv else out

    return run


@pytest.fixture
def two_workers(ray_on_kubernetes: RealCluster, cockpit: Cockpit) -> Iterator[None]:
    cockpit("scale", "gpu", "2", "--yes")
    ray_on_kubernetes.wait_ready(2)
    yield
    cockpit("scale", "gpu", "1", "--yes")
    ray_on_kubernetes.wait_ready(1)


@pytest.mark.ray
@pytest.mark.timed
@pytest.mark.usefixtures("two_workers")
def test_a_run_recovers_from_the_kill_of_a_worker_pod(
    ray_on_kubernetes: RealCluster, cockpit: Cockpit
) -> None:
    job = cockpit(
        *("launch", "checkpointed", "--workers", "2", "--yes"),
        *LIGHT_FLAGS,
        f"--set=storage_path={STORAGE}/runs",
    ).split()[-1]
    try:
        _wait_for_checkpoint(ray_on_kubernetes)
        before = {pod["metadata"]["name"] for pod in ray_on_kubernetes.pods()}
        recovery = cockpit("kill", "1", "--yes", "-o", "json")
        assert recovery["recovered"]
        assert recovery["first_step_s"] < 120
        assert recovery["steps_lost"] is not None
        after = {pod["metadata"]["name"] for pod in ray_on_kubernetes.pods()}
        [replacement] = after - before
        # Its fork server began to import while Ray started.
        assert _has_process(ray_on_kubernetes, replacement, "training.recovery.early_imports")
        assert not _has_process(ray_on_kubernetes, replacement, "forkserver --serve")
    finally:
        cockpit("stop", job, "--yes")


def _has_process(cluster: RealCluster, pod: str, command: str) -> bool:
    with builder.session_on(cluster.backend()) as session:
        done = session.call(session.backend.exec(pod, ("pgrep", "-f", command)), START_TIMEOUT_S)
    return done.exit_code == 0


def _wait_for_checkpoint(cluster: RealCluster) -> None:
    """Until the run has made steps and has a checkpoint to resume from."""
    with builder.session_on(cluster.backend()) as session:
        found = session.wait(
            lambda store: any(run.checkpoints for run in store.runs.values()), START_TIMEOUT_S
        )
        assert found, f"no checkpoint in {START_TIMEOUT_S:g} s: {session.store.sources}"
