"""The source on a real Prometheus: a past written by promtool, a present that it scrapes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.error import NotAllowedError
from cockpit.model.event import (
    Event,
    GpuActivityListed,
    HistoryLoaded,
    PastAlertsLoaded,
    PodTrafficListed,
    ServeMeasured,
    SourceHealth,
)
from cockpit.model.run import Placement
from cockpit.model.tracking import GpuActivity, PodRefs, RunRef
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.prometheus import history as history
from cockpit.sources.prometheus import network, serve
from cockpit.sources.prometheus.api import Curve, Prometheus
from cockpit.sources.prometheus.settings import PrometheusSettings
from cockpit.sources.prometheus.source import PrometheusSource
from cockpit.store.gpus import of_placement
from cockpit.store.store import Store
from tests.events import watched_runs
from tests.sources.prometheus_server import Exporter, PrometheusServer, Sample
from training.telemetry.metric_table import CURVES

RUN, OTHER, NO_GPU, LARGE = "ab12" * 8, "cd34" * 8, "ef56" * 8, "0a0b" * 8
NOW_S = float(int(time.time()))
BEFORE_S, LATER_S = 180, 300
"""The samples of a rate continue after the present: a busy machine asks for it later."""
BEGUN_S = NOW_S - 6 * 3600
ENDED_S = NOW_S - 1800
EVERY_S = 30


def rank(name: str, number: int, run: str = RUN) -> tuple[str, dict[str, str]]:
    return name, {"run": run, "rank": str(number), "SessionName": "session_1"}


def past() -> list[Sample]:
    """Two ranks for five and a half hours, and another run at the same time."""
    samples = []
    for number in range(int((ENDED_S - BEGUN_S) / EVERY_S) + 1):
        at_s = BEGUN_S + number * EVERY_S
        for who in (0, 1):
            loss = math.nan if number == 100 else 2.0 + who
            reported = {"loss": loss, "samples_per_second": 100.0, "step": number, "other": 1.0}
            samples += [
                Sample(*rank(f"ray_cockpit_train_{name}", who), value, at_s)
                for name, value in reported.items()
            ]
            # As some exporters have it: without Ray's prefix.
            samples.append(Sample(*rank("cockpit_train_step_time_seconds", who), 0.25, at_s))
            samples.append(Sample(*rank("ray_cockpit_train_loss", who, OTHER), 9.0, at_s))
        for text, value in (("min", 1.0), ("mean", 2.0), ("max", 3.0)):
            labels = {"run": LARGE, "rank": text}
            samples.append(Sample("ray_cockpit_train_loss", labels, value, at_s))
            samples.append(Sample("ray_cockpit_train_tokens_per_second", labels, value, at_s))
        for name, first, last in (("hung-run", 100, 119), ("stuck-start", 600, 10_000)):
            if first <= number <= last:
                labels = {"alertname": name, "alertstate": "firing", "severity": "critical"}
                samples.append(
                    Sample("ALERTS", {**labels, "run": RUN, "name": "digits"}, 1.0, at_s)
                )
        if 300 <= number < 310:
            labels = {"alertname": "Slow Rank", "alertstate": "firing", "severity": "page"}
            samples.append(Sample("ALERTS", {**labels, "run": RUN, "rank": "1"}, 1.0, at_s))
        if number >= 200:
            size = 1000.0 if number < 400 else 500.0
            samples.append(Sample("ray_cockpit_train_world_size", {"run": LARGE}, size, at_s))
        for gpu, percent in (("0", 80.0), ("1", 40.0), ("2", 0.0)):
            labels = {"ip": "10.0.0.3", "GpuIndex": gpu}
            samples.append(Sample("ray_node_gpus_utilization", labels, percent, at_s))
            samples.append(Sample("ray_node_gram_used", labels, 3.0, at_s))
    return samples


def dcgm(name: str, value: float, gpu: str = "0", **more: str) -> Sample:
    named = {} if "hostname" in more else {"Hostname": "node-a"}
    labels = {**named, "gpu": gpu, "UUID": f"GPU-{gpu}", **more}
    return Sample(f"DCGM_FI_{name}", labels, value)


USER = {"exported_pod": "trainer-0", "exported_namespace": "team"}


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    with Exporter(
        [
            Sample("ray_node_cpu_count", {"ip": "10.0.0.3"}, 8.0),
            dcgm("PROF_SM_ACTIVE", 0.75, pod="exporter", **USER),
            dcgm("PROF_PIPE_TENSOR_ACTIVE", 0.5, pod="exporter", **USER),
            *(
                dcgm(f"PROF_{name}", value, pod="exporter", namespace="gpu-operator", **USER)
                for name, value in (
                    ("DRAM_ACTIVE", 0.125),
                    ("NVLINK_TX_BYTES", 3e9),
                    ("NVLINK_RX_BYTES", 1e9),
                    ("PCIE_TX_BYTES", 2e8),
                )
            ),
            dcgm("DEV_XID_ERRORS", 0.0, pod="exporter", **USER),
            dcgm("DEV_XID_ERRORS", 79.0, gpu="1"),
            dcgm("PROF_SM_ACTIVE", 0.25, gpu="10", GPU_I_ID="7"),
            dcgm("PROF_SM_ACTIVE", 0.5, hostname="node-b"),
            dcgm("DEV_GPU_TEMP", 60.0),
        ]
    ).serve() as served:
        yield served


@pytest.fixture(scope="module")
def server(
    exporter: Exporter, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusServer]:
    targets = [f"127.0.0.1:{exporter.port}"]
    made = PrometheusServer(tmp_path_factory.mktemp("prometheus"), targets)
    with made.running(past()) as running:
        running.await_series("ray_node_cpu_count")
        yield running


class Polls:
    """Time that passes only by sleeping, from now on, and a poll a real moment later."""

    def __init__(self) -> None:
        self.now_s = time.time()

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0.05)


async def watched(
    source: PrometheusSource, until: Callable[[list[Event]], bool], timeout_s: float = 30.0
) -> list[Event]:
    seen: list[Event] = []
    async with asyncio.timeout(timeout_s), aclosing(source.events()) as events:
        async for event in events:
            seen.append(event)
            if until(seen):
                break
    return seen


def health(count: int) -> Callable[[list[Event]], bool]:
    return lambda seen: len(healths(seen)) == count


def healths(seen: list[Event]) -> list[SourceHealth]:
    return [event for event in seen if isinstance(event, SourceHealth)]


def curves(seen: list[Event]) -> dict[str, HistoryLoaded]:
    return {event.metric: event for event in seen if isinstance(event, HistoryLoaded)}


def source(server: PrometheusServer, *runs: RunRef, **more: object) -> PrometheusSource:
    polls = Polls()
    settings = PrometheusSettings(server.url)
    return PrometheusSource(
        settings,
        watched_runs(*runs),
        clock=polls,
        monotonic=polls,
        sleep=polls.sleep,
        **more,  # type: ignore[arg-type]
    )


async def test_a_run_that_is_over_gets_its_whole_past_once(server: PrometheusServer) -> None:
    run = RunRef(RUN, "digits", started_s=BEGUN_S, ended_s=ENDED_S)
    seen = await watched(source(server, run), health(3))
    reported = [event.metric for event in seen if isinstance(event, HistoryLoaded)]
    assert sorted(reported) == ["loss", "samples_per_s", "step_time_s"]
    loss = curves(seen)["loss"]
    assert (loss.run_id, loss.source) == (RUN, "prometheus")
    assert len(loss.times) <= history.MOST_POINTS
    assert list(loss.times) == sorted(set(loss.times))
    assert loss.times[0] == pytest.approx(BEGUN_S, abs=60)
    assert loss.times[-1] == pytest.approx(ENDED_S, abs=60)
    finite = [value for value in loss.values if not math.isnan(value)]
    assert set(finite) == {2.5}, "the mean of the ranks"
    assert 0 < len(loss.values) - len(finite) <= 4, "a NaN stays one"
    assert set(curves(seen)["samples_per_s"].values) == {200.0}, "the sum over the ranks"
    assert set(curves(seen)["step_time_s"].values) == {0.25}
    assert (healths(seen)[0].ok, healths(seen)[0].absent, healths(seen)[0].error) == (
        True,
        False,
        "",
    )


async def test_alerts_that_prometheus_raised_and_cleared_are_read_once(
    server: PrometheusServer,
) -> None:
    run = RunRef(RUN, "digits", started_s=BEGUN_S, first_point_s=BEGUN_S)
    seen = await watched(source(server, run), health(3))
    [loaded] = (event for event in seen if isinstance(event, PastAlertsLoaded))
    assert loaded.run_id == RUN
    # The one that fired until the last sample was cleared by the end of the samples.
    hung, slow, stuck = loaded.alerts
    assert (hung.alert.id, hung.alert.finding.severity) == (f"hung-run/run {RUN}", "critical")
    assert hung.alert.raised_s == pytest.approx(BEGUN_S + 100 * EVERY_S, abs=90)
    assert hung.cleared_s == pytest.approx(BEGUN_S + 119 * EVERY_S, abs=90)
    assert (slow.alert.id, slow.alert.finding.severity) == ("Slow Rank/rank 1", "warning")
    assert stuck.cleared_s == pytest.approx(ENDED_S, abs=90)


async def test_alert_that_fires_is_left_to_the_session(server: PrometheusServer) -> None:
    class Earlier(Prometheus):
        """At the time of the last sample."""

        async def now_s(self) -> float:
            return ENDED_S

    run = RunRef(RUN, "digits", started_s=BEGUN_S, first_point_s=BEGUN_S)
    seen = await watched(source(server, run, open_client=Earlier), health(1))
    [loaded] = (event for event in seen if isinstance(event, PastAlertsLoaded))
    assert [past.alert.finding.kind for past in loaded.alerts] == ["hung-run", "Slow Rank"]


async def test_only_what_is_before_the_first_point_that_is_known_is_added(
    server: PrometheusServer,
) -> None:
    middle_s = BEGUN_S + 3600
    run = RunRef(RUN, "digits", started_s=middle_s - 5, first_point_s=middle_s)
    seen = await watched(source(server, run), health(1))
    loss = curves(seen)["loss"]
    assert loss.times[0] == pytest.approx(BEGUN_S, abs=60), "it began before anybody watched"
    assert loss.times[-1] <= middle_s
    store = Store()
    for event in seen:
        store.apply(event)
    assert len(store.runs[RUN].curves["loss"]) == len(loss.times)


async def test_a_run_whose_curves_are_empty_is_left_to_its_telemetry_for_a_while(
    server: PrometheusServer,
) -> None:
    run = RunRef(RUN, "digits", started_s=BEGUN_S)
    seen = await watched(source(server, run), health(3))
    reported = [i for i, event in enumerate(seen) if isinstance(event, HistoryLoaded)]
    lines = [i for i, event in enumerate(seen) if isinstance(event, SourceHealth)]
    assert reported, "it has no telemetry: Prometheus is all there is"
    assert lines[1] < reported[0] < lines[2], "polls are 10 s apart, and 20 s are given"


async def test_a_run_that_never_reported_a_number_gets_none_and_is_not_asked_for_without_end(
    server: PrometheusServer,
) -> None:
    asked: list[str] = []

    class Listening(Prometheus):
        async def range(self, query: str, *span: object) -> tuple[()]:
            asked.append(query)
            return ()

    run = RunRef("0" * 32, "none", started_s=BEGUN_S, ended_s=ENDED_S)
    seen = await watched(source(server, run, open_client=Listening), health(30))
    assert not curves(seen)
    assert len([query for query in asked if "ALERTS" not in query]) == 3
    assert len(asked) == 4


async def test_of_a_large_world_the_means_are_read_and_times_its_ranks_are_the_sums(
    server: PrometheusServer,
) -> None:
    run = RunRef(LARGE, "large", started_s=BEGUN_S, ended_s=ENDED_S)
    found = curves(await watched(source(server, run), health(1)))
    assert set(found) == {"loss", "tokens_per_s"}
    assert set(found["loss"].values) == {2.0}
    tokens = found["tokens_per_s"]
    assert set(tokens.values) == {2000.0, 1000.0}, "the world has shrunk meanwhile"
    assert tokens.times[0] >= BEGUN_S + 200 * EVERY_S - 60, "before, its size is not known"


async def test_gpus_of_a_run_whose_ranks_saw_none_come_from_the_nodes(
    server: PrometheusServer,
) -> None:
    run = RunRef(
        NO_GPU, "old", BEGUN_S, ENDED_S, gpus=(("10.0.0.3", 0), ("10.0.0.3", 1), ("10.9.9.9", 0))
    )
    seen = await watched(source(server, run), health(1))
    found = curves(seen)
    assert set(found) == {"gpu_utilization_percent", "gpu_memory_bytes"}
    assert set(found["gpu_utilization_percent"].values) == {60.0}, "not GPU 2, which is another's"
    assert set(found["gpu_memory_bytes"].values) == {6.0 * 1024 * 1024}


async def test_dcgm_explains_how_busy_each_gpu_is(server: PrometheusServer) -> None:
    def listed(seen: list[Event]) -> bool:
        return isinstance(seen[-1], GpuActivityListed) and len(seen[-1].gpus) == 4

    polls = Polls()
    watching = PrometheusSource(
        PrometheusSettings(server.url), clock=polls, monotonic=polls, sleep=polls.sleep, poll_s=60.0
    )
    [*_, last] = await watched(watching, listed)
    assert isinstance(last, GpuActivityListed)
    assert last.gpus == (
        GpuActivity(
            "node-a",
            "0",
            75.0,
            50.0,
            None,
            "trainer-0",
            12.5,
            4e9,
            2e8,
            "team",
            address="127.0.0.1",
            uuid="GPU-0",
        ),
        GpuActivity("node-a", "1", None, None, 79, address="127.0.0.1", uuid="GPU-1"),
        GpuActivity("node-a", "10/7", 25.0, address="127.0.0.1", uuid="GPU-10"),
        GpuActivity("node-b", "0", 50.0, address="127.0.0.1", uuid="GPU-0"),
    )
    pod = Pod("trainer-0", "gpu", NodeType.WORKER, PodPhase.RUNNING, True, "10.0.0.9")
    placed = Placement(3, "n", "10.0.0.9", 1, (0,))
    assert of_placement(placed, last.gpus, [pod], [], "team") == last.gpus[0]


def served() -> list[Sample]:
    """Some minutes of a deployment: 10 requests a second, a tenth of them errors; and an idle one.

    Half of the requests take up to 10 ms, the others up to 100 ms.
    """
    now_s, samples = time.time(), []
    for number in range(BEFORE_S + LATER_S):
        for name, per_s in (("Digits", 10.0), ("Idle", 0.0)):
            labels, at_s = {"application": "digits", "deployment": name}, now_s - BEFORE_S + number
            done = per_s * number
            samples += [
                Sample(serve.REQUESTS, {**labels, "route": "/"}, done * 0.75, at_s),
                Sample(serve.REQUESTS, {**labels, "route": "/x"}, done * 0.25, at_s),
                Sample(serve.ERRORS, labels, done * 0.1, at_s),
                *(
                    Sample(serve.LATENCY, {**labels, "le": le}, done * share, at_s)
                    for le, share in (("10", 0.5), ("100", 1.0), ("+Inf", 1.0))
                ),
            ]
    return samples


async def test_requests_and_latency_of_serve_are_over_a_minute(tmp_path: Path) -> None:
    with PrometheusServer(tmp_path).running(served()) as server:
        polls = Polls()
        watching = PrometheusSource(
            PrometheusSettings(server.url), clock=polls, monotonic=polls, sleep=polls.sleep
        )
        [*_, last] = await watched(watching, lambda seen: isinstance(seen[-1], ServeMeasured))
    assert isinstance(last, ServeMeasured)
    digits, idle = last.loads
    assert (digits.app, digits.deployment, idle.deployment) == ("digits", "Digits", "Idle")
    assert digits.requests_per_s == pytest.approx(10, rel=0.3)
    assert digits.errors_per_s == pytest.approx(1, rel=0.3)
    assert digits.p50_s == pytest.approx(0.010, rel=0.01)
    assert digits.p99_s == pytest.approx(0.0982, rel=0.01)
    assert (idle.requests_per_s, idle.p99_s) == (0.0, None)


def received_and_sent() -> list[Sample]:
    """Some minutes of pods, as two jobs scrape them from the kubelets, the second one late."""
    now_s, samples = time.time(), []
    rates = {
        ("ml", "head-0", "eth0"): (1_000.0, 500.0),
        ("ml", "worker-0", "eth0"): (2_000.0, 0.0),
        ("ml", "worker-0", "net1"): (3_000_000.0, 4_000_000.0),
        ("other", "worker-0", "eth0"): (9e9, 9e9),
    }
    for number in range(BEFORE_S + LATER_S):
        for (namespace, pod, interface), (received, sent) in rates.items():
            labels = {"namespace": namespace, "pod": pod, "interface": interface}
            at_s = now_s - BEFORE_S + number
            for job in ("kubelet", "cadvisor")[: 1 + (number >= 60)]:
                scraped = {**labels, "job": job}
                samples += [
                    Sample(network.RECEIVED, scraped, received * number, at_s),
                    Sample(network.SENT, scraped, sent * number, at_s),
                ]
    return samples


async def test_traffic_of_pods_that_ray_does_not_measure_is_that_of_their_kubelets(
    tmp_path: Path,
) -> None:
    refs = [PodRefs("ml", frozenset({"worker-0", "worker-1"})), PodRefs(), PodRefs()]

    async def pods() -> PodRefs:
        return refs.pop(0)

    with PrometheusServer(tmp_path).running(received_and_sent()) as server:
        seen = await watched(source(server, pods=pods), health(3))
    first, second = (event for event in seen if isinstance(event, PodTrafficListed))
    [worker] = first.pods
    assert worker.pod == "worker-0"
    assert worker.received_bytes_per_s == pytest.approx(3_002_000, rel=0.05)
    assert worker.sent_bytes_per_s == pytest.approx(4_000_000, rel=0.05)
    assert second.pods == (), "Ray measures it now; reported once"
    assert not healths(seen)[0].absent


async def test_without_metrics_of_kubelets_no_traffic_is_queried(server: PrometheusServer) -> None:
    asked: list[str] = []

    class Listening(Prometheus):
        async def instant(self, query: str) -> tuple[Curve, ...]:
            asked.append(query)
            return await super().instant(query)

    async def pods() -> PodRefs:
        return PodRefs("ml", frozenset({"worker-0"}))

    seen = await watched(source(server, pods=pods, open_client=Listening), health(1))
    assert not [event for event in seen if isinstance(event, PodTrafficListed)]
    assert asked
    assert not [query for query in asked if network.SENT in query]
    assert not healths(seen)[-1].error


async def test_gpus_that_no_longer_exist_are_reported_once(tmp_path: Path) -> None:
    with Exporter([dcgm("PROF_SM_ACTIVE", 1.0)]).serve() as exporter:
        server = PrometheusServer(tmp_path, [f"127.0.0.1:{exporter.port}"])
        with server.running():
            polls = Polls()
            settings = PrometheusSettings(server.url)
            watching = PrometheusSource(
                settings, clock=polls, monotonic=polls, sleep=polls.sleep, poll_s=70.0
            )
            lists: list[int] = []

            def gone(seen: list[Event]) -> bool:
                if isinstance(seen[-1], GpuActivityListed):
                    lists.append(len(seen[-1].gpus))
                    exporter.samples = [Sample("ray_node_cpu_count", {}, 1.0)]
                return len(lists) > 1 and isinstance(seen[-1], SourceHealth) and not lists[-1]

            await watched(watching, gone)
            assert lists[0] == 1
            assert lists.count(0) == 1


async def test_a_selector_narrows_every_question(server: PrometheusServer) -> None:
    run = RunRef(RUN, "digits", started_s=BEGUN_S, ended_s=ENDED_S)
    polls = Polls()
    settings = PrometheusSettings(server.url, selector='rank="0"')
    watching = PrometheusSource(
        settings, watched_runs(run), clock=polls, monotonic=polls, sleep=polls.sleep
    )
    seen = await watched(watching, health(1))
    assert 2.0 in curves(seen)["loss"].values
    assert 2.5 not in curves(seen)["loss"].values


async def test_a_server_that_only_remembers_the_run_is_not_absent(tmp_path: Path) -> None:
    run = RunRef(RUN, "digits", started_s=BEGUN_S, ended_s=ENDED_S)
    reported = [
        Sample(*rank("ray_cockpit_train_loss", 0), 1.0, ENDED_S - 60 * n) for n in (3, 2, 1)
    ]
    with PrometheusServer(tmp_path).running(reported) as server:
        seen = await watched(source(server, run), health(1))
    assert set(curves(seen)["loss"].values) == {1.0}
    assert not healths(seen)[0].absent


async def test_a_server_that_has_nothing_of_rays_is_absent(tmp_path: Path) -> None:
    with PrometheusServer(tmp_path).running() as server:
        [reported] = healths(await watched(source(server), health(1)))
        assert reported.ok
        assert reported.absent
        assert reported.error == (
            f"Prometheus at http://127.0.0.1:{server.port} scrapes neither Ray nor DCGM nor "
            "the kubelets"
        )


async def test_without_an_address_it_is_absent_and_reports_what_to_set() -> None:
    polls = Polls()
    watching = PrometheusSource(
        PrometheusSettings(""), clock=polls, monotonic=polls, sleep=polls.sleep
    )
    [reported] = healths(await watched(watching, health(1)))
    assert reported.ok
    assert reported.absent
    assert "RAY_PROMETHEUS_HOST" in reported.error
    assert reported.retry_at_s is not None
    assert reported.retry_at_s > reported.at_s


async def test_a_server_that_dies_is_reported_and_found_again_when_it_is_back(
    exporter: Exporter, tmp_path: Path
) -> None:
    server = PrometheusServer(tmp_path, [f"127.0.0.1:{exporter.port}"])
    with server.running():
        polls = Polls()
        watching = PrometheusSource(
            PrometheusSettings(server.url),
            clock=polls,
            monotonic=polls,
            sleep=polls.sleep,
            backoff=Backoff(first_s=1.0, most_s=4.0),
        )
        terms: list[str] = []

        def through(seen: list[Event]) -> bool:
            if not isinstance(reported := seen[-1], SourceHealth):
                return False
            text = "up" if reported.ok else "down"
            if not terms or terms[-1] != text:
                terms.append(text)
                (server.stop if text == "up" else server.start)()
            if text == "down":
                assert f"127.0.0.1:{server.port} cannot be reached" in reported.error
                assert "Connection refused" in reported.error
                assert reported.retry_at_s is not None
                assert reported.retry_at_s > reported.at_s
            return terms == ["up", "down", "up"]

        await watched(watching, through)


HASHED = "$2b$05$abcdefghijklmnopqrstuuVWu8RjbNovPZWAMRdd7iqaaG0mI53Uu"
"""bcrypt of `geheim`."""


async def test_credentials_are_wanted_and_never_shown(tmp_path: Path) -> None:
    with PrometheusServer(tmp_path, users={"anna": HASHED}).running() as server:
        with pytest.raises(NotAllowedError, match="wants credentials"):
            await Prometheus(PrometheusSettings(server.url)).now_s()
        wrong = PrometheusSettings(server.url, username="anna", password="falsch")
        [reported] = healths(await watched(PrometheusSource(wrong), health(1)))
        assert not reported.ok
        assert "wants credentials" in reported.error
        assert "falsch" not in f"{reported}{wrong}"
        right = replace(wrong, password="geheim")
        assert await Prometheus(right).now_s() == pytest.approx(time.time(), abs=60)


async def test_a_clock_that_differs_is_reported_and_does_not_move_the_curves(
    server: PrometheusServer,
) -> None:
    polls = Polls()
    polls.now_s += 7200
    run = RunRef(RUN, "digits", started_s=BEGUN_S, ended_s=ENDED_S)
    watching = PrometheusSource(
        PrometheusSettings(server.url),
        watched_runs(run),
        clock=polls,
        monotonic=polls,
        sleep=polls.sleep,
    )
    seen = await watched(watching, health(1))
    assert "7,200 s behind this machine's" in healths(seen)[0].error
    assert healths(seen)[0].ok
    assert curves(seen)["loss"].times[-1] == pytest.approx(ENDED_S, abs=60)


async def test_a_question_that_is_too_much_is_reported_and_given_up_the_rest_continues(
    server: PrometheusServer,
) -> None:
    class Refusing(Prometheus):
        async def range(self, query: str, *span: object) -> tuple[()]:
            await self.instant("this is not PromQL(")
            return ()

    run = RunRef(RUN, "digits", started_s=BEGUN_S, ended_s=ENDED_S)
    seen = await watched(source(server, run, open_client=Refusing), health(2))
    assert healths(seen)[0].ok
    assert "no history of run digits" in healths(seen)[0].error
    assert "parse error" in healths(seen)[0].error
    assert any(isinstance(event, GpuActivityListed) for event in seen)


def test_curves_that_are_read_are_those_of_run() -> None:
    # A rank's time on checkpoints has no gauge: cockpit_train_checkpoint_seconds is the run's.
    assert history.MEANS.keys() | history.SUMS.keys() == CURVES.keys() - {"checkpoint_s"}
    assert history.SUMS["gpu_power_w"] == "gpu_power_watts"


@pytest.mark.parametrize("span_s", [0.0, 60.0, 3600.0, 86_400.0, 15 * 86_400.0, 1e9])
def test_no_span_has_more_points_than_may_be(span_s: float) -> None:
    step_s = history.step_of(span_s)
    assert step_s >= history.LEAST_STEP_S
    assert span_s // step_s + 1 <= history.MOST_POINTS
