"""The results of probes, and their results when their source is unavailable."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.drills.plan.plan import ProbeSpec
from cockpit.drills.probes import external
from cockpit.drills.probes.external import ContextProber
from cockpit.drills.probes.hypothesis import KINDS, name_of, probe
from cockpit.insight.recovery.measurement import Reading
from cockpit.model.cluster import WorkerGroup
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.event import Event, GroupsListed, MetricsReported
from cockpit.model.run import Checkpoint
from cockpit.sources.prometheus.settings import PrometheusSettings
from tests.drills.simulated_context import ScriptedContext, trained
from tests.events import DRILL, RUN, tick
from tests.local_cluster import until
from tests.sources.prometheus_server import Exporter, PrometheusServer, Sample

READING = {DRILL.id: Reading(99.0, 200.0, (1.0,), 2)}


async def asked(
    text: str, *events: Event, after: bool = False, at_s: float = 101.0
) -> tuple[bool | None, str]:
    context = ScriptedContext(events)
    context.clock = lambda: at_s  # type: ignore[method-assign]
    drills, readings = ([DRILL], READING) if after else ([], {})
    return await ContextProber(context).ask(probe(text), drills, readings)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_the_example_of_each_kind_is_one(kind: object) -> None:
    example = getattr(kind, "example")  # noqa: B009 - of the test's parameter
    assert probe(example).kind == getattr(kind, "name")  # noqa: B009


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("quick", "is not a probe"),
        ("throughput < 3", "It is compared by >=."),
        ("throughput >= x", "'x' is not a number."),
        ("throughput >= nan", "'nan' is not a number."),
        ("replicas-ready >= 1", "It takes no limit."),
        ("prometheus: up", "A query, one of"),
        ("prometheus: > 3", "A query, one of"),
        ("command:", "There is no command."),
        ("command: echo 'x", "No closing quotation."),
    ],
)
def test_unknown_probe_is_answered_with_the_known_ones(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        probe(text)
    assert said in str(caught.value)


def test_a_probe_is_called_by_what_it_asks_and_asked_when_it_makes_sense() -> None:
    assert name_of(probe("throughput >= 80 %")) == "throughput >= 80"
    assert probe("throughput").when == ("before", "after")
    assert probe("throughput", ("during",)).when == ("during",)
    spec = probe('prometheus: sum(up{job="a"} > bool 0) == 3')
    assert (spec.query, spec.operator, spec.limit) == ('sum(up{job="a"} > bool 0)', "==", 3.0)


def groups(ready: int, *, suspended: bool = False) -> GroupsListed:
    group = WorkerGroup("gpu", 2, ready, 0, 4, suspended=suspended)
    return GroupsListed(at_s=1.0, source="backend", groups=(group,))


async def test_replicas_are_ready_when_each_group_has_what_it_wants() -> None:
    assert await asked("replicas-ready", groups(2)) == (True, "2 of 2 ready")
    assert await asked("replicas-ready", groups(1)) == (False, "1 of 2 ready")
    assert await asked("replicas-ready") == (None, "no worker group is known")
    assert (await asked("replicas-ready", groups(0, suspended=True)))[0] is None


async def test_throughput_is_compared_with_that_before_the_fault() -> None:
    again = tick(1, 100.5, 51, 60)
    ok, value = await asked("throughput >= 90", *trained(), again, after=True)
    assert (ok, value) == (True, "100 % (200 of 200 samples/s)")
    slow = replace(again, samples=tuple(replace(one, samples_per_s=40.0) for one in again.samples))
    assert await asked("throughput >= 90", *trained(), slow, after=True) == (
        False, "40 % (80 of 200 samples/s)",
    )  # fmt: skip


async def test_throughput_of_a_run_that_stands_still_is_none() -> None:
    assert await asked("throughput", *trained(), after=True) == (
        None, "no throughput is known yet",
    )  # fmt: skip
    ok, value = await asked("throughput", *trained(), after=True, at_s=140.0)
    assert (ok, value) == (False, "no sample since the fault, 40 s ago")
    again = tick(1, 100.5, 51, 60)
    ok, value = await asked("throughput", *trained(), again, after=True, at_s=140.0)
    assert (ok, value) == (False, "no sample for 40 s")


async def test_throughput_before_a_fault_is_whether_there_is_any() -> None:
    assert await asked("throughput", *trained()) == (True, "200 samples/s")
    assert await asked("throughput") == (None, "there is no run")


async def test_a_checkpoint_has_an_age() -> None:
    saved = MetricsReported(
        at_s=90.0, source="telemetry", run_id=RUN, attempt=1, checkpoint=Checkpoint(40, "/c")
    )
    assert await asked("checkpoint-age <= 10", *trained(), saved) == (False, "11 s")
    assert await asked("checkpoint-age <= 60", *trained(), saved) == (True, "11 s")
    assert await asked("checkpoint-age", *trained()) == (None, "no checkpoint was seen")
    assert await asked("checkpoint-age") == (None, "there is no run")


async def test_loss_probe_is_unknown_without_a_run() -> None:
    assert await asked("loss-continuous") == (None, "there is no run")
    assert (await asked("loss-continuous", *trained(), after=True))[0] is None


async def test_a_loss_that_is_to_continue_has_a_curve_before_the_fault() -> None:
    assert await asked("loss-continuous", *trained()) == (None, "2 losses known, of 3 at least")
    more = tick(1, 99.9, 51, 60)
    assert await asked("loss-continuous", *trained(), more) == (
        True, "3 losses known, of 3 at least",
    )  # fmt: skip


async def test_a_command_holds_when_it_exits_with_0() -> None:
    assert await external.command(probe("command: true")) == (True, "exit code 0")
    assert await external.command(probe("command: sh -c 'echo a; echo b >&2; exit 3'")) == (
        False, "exit code 3: b",
    )  # fmt: skip


async def test_output_of_a_probe_command_is_limited_and_cleaned() -> None:
    text = "command: sh -c 'yes | head -c 3000000; printf \"\\n\\033[31mred\\007\"'"
    assert await external.command(probe(text)) == (True, "exit code 0: red")


async def test_a_command_that_is_not_there_reports_it() -> None:
    with pytest.raises(CockpitError, match=r"no-such-program cannot be run: No such file"):
        await external.command(probe("command: no-such-program"))


async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    spec = ProbeSpec("command", query=f"sh -c 'sleep 300 & echo $! > {pid}; wait'")
    running = asyncio.create_task(external.command(spec))
    await until(lambda: pid.exists() and pid.read_text().endswith("\n"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(running, 0.1)
    child = int(pid.read_text())
    await until(lambda: not _lives(child))


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_query_without_a_prometheus_reports_why_there_is_none() -> None:
    async def find() -> PrometheusSettings:
        return PrometheusSettings("", why_not="none is configured")

    spec = probe("prometheus: up == 1")
    assert await external.prometheus(spec, find) == (None, "none is configured")
    assert await external.prometheus(spec, None) == (None, "no Prometheus is known")


async def test_all_series_of_a_query_have_to_hold(tmp_path: Path) -> None:
    series = [Sample("heat", {"rank": str(rank)}, 40.0 + rank) for rank in range(3)]
    with (
        Exporter(series).serve() as exporter,
        PrometheusServer(tmp_path, [f"127.0.0.1:{exporter.port}"]).running() as server,
    ):
        server.await_series("heat")

        async def find() -> PrometheusSettings:
            return PrometheusSettings(server.url)

        async def ask(text: str) -> tuple[bool | None, str]:
            return await external.prometheus(probe(text), find)

        assert await ask("prometheus: heat < 50") == (True, "40")
        assert await ask("prometheus: heat < 42") == (False, "42, 1 of 3 series")
        assert await ask("prometheus: max(heat) == 42") == (True, "42")
        assert await ask("prometheus: cold < 50") == (None, "the query has no series")
        with pytest.raises(CockpitError):
            await ask("prometheus: heat{ < 50")


async def test_a_run_trains_while_its_steps_are_fresh() -> None:
    assert await asked("training", *trained()) == (True, "step 50")
    assert await asked("training", *trained(), at_s=130.0) == (False, "no step for 31 s")
    ok, value = await asked("training", *trained(), after=True, at_s=110.0)
    assert (ok, value) == (False, "no step since the fault, 10 s ago")
    assert await asked("training") == (None, "there is no run")
