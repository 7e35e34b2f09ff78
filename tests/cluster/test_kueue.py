"""Jobs in a queue of the real Kueue, from a full quota to pods that run, by cockpit's verbs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cockpit.cli.main import main
from tests.cluster import kueue, kwok
from tests.cluster.fixtures import need_nightly
from tests.cluster.testbed import Testbed

NAMESPACE = "ml"
QUEUE, CLUSTER_QUEUE = "team-a", "training"
CPUS = 5
"""Of the quota. A job's cluster of the overlay `cpu` asks for 3: a head and two workers."""
WAIT_S = 60.0

# What cockpit shows of the same objects: tests/backends/kuberay/test_queue_watch.py.
pytestmark = pytest.mark.nightly


@dataclass(frozen=True)
class Team:
    """A user of the cluster `demo`, which is in no queue and is the pattern of the jobs' ones."""

    testbed: Testbed
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str, code: int = 0) -> str:
        """What it printed."""
        where = ("--kubeconfig", str(self.testbed.kubeconfig), "-n", NAMESPACE, "--cluster", "demo")
        self.capsys.readouterr()
        returned = main([*words, *where])
        out, errors = self.capsys.readouterr()
        assert returned == code, errors
        return out

    def launch(self) -> str:
        """The name of a RayJob with its own cluster in the queue."""
        launched = ("launch", "checkpointed", "--via", "rayjob", "--own-cluster", "--yes")
        return self.run(*launched, "--no-preflight", "--queue", QUEUE).split()[-1]

    def why(self, job: str) -> dict[str, Any]:
        """The chain of the job, with its links by stage."""
        found: dict[str, Any] = json.loads(self.run("why", f"job/{job}", "-o", "json"))
        return {**found, "links": {link["stage"]: link for link in found["links"]}}

    def wait(self, job: str, stage: str, state: str) -> dict[str, Any]:
        """The chain once the stage has the state."""
        deadline = time.monotonic() + WAIT_S
        while True:
            found = self.why(job)
            if found["links"].get(stage, {}).get("state") == state:
                return found
            assert time.monotonic() < deadline, (found, self.testbed.plane.space.said("kueue", 30))
            time.sleep(0.5)


@pytest.fixture(scope="module")
def testbed(programs: None) -> Iterator[Testbed]:
    need_nightly("kueue")
    # Kueue compares the pods of a job with those of its Workload, whose definition sets defaults:
    # with definitions that set none, it deletes each Workload that it has created.
    made = Testbed.up(simulated=True, operator=True, aggregated=True, real_definitions=True)
    try:
        kueue.start(made.plane)
        kwok.add_nodes(made.plane, 2, tainted=False)
        kueue.queue(made.plane, made.namespace(NAMESPACE), QUEUE, CPUS, cluster_queue=CLUSTER_QUEUE)
        yield made
        ended = made.plane.space.ended()
    finally:
        made.down()
    assert not ended


def test_jobs_wait_for_the_quota_in_order_and_run_when_it_is_free(
    testbed: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    team = Team(testbed, capsys)
    team.run(
        *("up", "--on", "kubernetes", "--overlay", "cpu", "--without", "namespace"),
        *("--host-path", "/shared", "--yes"),
    )
    first = team.launch()
    team.wait(first, "ready", "done")

    second = team.launch()
    summary = f"queued 1st in {QUEUE}: 3 of {CPUS} CPUs in use"
    assert team.wait(second, "quota", "blocking")["summary"] == summary
    third = team.launch()
    behind = f"queued 2nd in {QUEUE}: 3 of {CPUS} CPUs in use"
    assert team.wait(third, "quota", "blocking")["summary"] == behind
    links = team.why(second)["links"]
    assert links["queue"]["text"] == f"In LocalQueue {QUEUE} of ClusterQueue {CLUSTER_QUEUE}."
    # By Kueue's visibility API: one that cockpit computes is marked so.
    position = f"1st of 2 waiting in ClusterQueue {CLUSTER_QUEUE}, priority 10000."
    assert links["position"]["text"] == position
    quota = f"3 of {CPUS} CPUs in use, it asks for 3 CPUs (flavor default)."
    assert links["quota"]["text"] == quota
    assert summary in team.run("why", f"job/{second}")
    waiting = {job["rayjob"]: job["status"] for job in json.loads(team.run("jobs", "-o", "json"))}
    assert (waiting[second], waiting[third]) == ("PENDING", "PENDING")

    team.run("delete", first, "--yes")
    cleared = team.wait(second, "ready", "done")
    assert cleared["summary"] == ""
    assert {link["state"] for link in cleared["links"].values()} == {"done"}
    assert team.wait(third, "quota", "blocking")["summary"] == summary
