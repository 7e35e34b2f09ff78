from __future__ import annotations

import asyncio
import json

import pytest

from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import NotAllowedError, UnreachableError
from cockpit.model.run import JobStatus, RunState
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import AnswerError, MissingError
from tests.sources.fake_dashboard import HEAD, FakeDashboard, Fault, node


async def test_a_node_comes_with_its_numbers_in_our_units(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    [seen] = await dashboard.nodes()
    assert (seen.id, seen.is_head, seen.alive) == (HEAD, True, True)
    assert (seen.cpu_percent, seen.memory_used_bytes, seen.memory_total_bytes) == (
        12.5,
        4_000,
        16_000,
    )
    assert (seen.disk_used_bytes, seen.disk_total_bytes) == (40, 100)
    assert (seen.sent_bytes_per_s, seen.received_bytes_per_s) == (1_500.5, 2_500.0)
    assert (seen.object_store_used_bytes, seen.object_store_total_bytes) == (10, 40)
    [gpu] = seen.gpus
    assert (gpu.utilization_percent, gpu.power_w, gpu.temperature_c) == (87, 300.5, 61)
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (1 << 30, 2 << 30)
    assert seen.resources == {
        "CPU": 2.0,
        "object_store_memory": 80.0,
        "node:__internal_head__": 1.0,
    }


async def test_calls_for_the_nodes_at_the_same_time_share_one_request(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    one, other = await asyncio.gather(dashboard.nodes(), dashboard.nodes())
    assert one == other
    assert fake.times_asked("/nodes") == 1
    await dashboard.nodes()
    assert fake.times_asked("/nodes") == 2, "a later call makes its own"


async def test_addresses_of_living_nodes_leave_out_the_dead(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.nodes = [node("b" * 56, head=False, alive=False), node()]
    fake.nodes[0]["raylet"]["nodeManagerAddress"] = "10.0.0.9"
    head, dead = await dashboard.nodes()
    assert await dashboard.living_addresses() == {head.ip}
    assert dead.ip == "10.0.0.9"
    fake.fail("/api/v0/nodes", Fault(status=200, text='{"data": {}}'))
    with pytest.raises(AnswerError, match="is not understood"):
        await dashboard.living_addresses()


async def test_node_is_dead_only_if_the_gcs_lists_it_as_dead(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.nodes = [node("b" * 56, head=False, alive=False), node()]
    assert await dashboard.node_is_dead("b" * 56)
    assert not await dashboard.node_is_dead("a" * 56)
    assert not await dashboard.node_is_dead("c" * 56), "unknown"


async def test_a_dead_node_reports_why_and_has_no_numbers(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.nodes = [node("b" * 56, head=False, alive=False), node()]
    head, dead = await dashboard.nodes()
    assert head.is_head
    assert dead.state_message == "Unexpected termination: health check failed"
    assert (dead.cpu_percent, dead.memory_used_bytes) == (None, None)


async def test_a_node_that_its_agent_has_not_reported_yet_is_listed(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.nodes = [{"raylet": node()["raylet"]}]
    [seen] = await dashboard.nodes()
    assert (seen.ip, seen.cpu_percent, seen.gpus) == ("127.0.0.10", None, ())


async def test_jobs_come_newest_first_with_times_in_seconds(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("old", "FAILED")
    fake.add_job("new")
    fake.jobs[1]["start_time"] += 1000
    new, old = await dashboard.jobs()
    assert (new.id, new.started_s) == ("new", 1_763_712_001.0)
    assert (old.id, old.status, old.ray_id) == ("old", JobStatus.FAILED, "01000000")


async def test_an_unknown_job_is_missing(dashboard: Dashboard) -> None:
    with pytest.raises(MissingError):
        await dashboard.job("nope")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, NotAllowedError), (403, NotAllowedError), (503, UnreachableError), (500, AnswerError)],
)
async def test_each_refusal_is_an_error_of_its_kind(
    fake: FakeDashboard, dashboard: Dashboard, status: int, kind: type[Exception]
) -> None:
    fake.fail("/nodes", Fault(status=status, text="Traceback (most recent call last)\nboom"))
    with pytest.raises(kind, match="dashboard") as raised:
        await dashboard.nodes()
    assert f"HTTP {status}: boom" in str(raised.value)


async def test_an_answer_of_another_shape_is_an_error_and_no_crash(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    for text in ('{"data": []}', "[1, 2]", "<html>a proxy's login page</html>", ""):
        fake.fail("/nodes", Fault(status=200, text=text))
        with pytest.raises(AnswerError):
            await dashboard.nodes()


async def test_a_dashboard_that_is_not_there_is_unreachable() -> None:
    async with Dashboard(DashboardRoute("http://127.0.0.1:9")) as nowhere:
        with pytest.raises(UnreachableError, match="cannot be reached"):
            await nowhere.version()


async def test_a_dashboard_that_sends_nothing_is_unreachable(fake: FakeDashboard) -> None:
    fake.fail("/nodes", Fault(wait_s=5))
    async with Dashboard(fake.route, timeout_s=0.1) as impatient:
        with pytest.raises(UnreachableError, match="does not answer"):
            await impatient.nodes()


async def test_a_loopback_address_never_goes_through_the_proxy(
    fake: FakeDashboard, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert await dashboard.nodes()


@pytest.mark.parametrize("service_is_deleted", [False, True])
async def test_the_route_is_asked_for_again_after_a_failure(
    fake: FakeDashboard, service_is_deleted: bool
) -> None:
    routes = [DashboardRoute("http://127.0.0.1:9"), fake.route]
    if service_is_deleted:  # with the cluster, before its RayJob got a new one
        routes[0] = fake.route
        status = {"kind": "Status", "code": 404, "message": 'services "a-head-svc" not found'}
        fake.fail("/nodes", Fault(status=404, text=json.dumps(status)))

    async def route() -> DashboardRoute:
        return routes.pop(0)

    async with Dashboard(route) as moved:
        with pytest.raises(UnreachableError):
            await moved.nodes()
        assert await moved.nodes()
        assert await moved.nodes()


async def test_request_refused_for_an_expired_token_is_sent_again_with_the_renewed_one(
    fake: FakeDashboard,
) -> None:
    fake.token = "new"
    fake.add_job("one")
    fake.write("worker.out", "line\n")
    expired = DashboardRoute(fake.route.base_url, {"Authorization": "Bearer old"})
    routes: list[DashboardRoute] = []

    async def route() -> DashboardRoute:
        return routes.pop(0)

    for request in ("job", "stop", "log"):
        routes[:] = [expired, fake.route]
        async with Dashboard(route) as client:
            if request == "job":
                assert (await client.job("one")).id == "one"
            elif request == "stop":
                with pytest.raises(MissingError):  # the stand-in has no such path
                    await client.stop("one")
            else:
                async with client.stream_log(HEAD, "worker.out", follow=False) as batches:
                    assert [batch async for batch in batches] == [[b"line"]]
        assert not routes


async def test_request_refused_for_a_token_that_is_not_renewed_is_not_repeated(
    fake: FakeDashboard,
) -> None:
    fake.token = "right"

    async def route() -> DashboardRoute:
        return DashboardRoute(fake.route.base_url, {"Authorization": "Bearer wrong"})

    async with Dashboard(route) as client:
        with pytest.raises(NotAllowedError):
            await client.nodes()
        with pytest.raises(NotAllowedError):
            async with client.stream_log(HEAD, "worker.out"):
                pass
    assert len(fake.asked) == 2


async def test_refusal_is_not_the_reason_why_the_next_route_fails(fake: FakeDashboard) -> None:
    fake.token = "right"

    async def route() -> DashboardRoute:
        return routes.pop(0)

    routes = [DashboardRoute(fake.route.base_url), DashboardRoute("http://127.0.0.1:9", {"A": "b"})]
    async with Dashboard(route) as client:
        with pytest.raises(UnreachableError) as raised:
            async with client.stream_log(HEAD, "worker.out"):
                pass
    assert "token" not in raised.value.why


async def test_no_error_shows_the_token(fake: FakeDashboard) -> None:
    fake.token = "right"
    route = DashboardRoute(fake.route.base_url, {"Authorization": "Bearer wrong-secret"})
    async with Dashboard(route) as client:
        with pytest.raises(NotAllowedError) as raised:
            await client.nodes()
    assert "secret" not in str(raised.value)


async def test_runs_come_with_attempts_and_where_each_rank_logs(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    worker = {
        "world_rank": 1,
        "node_id": HEAD,
        "node_ip": "127.0.0.11",
        "pid": 42,
        "log_file_path": "/tmp/ray/session_x/logs/train/ray-train-app-worker-ab.log",
    }
    attempt = {
        "status": "ERRORED",
        "status_detail": "a worker died\nbadly",
        "start_time_ns": 2_000_000_000,
        "end_time_ns": None,
        "workers": [worker],
    }
    run = {
        "id": "ab12",
        "name": "digits",
        "job_id": "01000000",
        "status": "RUNNING",
        "status_detail": None,
        "start_time_ns": 1_000_000_000,
        "end_time_ns": 3_000_000_000,
        "attempts": [attempt],
    }
    fake.fail("/api/train", Fault(status=200, text=json.dumps({"train_runs": [run]})))
    [seen] = await dashboard.train_runs()
    assert (seen.state, seen.started_s, seen.ended_s) == (RunState.RUNNING, 1.0, 3.0)
    [first] = seen.attempts
    assert first.detail == "a worker died badly"
    assert first.workers[0].log_file == "train/ray-train-app-worker-ab.log"


async def test_a_session_that_never_trained_has_no_runs(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    text = "Train state data is not available. Please make sure Ray Train is running"
    fake.fail("/api/train", Fault(status=500, text=text), Fault(status=500, text="boom"))
    assert await dashboard.train_runs() == ()
    with pytest.raises(AnswerError):
        await dashboard.train_runs()
