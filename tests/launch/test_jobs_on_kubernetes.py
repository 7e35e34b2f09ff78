"""Jobs on a real RayCluster on Kubernetes, launched by cockpit's own verb."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cockpit.cli.main import main
from cockpit.model.run import RunState
from tests.cluster.fixtures import RealCluster
from tests.cluster.raycluster import STORAGE
from tests.launch.jobs import SEARCH, TRAINING, ended, launch

pytestmark = [pytest.mark.slow, pytest.mark.ray]


@pytest.fixture(scope="module")
def where(ray_on_kubernetes: RealCluster) -> Iterator[tuple[str, ...]]:
    """The cluster with a second worker; the flags that select it."""
    ref = ray_on_kubernetes.ref
    where = ("-n", ref.namespace, "--cluster", ref.name, "--context", ref.context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(ray_on_kubernetes.kubeconfig))
        assert main(["scale", "gpu", "2", "--yes", *where]) == 0
        ray_on_kubernetes.wait_ready(2)
        yield where
        assert main(["scale", "gpu", "1", "--yes", *where]) == 0
        ray_on_kubernetes.wait_ready(1)


@pytest.mark.nightly  # on a local cluster: tests/launch/test_jobs_on_local.py
@pytest.mark.parametrize("job", ["fsdp2", "ddp", "elastic"])
def test_two_pods_train(where: tuple[str, ...], ray_on_kubernetes: RealCluster, job: str) -> None:
    storage = {"storage_path": f"{STORAGE}/jobs", "run_name": f"on-{job}"}
    assert launch(job, TRAINING[job] | storage, *where) == 0
    run = ended(ray_on_kubernetes.backend(), f"on-{job}")
    assert run.state is RunState.FINISHED
    places = [rank.placement for rank in run.ranks.values()]
    assert len({place.node_ip for place in places if place is not None}) == 2
    shared = ray_on_kubernetes.testbed.plane.space.folder / "shared"
    assert run.checkpoint is not None
    assert (shared / run.checkpoint.path.removeprefix(f"{STORAGE}/")).is_dir()


@pytest.mark.nightly  # on a local cluster: tests/launch/test_jobs_on_local.py
def test_tune_searches_on_pods(where: tuple[str, ...], ray_on_kubernetes: RealCluster) -> None:
    storage = {"storage_path": f"{STORAGE}/jobs", "run_name": "search"}
    assert launch("tune", SEARCH | storage, *where) == 0
    shared = ray_on_kubernetes.testbed.plane.space.folder / "shared"
    assert (shared / "jobs" / "search" / "best.json").exists()
