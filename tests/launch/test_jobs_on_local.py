"""Bundled jobs, launched by cockpit on a real local cluster whose CPUs are all used by ranks.

Those that no other test launches; `python -m tests.bench.methods` launches all that train.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.backends.local import GroupSpec, LocalBackend
from cockpit.model.cluster import Pod, Resources
from cockpit.model.run import RunState
from cockpit.session import builder
from tests.launch.jobs import MLP, SEARCH, TRAINING, TWO, ended, launch
from tests.local_cluster import running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.ray]

WHERE = ("--local", "--cluster", "jobs")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBackend]:
    with running_cluster("jobs", [GroupSpec("workers", replicas=2, min=0, max=2)]) as backend:
        yield backend


@pytest.mark.parametrize(
    "job",
    [
        "fsdp2",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("pipeline", "ray_data")),
    ],
)
def test_a_job_that_trains_leaves_a_run_and_a_checkpoint(
    cluster: LocalBackend, tmp_path: Path, job: str
) -> None:
    settings = TRAINING[job] | {"storage_path": str(tmp_path), "run_name": f"a-{job}"}
    assert launch(job, settings, *WHERE) == 0
    run = ended(cluster, f"a-{job}")
    assert run.state is RunState.FINISHED
    assert len(run.ranks) == int(TRAINING[job]["workers"])
    assert {rank.steps for rank in run.ranks.values()} == {int(TRAINING[job]["max_steps"])}
    assert Path(run.checkpoints[-1][1].path).parent == tmp_path / f"a-{job}"


@pytest.mark.nightly  # tests/training/test_tune_job.py
def test_tune_searches(
    cluster: LocalBackend, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    storage = {"storage_path": str(tmp_path), "run_name": "search"}
    assert launch("tune", SEARCH | storage, *WHERE) == 0
    assert (tmp_path / "search" / "best.json").exists(), capfd.readouterr().out


@pytest.mark.nightly  # tests/training/test_serve.py
def test_serve_answers_from_what_ddp_has_saved(
    cluster: LocalBackend, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    storage = {"storage_path": str(tmp_path), "run_name": "served"}
    assert launch("ddp", MLP | TWO | storage, *WHERE) == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    serving = {"run_path": str(tmp_path / "served"), "port": port, "check": "20"}
    assert launch("serve", serving, *WHERE) == 0
    assert re.search(r"\b20\b", capfd.readouterr().out)


@pytest.mark.nightly  # tests/training/test_bench_run.py
def test_benchmark_reports(cluster: LocalBackend, tmp_path: Path) -> None:
    asked = {"what": "checkpoints", "quick": "true", "gpu": "false", "workers": "2"}
    storage = {"storage_path": str(tmp_path), "run_name": "report"}
    assert launch("benchmark", asked | storage, *WHERE) == 0
    assert (tmp_path / "report" / "report.md").read_text()


@pytest.mark.nightly  # what Ray is asked for: tests/training/test_fit.py
def test_ranks_run_on_nodes_of_the_label_and_each_on_another_one_if_asked(tmp_path: Path) -> None:
    two = Resources(cpus=2)
    groups = [GroupSpec("other", replicas=1, resources=two),
              GroupSpec("wanted", replicas=2, resources=two)]  # fmt: skip
    with running_cluster("placed", groups) as backend:
        groups_of = {pod.ip: pod.group for pod in pods(backend, 4)}
        nodes = {}
        for placement in ("pack", "strict_spread"):
            asked = {"placement": placement, "label_selector": "ray.io/group=wanted"}
            storage = {"storage_path": str(tmp_path), "run_name": placement}
            where = ("--local", "--cluster", "placed")
            assert launch("ddp", MLP | TWO | asked | storage, *where) == 0
            ranks = ended(backend, placement).ranks.values()
            nodes[placement] = {rank.placement.node_ip for rank in ranks if rank.placement}
        assert {placement: len(found) for placement, found in nodes.items()} == {
            "pack": 1,
            "strict_spread": 2,
        }
        assert {groups_of[ip] for found in nodes.values() for ip in found} == {"wanted"}


def pods(backend: LocalBackend, count: int) -> list[Pod]:
    with builder.session_on(backend) as session:
        assert session.wait(lambda store: len(store.pods) == count, 60.0), session.store.pods
        return list(session.store.pods.values())


def test_deepspeed_reports_what_it_lacks(
    cluster: LocalBackend, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        launch("deepspeed", MLP | TWO | {"storage_path": str(tmp_path)}, "--no-preflight", *WHERE)
        == 1
    )
    assert "pip install 'cockpit[deepspeed]'" in capfd.readouterr().out
