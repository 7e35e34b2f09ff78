"""RayJobs under the fake operator: a real API server and its service proxy, a simulated cluster.

The dashboard is simulated as well; it listens at the address of the head pod.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from cockpit.actions.drills import DrillActions
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import read
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.cli.drill.progress import kill
from cockpit.drills.plan.kill import plan_kill
from cockpit.model.cluster import ClusterRef
from cockpit.model.drill import Recovery
from cockpit.session.builder import session_on
from cockpit.session.session import Session
from tests.cluster.operator.api import Api
from tests.cluster.operator.operator import run
from tests.cluster.testbed import Testbed
from tests.sources.fake_dashboard import job, node
from training.telemetry import wire

Object = dict[str, Any]
TEMPLATE = {"spec": {"schedulerName": "nobody", "containers": [{"name": "ray", "image": "ray"}]}}
CLUSTER = {
    "rayVersion": "2.60.0",
    "authOptions": {"mode": "token"},
    "headGroupSpec": {"template": TEMPLATE},
}


class FakeDashboard:
    """The submitted jobs, and the responses about them."""

    def __init__(self, address: str) -> None:
        self.jobs: dict[str, Object] = {}
        self.tokens: set[str] = set()
        self.stopped: list[str] = []
        self.outcome = {"status": "RUNNING", "message": "", "start_time": 1767225600000}
        self.failed: set[str] = set()
        """Jobs with another outcome."""
        self.head = ""
        """The id of the head node."""
        self.stream = ""
        """The telemetry on it."""
        dashboard = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                name = path.rsplit("/", 1)[1]
                asked = parse_qs(query).get("node_id", [dashboard.head])
                if asked != [dashboard.head]:  # as Ray answers for a node of another cluster
                    self._answer(500, f"Agent for node id: {asked[0]} doesn't exist.")
                    return
                if not (path.startswith("/api/jobs/") and name):
                    self._answer(200, dashboard.of_ray(path))
                    return
                found = name in dashboard.jobs
                self._answer(200 if found else 404, dashboard.outcome_of(name) if found else {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path.endswith("/stop"):
                    dashboard.stopped.append(self.path.split("/")[-2])
                else:
                    request = json.loads(body)
                    dashboard.jobs[request["submission_id"]] = request
                self._answer(200, {"stopped": True})

            def _answer(self, status: int, text: Object | str) -> None:
                dashboard.tokens.add(self.headers.get("X-Ray-Authorization", ""))
                content = (text if isinstance(text, str) else json.dumps(text)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer((address, 8265), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def outcome_of(self, job_id: str) -> Object:
        failed = {"status": "FAILED", "message": "exit 1"} if job_id in self.failed else {}
        return self.outcome | failed

    def of_ray(self, path: str) -> str:
        """What cockpit asks for besides one job."""
        if path in ("/api/v0/logs/stream", "/api/v0/logs/file"):
            return self.stream
        files = ["cockpit/telemetry-01000000.jsonl"] if self.stream else []
        listed = [job(one, self.outcome_of(one)["status"]) for one in list(self.jobs)[-1:]]
        found = {
            "/nodes": {"data": {"summary": [node(self.head)]}},
            "/api/jobs/": listed,
            "/api/v0/logs": {"data": {"result": {"internal": files}}},
            "/api/v0/workers": {"data": {"result": {"result": []}}},
        }
        return json.dumps(found.get(path, {"ray_version": "2.60.0", "session_name": "s"}))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Place:
    """A namespace with the operator at work."""

    def __init__(self, api: Api, namespace: str, address: str, dashboard: FakeDashboard) -> None:
        self.api = api
        self.namespace = namespace
        self.dashboard = dashboard
        self._address = address

    def path(self, kind: str, name: str = "") -> str:
        group = "/api/v1" if kind in ("pods", "secrets") else "/apis/ray.io/v1"
        return f"{group}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    async def submit(self, name: str, **spec: Any) -> None:
        body = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}}
        spec = {"entrypoint": "python train.py", "submissionMode": "HTTPMode", **spec}
        await self.api.create(self.path("rayjobs"), {**body, "spec": spec})

    async def create_cluster(self, name: str) -> None:
        body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name}}
        await self.api.create(self.path("rayclusters"), {**body, "spec": CLUSTER})

    async def start_heads(self) -> list[str]:
        """Every pod is Running and Ready, at the dashboard's address. Their clusters."""
        found = []
        for pod in (await self.api.get(self.path("pods")))["items"]:
            status = {
                "phase": "Running",
                "podIP": self._address,
                "podIPs": [{"ip": self._address}],
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            name = pod["metadata"]["name"]
            path = self.path("pods", name)
            if "nodeName" not in pod["spec"]:
                # No endpoint is made of a pod without a node.
                binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "played"}}
                await self.api.create(f"{path}/binding", binding)
                await self.api.merge(f"{path}/status", {"status": status})
            found.append(pod["metadata"]["labels"]["ray.io/cluster"])
        return found

    async def status(self, name: str) -> Object:
        found: Object = (await self.api.get(self.path("rayjobs", name))).get("status", {})
        return found

    async def becomes(self, name: str, state: str, timeout_s: float = 30) -> Object:
        """The RayJob's status once it is in that state; pods are started at the same time."""
        deadline = time.monotonic() + timeout_s
        while True:
            await self.start_heads()
            status = await self.status(name)
            if status.get("jobDeploymentStatus") == state:
                return status
            assert time.monotonic() < deadline, f"not {state}: {status}"
            await asyncio.sleep(0.1)

    async def until(self, holds: Callable[[], bool], timeout_s: float = 20) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, "it did not happen"
            await asyncio.sleep(0.05)

    async def gone(self, kind: str, name: str, timeout_s: float = 20) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            items = (await self.api.get(self.path(kind)))["items"]
            if name not in [item["metadata"]["name"] for item in items]:
                return
            assert time.monotonic() < deadline, f"{name} is still there"
            await asyncio.sleep(0.1)

    async def clusters(self) -> list[str]:
        items = (await self.api.get(self.path("rayclusters")))["items"]
        return [item["metadata"]["name"] for item in items]


@pytest.fixture
def address(control_plane: Testbed) -> str:
    """This machine's, as the API server reaches it."""
    return control_plane.plane.space.host


@pytest.fixture
def dashboard(address: str) -> Iterator[FakeDashboard]:
    replayed = FakeDashboard(address)
    yield replayed
    replayed.close()


@pytest.fixture
async def place(
    control_plane: Testbed, address: str, dashboard: FakeDashboard, request: pytest.FixtureRequest
) -> AsyncIterator[Place]:
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50].strip("-")
    namespace = control_plane.namespace(name)
    api = Api(control_plane.kubeconfig)
    operator = asyncio.create_task(run(Path(control_plane.kubeconfig), namespace))
    yield Place(api, namespace, address, dashboard)
    operator.cancel()
    await asyncio.gather(operator, return_exceptions=True)
    await api.delete(f"/api/v1/namespaces/{namespace}")
    await api.aclose()


async def test_a_job_runs_on_a_cluster_of_its_own_which_goes_when_its_time_is_over(
    place: Place,
) -> None:
    await place.submit(
        "train",
        rayClusterSpec=CLUSTER,
        jobId="train-1",
        runtimeEnvYAML="env_vars:\n  A: b\n",
        metadata={"who": "me"},
        shutdownAfterJobFinishes=True,
        ttlSecondsAfterFinished=1,
    )
    status = await place.becomes("train", "Running")
    # As by the real operator in HTTPMode: Running precedes the submission, and Ray's response
    # follows.
    assert "train-1" not in place.dashboard.jobs
    assert "jobStatus" not in status
    await place.until(lambda: "train-1" in place.dashboard.jobs)
    assert place.dashboard.jobs["train-1"] == {
        "entrypoint": "python train.py",
        "submission_id": "train-1",
        "runtime_env": {"env_vars": {"A": "b"}},
        "metadata": {"who": "me"},
    }
    cluster = await place.api.get(place.path("rayclusters", status["rayClusterName"]))
    assert cluster["metadata"]["labels"]["ray.io/originated-from-cr-name"] == "train"
    secret = await place.api.get(place.path("secrets", status["rayClusterName"]))
    token = base64.b64decode(secret["data"]["auth_token"]).decode()
    assert place.dashboard.tokens == {f"Bearer {token}"}

    place.dashboard.outcome |= {"status": "SUCCEEDED", "message": "done", "end_time": 1767225660000}
    status = await place.becomes("train", "Complete")
    assert (status["jobStatus"], status["succeeded"], status["failed"]) == ("SUCCEEDED", 1, 0)
    assert status["rayJobInfo"]["endTime"] == "2026-01-01T00:01:00Z"
    await place.gone("rayclusters", status["rayClusterName"])
    assert (await place.status("train"))["jobDeploymentStatus"] == "Complete"


async def test_a_job_on_an_existing_cluster_leaves_it_alone_and_is_stopped_when_deleted(
    place: Place,
) -> None:
    await place.create_cluster("demo")
    await place.submit("train", clusterSelector={"ray.io/cluster": "demo"})
    status = await place.becomes("train", "Running")
    await place.until(lambda: status["jobId"] in place.dashboard.jobs)
    await place.api.delete(place.path("rayjobs", "train"))
    await place.until(lambda: place.dashboard.stopped == [status["jobId"]])
    await place.gone("rayjobs", "train")
    assert await place.clusters() == ["demo"]


@pytest.mark.slow
async def test_a_job_that_fails_is_tried_again_on_a_new_cluster_as_often_as_allowed(
    place: Place,
) -> None:
    place.dashboard.outcome |= {"status": "FAILED", "message": "exit 1"}
    await place.submit("train", rayClusterSpec=CLUSTER, backoffLimit=1)
    status = await place.becomes("train", "Failed", 60)
    assert (status["failed"], status["succeeded"]) == (2, 0)
    assert (status["reason"], status["message"]) == ("AppFailed", "exit 1")
    assert len(place.dashboard.jobs) == 2
    assert await place.clusters() == [status["rayClusterName"]]


def telemetry(job_id: str, address: str, attempt: int, steps: range, began_s: float) -> str:
    """An attempt of one rank on the head, with a step each 50 ms."""
    worker = wire.Worker(rank=0, node_id="n", node_ip=address, pid=7)
    run = wire.Run(
        run="ab12", name="digits", state="RUNNING", job="01000000", submission=job_id, world_size=1
    )
    bodies: list[wire.Body] = [
        run,
        wire.AttemptStart(run="ab12", attempt=attempt, workers=(worker,)),
    ]
    for done, step in enumerate(steps, 1):
        at_s = began_s + 0.05 * done
        sample = wire.Steps(
            rank=0, attempt=attempt, t=at_s, step=step, first_step=step, steps_total=done
        )
        bodies.append(wire.Tick(run="ab12", ranks=(sample,)))
    return lines(bodies, began_s)


def lines(bodies: Iterable[wire.Body], at_s: float, after: int = 0) -> str:
    records = (wire.Record(seq, at_s, body) for seq, body in enumerate(bodies, after + 1))
    return "".join(f"{wire.encode(record)}\n" for record in records)


@pytest.mark.slow
async def test_a_kill_is_measured_to_the_first_step_on_the_cluster_of_the_retry(
    control_plane: Testbed, place: Place, address: str
) -> None:
    dashboard = place.dashboard
    await place.submit("train", rayClusterSpec=CLUSTER, backoffLimit=1)
    first = await place.becomes("train", "Running")
    await place.until(lambda: first["jobId"] in dashboard.jobs)
    dashboard.head, dashboard.stream = (
        "a" * 56,
        telemetry(first["jobId"], address, 1, range(1, 21), time.time() - 2.0),
    )

    context = read([Path(control_plane.kubeconfig)]).context()
    ref = ClusterRef("kuberay", first["rayClusterName"], place.namespace, context.name)
    [head] = (await place.api.get(place.path("pods")))["items"]

    def kill_rank(session: Session) -> Recovery:
        assert session.wait(
            lambda store: "ab12" in store.runs and bool(store.runs["ab12"].step), 30
        )
        assert session.wait(lambda store: any(pod.ready for pod in store.pods.values()), 30)
        return kill(session, DrillActions(session), plan_kill(session.store, "0", 0.0, 240.0))

    with session_on(KubeRayBackend(Credentials(context), ref)) as session:
        measuring = asyncio.create_task(asyncio.to_thread(kill_rank, session))
        await place.gone("pods", head["metadata"]["name"], 60)
        over = wire.AttemptEnd(run="ab12", attempt=1, reason="rank 0: its process died")
        failed = wire.Run(run="ab12", name="digits", state="ERRORED", submission=first["jobId"])
        dashboard.stream += lines([over, failed], time.time(), dashboard.stream.count("\n"))
        dashboard.failed.add(first["jobId"])
        async with asyncio.timeout(60):
            while len(dashboard.jobs) < 2:
                await place.start_heads()
                await asyncio.sleep(0.1)
        second = await place.status("train")
        dashboard.head, dashboard.stream = (
            "b" * 56,
            telemetry(second["jobId"], address, 2, range(15, 31), time.time()),
        )
        measured = await asyncio.wait_for(measuring, 300)
        assert session.backend.ref.name == second["rayClusterName"] != first["rayClusterName"]
        reasons = [notice.reason for notice in session.store.notices]
    assert "NewCluster" in reasons
    assert measured.recovered
    assert (measured.last_step, measured.resumed_step, measured.steps_lost) == (20, 15, 6)
    assert measured.first_step_s is not None
    assert measured.restarted_s is not None
    assert measured.pod_ready_s is not None


async def test_a_job_that_takes_too_long_fails_and_is_not_tried_again(place: Place) -> None:
    await place.submit("train", rayClusterSpec=CLUSTER, activeDeadlineSeconds=1, backoffLimit=3)
    status = await place.becomes("train", "Failed")
    assert (status["reason"], status["failed"]) == ("DeadlineExceeded", 1)


@pytest.mark.slow
async def test_a_suspended_job_gives_its_cluster_back_and_gets_another(place: Place) -> None:
    await place.submit("train", rayClusterSpec=CLUSTER, shutdownAfterJobFinishes=True)
    first = (await place.becomes("train", "Running"))["rayClusterName"]
    await place.api.merge(place.path("rayjobs", "train"), {"spec": {"suspend": True}})
    status = await place.becomes("train", "Suspended")
    assert "rayClusterName" not in status
    assert await place.clusters() == []
    await place.api.merge(place.path("rayjobs", "train"), {"spec": {"suspend": False}})
    assert (await place.becomes("train", "Running"))["rayClusterName"] != first


async def test_a_job_that_the_real_operator_would_refuse_reports_why(place: Place) -> None:
    await place.submit("train", clusterSelector={"ray.io/cluster": "demo"}, backoffLimit=1)
    status = await place.becomes("train", "ValidationFailed")
    assert "BackoffLimit is incompatible with ClusterSelector" in status["message"]
