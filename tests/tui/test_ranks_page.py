"""The page of a rank: its facts, and the state of its process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.actions import audit
from cockpit.model.event import Event, LogLines, MetricsReported, RankSampled
from cockpit.model.run import RankMetrics, RankSample
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection
from cockpit.tui.dialogs.reading import Reading
from cockpit.tui.terminal.symbols import Symbols, use_symbols
from cockpit.tui.views.detail_screen import DetailScreen
from cockpit.tui.views.ranks.page import RankScreen
from cockpit.tui.views.ranks.page_facts import section_bar, section_legend, sections
from cockpit.tui.views.ranks.stack import AskSeconds
from tests.sources.fake_dashboard import FakeDashboard, Fault
from tests.sources.test_ray_tools import SVG
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import RUN, START_S, Simulation, digits, wide
from tests.tui.test_app_snapshots import Compare, shown

FULL = RankSample(0, 1, 0.0, 200, 101, 200, step_time_s=0.1, data_wait_s=0.01, forward_s=0.03)


def known() -> Simulation:
    """A rank on a GPU that reports all metrics."""
    simulation = wide(16, until_s=30)
    simulation.advance(30)
    simulation.session.drain()
    run = simulation.session.store.runs[RUN]
    sample = run.ranks[3].sample
    assert sample is not None
    full = replace(
        sample,
        at_s=START_S + 30.5,
        forward_s=0.013,
        backward_s=0.019,
        optimizer_s=0.004,
        checkpoint_s=0.02,
        tokens_per_s=41_000.0,
        mfu_percent=38.0,
        gpu_memory_total_bytes=150_000_000_000,
        gpu_clock_mhz=1980,
        gpu_throttle="power cap",
        gpu_ecc_errors=2,
        gpu_nvlink_rx_bytes_per_s=120e9,
        gpu_nvlink_tx_bytes_per_s=118e9,
        gpu_pcie_rx_bytes_per_s=2e9,
        gpu_pcie_tx_bytes_per_s=1e9,
    )
    reported = MetricsReported(
        at_s=START_S + 30.5,
        source="telemetry",
        run_id=RUN,
        attempt=1,
        metrics={"loss": 1.3},
        ranks=(RankMetrics(3, {"loss": 1.31, "acc\x1b[31muracy": 0.5}),),
    )
    session = simulation.session
    session.dispatch(
        RankSampled(at_s=START_S + 30.5, source="telemetry", run_id=RUN, samples=(full,))
    )
    session.dispatch(reported)
    return simulation


def pictures(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.glob("rank-0-*.svg")]


async def press(seen: Seen, *keys: str) -> None:
    await seen.press(*keys)
    seen.app.redraw()
    await seen.pilot.pause()


async def page(seen: Seen, *down: str) -> None:
    await press(seen, "2", *down, "enter")
    await seen.until(lambda: isinstance(seen.app.screen, RankScreen))
    seen.app.redraw()
    await seen.pilot.pause()


def test_sections_share_the_step_and_the_rest_is_other() -> None:
    found = {section.name: section for section in sections(FULL)}
    assert found["data"].share == pytest.approx(0.1)
    assert found["forward"].seconds == 0.03
    assert found["other"].share == pytest.approx(0.6)
    assert sum(section.share for section in found.values()) == pytest.approx(1)


def test_a_checkpoint_is_shared_out_over_the_steps_and_overlap_shares_its_sum() -> None:
    sample = replace(FULL, checkpoint_s=2.0, comm_s=0.14)
    found = {section.name: section for section in sections(sample)}
    assert found["checkpoint"].seconds == pytest.approx(0.02)
    assert "other" not in found
    assert sum(section.share for section in found.values()) == pytest.approx(1)
    assert found["comm"].share == pytest.approx(0.14 / 0.2)
    assert sections(replace(FULL, data_wait_s=None, forward_s=None)) == ()


@pytest.mark.parametrize("kind", [Symbols.BLOCK, Symbols.ASCII])
def test_the_bar_is_as_wide_as_asked_and_reads_without_colour(kind: Symbols) -> None:
    use_symbols(kind)
    try:
        bar = "".join(text for text, _ in section_bar(sections(FULL), 50))
        assert len(bar) == 50
        if kind is Symbols.ASCII:
            assert bar == "d" * 5 + "f" * 15 + "." * 30
        legend = ["".join(text for text, _ in line) for line in section_legend(sections(FULL), 40)]
        assert "data 10 % 10 ms" in legend[0]
        assert "other 60 % 60 ms" in legend[-1]
        assert max(len(line.rstrip()) for line in legend) <= 40
    finally:
        use_symbols(None)


async def test_a_page_reports_all_numbers_in_groups(cockpit: Open) -> None:
    async with cockpit(at_s=30.6, size=(200, 50), simulation=known()) as seen:
        await page(seen, "j", "j", "j")
        await seen.sees(
            "MFU 38 %",
            "(72 %)",
            "ECC 2, throttled: power cap",
            "NVLink in 112 GiB/s",
            "straggler score",
            "accuracy 0.5000",
            "checkpoint 2 % 1 ms",
        )
        assert "[31m" not in seen.text


async def test_stack_is_shown_on_its_own_page_and_audited(cockpit: Open) -> None:
    async with FakeDashboard().serve() as fake:
        simulation = digits()
        simulation.backend.route = fake.route
        fake.fail("/worker/traceback", Fault(200, "Thread 7 (idle)\n  \x1b[31mall_reduce (d.py:3)"))
        async with cockpit(at_s=60, size=(120, 40), simulation=simulation) as seen:
            await page(seen)
            await press(seen, "T")
            await seen.sees("Stack of rank 0", "all_reduce (d.py:3)")
            assert "[31m" not in seen.text
            assert any("pid=42" in asked for asked in fake.asked)
            assert '"action": "stack"' in audit.path().read_text()


async def test_failed_stack_reports_the_reason_and_a_fix(cockpit: Open) -> None:
    async with FakeDashboard().serve() as fake:
        simulation = digits()
        simulation.backend.route = fake.route
        fake.fail("/worker/traceback", Fault(500, "Failed to execute: py-spy is not installed"))
        async with cockpit(at_s=60, size=(120, 40), simulation=simulation) as seen:
            await page(seen)
            await press(seen, "T")
            await seen.until(lambda: "pip install py-spy" in seen.toasts)
            await seen.until(lambda: not isinstance(seen.app.screen, Reading))
            assert "is not installed on its node" in seen.toasts


async def test_a_profile_asks_for_how_long_and_writes_its_flame_graph(
    cockpit: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with FakeDashboard().serve() as fake:
        simulation = digits()
        simulation.backend.route = fake.route
        fake.fail("/worker/cpu_profile", Fault(200, SVG.decode()))
        async with cockpit(at_s=60, size=(120, 40), simulation=simulation) as seen:
            await page(seen)
            await press(seen, "F")
            await seen.until(lambda: isinstance(seen.app.screen, AskSeconds))
            await press(seen, "backspace", "0", "enter")
            await seen.sees("Whole seconds, 1 to 60.")
            await press(seen, "backspace", "2", "enter")
            await seen.sees("Profile of rank 0", "60.0", "step (train.py:5)", "Flame graph")
            assert any("duration=2" in asked for asked in fake.asked)
    assert pictures(tmp_path) == [SVG]


async def test_cancelled_profile_sends_no_request(cockpit: Open) -> None:
    async with FakeDashboard().serve() as fake:
        simulation = digits()
        simulation.backend.route = fake.route
        async with cockpit(at_s=60, simulation=simulation) as seen:
            await page(seen)
            await press(seen, "M")
            await seen.until(lambda: isinstance(seen.app.screen, AskSeconds))
            await press(seen, "escape")
            await seen.until(lambda: isinstance(seen.app.screen, RankScreen))
            assert not any("memory_profile" in asked for asked in fake.asked)


async def test_the_stack_of_the_selected_rank_from_the_table(cockpit: Open) -> None:
    async with FakeDashboard().serve() as fake:
        simulation = digits()
        simulation.backend.route = fake.route
        fake.fail("/worker/traceback", Fault(200, "Thread 7 (idle)\n  recv (s.py:3)"))
        async with cockpit(at_s=60, size=(120, 40), simulation=simulation) as seen:
            await press(seen, "2", "j", "T")
            await seen.sees("Stack of rank 1", "recv (s.py:3)")


@pytest.mark.parametrize("key", ["T", "F", "M"])
async def test_read_only_refuses_what_pauses_the_rank(cockpit: Open, key: str) -> None:
    async with FakeDashboard().serve() as fake:
        simulation = digits()
        simulation.backend.route = fake.route
        async with cockpit(at_s=60, simulation=simulation, read_only=True) as seen:
            await page(seen)
            await press(seen, key)
            await seen.until(lambda: "read-only" in seen.toasts)
            assert not isinstance(seen.app.screen, AskSeconds)
            assert not any("worker/" in asked or "memory" in asked for asked in fake.asked)


class OwnLog:
    """The source that follows the log of rank 1."""

    name = "rank:1"

    async def events(self) -> AsyncIterator[Event]:
        lines = ("epoch 3 of rank 1",)
        yield LogLines(at_s=START_S + 60, source=self.name, stream=self.name, lines=lines)


async def test_the_log_is_the_ranks_own_where_it_can_be_followed(cockpit: Open) -> None:
    async with cockpit(at_s=60, size=(120, 40)) as seen:
        connection = seen.app.connection
        assert connection is not None
        seen.app.connection = replace(
            connection, log_source=lambda stream: OwnLog() if stream == "rank:1" else None
        )
        await page(seen, "j")
        await press(seen, "l")
        await seen.until(lambda: not isinstance(seen.app.screen, RankScreen))
        await seen.sees("epoch 3 of rank 1")


async def test_without_a_way_to_its_own_log_the_pods_is_shown(cockpit: Open) -> None:
    async with cockpit(at_s=60, size=(120, 40)) as seen:
        await page(seen, "j")
        await press(seen, "l")
        await seen.sees("Log · pod:demo-workers-2")


@pytest.fixture
def opened() -> Iterator[Callable[[Simulation, float], CockpitApp]]:
    simulations: list[Simulation] = []

    def start(simulation: Simulation, at_s: float) -> CockpitApp:
        simulations.append(simulation)
        simulation.advance(at_s)
        simulation.session.start()
        connection = Connection(simulation.session, simulation.actions)
        return CockpitApp(lambda say: connection, cluster="local:demo")

    yield start
    for simulation in simulations:
        simulation.session.close()


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
def test_a_rank_that_reports_everything(
    opened: Callable[[Simulation, float], CockpitApp], snap_compare: Compare, size: tuple[int, int]
) -> None:
    assert snap_compare(
        opened(known(), 30.6),
        terminal_size=size,
        run_before=lambda pilot: shown(pilot, "ranks", "j", "j", "j", "enter"),
    )


async def test_title_is_the_path_and_a_click_on_its_first_part_goes_back(cockpit: Open) -> None:
    async with cockpit() as seen:
        for opened, title in (
            (("2", "enter"), "─Ranks › Rank 0─"),
            (("4", *":rank 1", "enter"), "─Pods › Rank 1─"),
            (("4", *":rank rank:0", "enter"), "─Pods › Rank 0─"),
            (("1", *":hang", "enter"), "─Overview › Hang · run digits─"),
            ((*":experiments", "enter"), "─Overview › Experiments─"),
        ):
            await seen.press(*opened)
            await seen.until(lambda: isinstance(seen.app.screen, DetailScreen))
            assert seen.text.splitlines()[1].startswith(title)
            await seen.pilot.click(offset=(3, 1))
            await seen.until(lambda: not isinstance(seen.app.screen, DetailScreen))


async def test_click_on_the_key_of_the_other_rank_shows_the_next_one(cockpit: Open) -> None:
    async with cockpit(size=(120, 40)) as seen:
        await seen.press("2", "enter")
        await seen.sees("Ranks › Rank 0")
        x = seen.text.splitlines()[-1].index("other rank")
        await seen.pilot.click("KeyBar", offset=(x, 0))
        await seen.sees("Ranks › Rank 1")


async def test_title_in_a_few_lines_is_without_the_path(cockpit: Open) -> None:
    async with cockpit(size=(20, 5)) as seen:
        await seen.press("2", "enter")
        assert seen.text.splitlines()[1].startswith("─Rank 0─")


async def test_page_of_a_rank_whose_pod_no_longer_exists_is_opened(cockpit: Open) -> None:
    async with cockpit() as seen:
        del seen.app.store.pods["demo-workers-2"]
        await seen.press(*":rank 1", "enter")
        await seen.until(lambda: isinstance(seen.app.screen, RankScreen))
        await seen.press("escape", *":rank 7", "enter")
        await seen.until(lambda: "There is no rank '7'.\nThe run has ranks 0, 1." in seen.toasts)
        assert not isinstance(seen.app.screen, RankScreen)
