"""Sessions of the History Server: which there are, and their past as events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cockpit.cli.options.history import chosen
from cockpit.config.cluster_flags import Place
from cockpit.model.error import NotAllowedError, UnreachableError, UsageError
from cockpit.model.event import (
    AttemptEnded,
    ClusterSeen,
    Event,
    JobsListed,
    NodesListed,
    RankSampled,
    RunSeen,
)
from cockpit.model.run import RunState
from cockpit.sources.history_server import settings
from cockpit.sources.history_server.past_events import Past, past_events
from cockpit.sources.history_server.server import HistoryServer, Session
from cockpit.sources.ray.http import AnswerError
from cockpit.sources.server_settings import ServerSettings
from tests.sources.history_server import (
    HEAD,
    OLDER,
    SESSION,
    T0,
    WORKER,
    Server,
    Stored,
    job,
    node,
    serving,
)
from training.telemetry import wire

NAME = "cockpit/telemetry-01000000.jsonl"
NEXT = "cockpit/telemetry-01000000.000001.jsonl"
RUN = "ab12"
ERROR_LOG = "worker-cc-01000000-77.err"


def line(seq: int, body: wire.Body) -> str:
    return wire.encode(wire.Record(seq, T0 + seq, body)) + "\n"


def tick(step: int) -> wire.Tick:
    steps = wire.Steps(
        rank=0, attempt=1, t=T0 + step, step=step, first_step=step, steps_total=step, loss=1.0
    )
    return wire.Tick(run=RUN, ranks=(steps,))


def telemetry(reason: str = "rank 1 exited with SIGKILL") -> list[str]:
    """Of a run of two ranks whose only attempt fails."""
    workers = (
        wire.Worker(rank=0, node_id=HEAD, node_ip="10.0.0.1", pid=76, gpu_ids=()),
        wire.Worker(rank=1, node_id=WORKER, node_ip="10.0.0.2", pid=77, gpu_ids=()),
    )
    run = wire.Run(
        run=RUN, name="digits", job="01000000", submission="job-1", state="RUNNING", world_size=2
    )
    bodies: list[wire.Body] = [
        run,
        wire.AttemptStart(run=RUN, attempt=1, workers=workers),
        *(tick(step) for step in range(3, 40)),
        wire.AttemptEnd(run=RUN, attempt=1, reason=reason),
        replace(run, state="ERRORED"),
    ]
    return [line(seq, body) for seq, body in enumerate(bodies, 1)]


def stored(**changes: object) -> Stored:
    lines = telemetry()
    logs = {
        (HEAD, NAME): "".join(lines[:20]),
        (HEAD, NEXT): line(20, wire.Segment(segment=1)) + "".join(lines[20:]),
        (HEAD, "raylet.out"): "no telemetry",
        (WORKER, ERROR_LOG): "starting\nRuntimeError: CUDA error: an illegal memory access\n",
    }
    found = Stored(jobs=[job("job-1", "FAILED", "the driver failed")], logs=logs)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


async def read(server: Server, session: Session | None = None) -> Past:
    client = HistoryServer(ServerSettings(server.url))
    try:
        session = session or (await client.sessions())[0]
        async with await client.dashboard(session) as dashboard:
            return await past_events(dashboard, session)
    finally:
        await client.aclose()


def of_kind(events: Sequence[Event], kind: type[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


async def test_session_becomes_the_events_of_its_telemetry_jobs_and_nodes() -> None:
    with serving(**{SESSION: stored(owner="nightly")}) as server:
        past = await read(server)
    assert past.missing == ""
    first, *timed, jobs = past.events
    assert isinstance(first, ClusterSeen)
    assert (first.ref.name, first.ref.namespace) == ("demo", "ml")
    [nodes] = of_kind(timed, NodesListed)
    assert isinstance(nodes, NodesListed)
    assert [(node.is_head, node.alive, node.memory_total_bytes) for node in nodes.nodes] == [
        (True, True, None), (False, True, None),
    ], "as they were before the cluster was deleted"  # fmt: skip
    assert isinstance(jobs, JobsListed)
    assert [job.status.value for job in jobs.jobs] == ["FAILED"]
    runs = of_kind(timed, RunSeen)
    assert isinstance(runs[-1], RunSeen)
    assert runs[-1].state is RunState.ERRORED
    assert len(of_kind(timed, RankSampled)) == 37, "of both files of the stream"
    assert len(of_kind(timed, AttemptEnded)) == 1
    assert [event.at_s for event in timed] == sorted(event.at_s for event in timed)
    assert past.end_s == 1_787_000_300.0, "the end of the job is the newest"


async def test_node_that_died_during_the_run_is_dead_from_then_on() -> None:
    nodes = [node(HEAD), node(WORKER, T0 + 38.5)]
    with serving(**{SESSION: stored(nodes=nodes)}) as server:
        past = await read(server)
    before, after = of_kind(past.events, NodesListed)
    assert isinstance(before, NodesListed)
    assert isinstance(after, NodesListed)
    assert [each.alive for each in before.nodes] == [True, True]
    assert [(each.id, each.alive) for each in after.nodes] == [(HEAD, True), (WORKER, False)]
    assert after.at_s == T0 + 38.5
    assert "health check failed" in after.nodes[1].state_message


async def test_node_that_died_shortly_after_the_last_record_may_be_the_cause() -> None:
    """Only of a run that was not over."""
    lines = telemetry()
    logs = {(HEAD, NAME): "".join(lines[:30])}
    nodes = [node(HEAD), node(WORKER, T0 + 60)]
    with serving(**{SESSION: stored(nodes=nodes, logs=logs)}) as server:
        past = await read(server)
    assert len(of_kind(past.events, NodesListed)) == 2


async def test_torn_file_and_file_that_is_missing_are_reported() -> None:
    lines = telemetry()
    logs = {(HEAD, NAME): "".join(lines[:10]) + "{garbage\n" + "".join(lines[12:20])}
    with serving(**{SESSION: stored(logs=logs)}) as server:
        past = await read(server)
    assert "1 line skipped" in past.missing
    assert "missing in the stream" in past.missing
    assert len(of_kind(past.events, RankSampled)) == 16


async def test_session_without_telemetry_has_jobs_and_nodes_alone() -> None:
    found = stored(logs={}, jobs=[job("job-1", "SUCCEEDED"), job("job-2", "")])
    with serving(**{SESSION: found}) as server:
        past = await read(server)
    assert [type(event) for event in past.events] == [ClusterSeen, NodesListed, JobsListed]
    listed = past.events[-1]
    assert isinstance(listed, JobsListed)
    assert [job.id for job in listed.jobs] == ["job-1"], "without the one of unknown status"


async def test_run_of_ray_train_is_used_if_the_collector_stores_it() -> None:
    attempt = {
        "attempt_id": "1",
        "start_time_ns": int(T0 * 1e9),
        "end_time_ns": int((T0 + 9) * 1e9),
        "status": "ERRORED",
        "status_detail": "a worker died",
        "workers": [],
    }
    run = {
        "id": "cd34",
        "name": "plain",
        "job_id": "02000000",
        "status": "ERRORED",
        "status_detail": "a worker died",
        "start_time_ns": int(T0 * 1e9),
        "end_time_ns": int((T0 + 10) * 1e9),
        "attempts": [attempt],
    }
    endpoints = {"/api/train/v2/runs/v1": {"train_runs": [run]}}
    with serving(**{SESSION: stored(logs={}, endpoints=endpoints)}) as server:
        past = await read(server)
    runs = of_kind(past.events, RunSeen)
    assert isinstance(runs[-1], RunSeen)
    assert (runs[-1].name, runs[-1].state) == ("plain", RunState.ERRORED)


async def test_version_of_ray_is_of_the_stored_metadata() -> None:
    endpoints = {"/api/v0/cluster_metadata": {"data": {"rayVersion": "2.60.0"}}}
    with serving(**{SESSION: stored(endpoints=endpoints)}) as server:
        first = (await read(server)).events[0]
    assert isinstance(first, ClusterSeen)
    assert first.ray_version == "2.60.0"


async def test_cluster_that_exists_is_not_read() -> None:
    with serving() as server:
        server.live = [Stored()]
        with pytest.raises(UsageError, match="RayCluster demo in namespace ml exists"):
            await read(server, Session("ml", "demo", "live", T0))


@pytest.mark.parametrize("name", ["session/../x", "a\r\nCookie: b", ""])
async def test_name_that_could_change_the_request_is_refused(name: str) -> None:
    with serving(**{SESSION: stored()}) as server:
        with pytest.raises(UsageError, match="not valid"):
            await read(server, Session("ml", "demo", name, T0))
        assert server.asked == []


async def test_token_of_the_configuration_is_sent_to_all_routes() -> None:
    with serving(**{SESSION: stored()}) as server:
        server.token = "s3cret"
        with pytest.raises(NotAllowedError, match="wants credentials"):
            await read(server)
        client = HistoryServer(ServerSettings(server.url, token="s3cret"))
        try:
            session = (await client.sessions())[0]
            async with await client.dashboard(session) as dashboard:
                assert (await past_events(dashboard, session)).end_s > 0
        finally:
            await client.aclose()


async def test_other_servers_are_named_in_the_error() -> None:
    with serving(**{SESSION: stored(created_s="soon")}) as server:
        with pytest.raises(AnswerError, match="did not answer as a History Server"):
            await read(server)
        url = server.url
    client = HistoryServer(ServerSettings(url))
    try:
        with pytest.raises(UnreachableError, match="History Server at http"):
            await client.sessions()
    finally:
        await client.aclose()


def session(cluster: str, name: str, created_s: float, namespace: str = "ml") -> Session:
    return Session(namespace, cluster, name, created_s)


FOUND = (
    session("demo", "live", 30),
    session("demo", SESSION, 20),
    session("demo", OLDER, 10),
    session("other", "live", 5),
)


@pytest.mark.parametrize(
    ("where", "name", "expected"),
    [
        (Place(), "", SESSION),
        (Place(cluster="demo", namespace="ml"), OLDER, OLDER),
        (Place(cluster="other"), "", "RayCluster other exists"),
        (Place(cluster="third"), "", "no session third"),
        (Place(namespace="web"), "", "It has 4 in all"),
    ],
)
def test_newest_stored_session_of_the_cluster_is_chosen(
    where: Place, name: str, expected: str
) -> None:
    if expected in (SESSION, OLDER):
        assert chosen(FOUND, where, name).name == expected
    else:
        with pytest.raises(UsageError) as raised:
            chosen(FOUND, where, name)
        assert expected in str(raised.value)


def test_address_is_of_the_configuration_or_the_variable() -> None:
    found = settings.parse({"url": "history.example:30080/x/"}, {})
    assert found.url == "http://history.example:30080/x"
    by_variable = settings.parse({}, {settings.VARIABLE: "https://h.example"})
    assert (by_variable.url, by_variable.set_by) == ("https://h.example", "environment")
    with pytest.raises(UsageError, match="No History Server is configured"):
        settings.required({}, {})
    with pytest.raises(UsageError, match="there is no 'uri'"):
        settings.parse({"uri": "x"}, {})
