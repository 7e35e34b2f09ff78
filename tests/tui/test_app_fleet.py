from __future__ import annotations

import asyncio
import threading

import pytest
from msgspec.structs import replace

from cockpit.insight.nodes.incident import Incident, Kind, RunIncidents
from cockpit.model.cluster import ClusterRef
from cockpit.model.drill import KeptDrill
from cockpit.model.error import UnreachableError, UsageError
from cockpit.model.event import ClusterSeen, SourceHealth
from cockpit.recorder.drills import DrillHistory
from cockpit.recorder.reading.node_history import NodeHistory
from cockpit.tui.app import CockpitApp
from cockpit.tui.app_base import Conducting
from cockpit.tui.changes.actions import Connection, Log, Reconnect
from cockpit.tui.commands import cluster_name, commands
from cockpit.tui.main.screen import MainScreen
from cockpit.tui.views.fleet.rows import clusters
from cockpit.tui.views.fleet.view import FleetView
from cockpit.tui.widgets.log.view import LogView
from tests.tui.conftest import Open, Seen
from tests.tui.drilled import past
from tests.tui.simulated import START_S, Simulation, digits
from tests.tui.simulated_kubernetes import CONTEXT, OTHER, REF, STAGING, fleet, kube

NOW_S = START_S + 60


def leads_to(other: Simulation, seen: list[ClusterRef]) -> Reconnect:
    """A route to any cluster; `seen` records which one was requested."""

    def reconnect(ref: ClusterRef, log: Log) -> Connection:
        seen.append(ref)
        log(f"asking for {ref.name}")
        other.session.start()
        return Connection(other.session, other.actions)

    return reconnect


def ended(simulation: Simulation) -> bool:
    """Whether its session was started, and closed again."""
    thread = simulation.session._thread
    return thread is not None and not thread.is_alive()


def view(seen: Seen) -> str:
    screen = seen.app.screen
    assert isinstance(screen, MainScreen)
    return screen.shown


async def test_the_fleet_has_a_row_a_cluster_and_the_reason_of_who_does_not_answer(
    cockpit: Open,
) -> None:
    async with cockpit(simulation=kube(), fleet=fleet(NOW_S), size=(200, 50)) as seen:
        await seen.press("0")
        await seen.sees("6 clusters in 5 contexts", "10 of 21 workers ready", "156 GPUs")
        lines = seen.text.splitlines()
        (lost,) = (line for line in lines if "on-prem" in line and "no answer" in line)
        assert "last update 1 m ago · connect timed out after 5 s" in lost
        assert any("edge" in line and "1/1" in line for line in lines)
        (refused,) = (line for line in lines if "laptop" in line)
        assert "connection refused: 127.0.0.1:6443" in refused
        assert any("empty" in line and "no RayCluster" in line for line in lines)
        (here,) = (line for line in lines if line.startswith("●"))
        assert "llm-train" in here
        assert "degraded" in here


async def test_clusters_of_a_stale_context_turn_grey_and_stay(cockpit: Open) -> None:
    async with cockpit(simulation=kube(), fleet=fleet(NOW_S), size=(200, 50)) as seen:
        await seen.press("0")
        screen = seen.app.screen
        assert isinstance(screen, MainScreen)
        table = screen.view.query_one("#fleet")
        rows = {row.cells[3].text: row for row in table.rows}  # type: ignore[attr-defined]
        assert {cell.style for cell in rows["edge"].cells} == {"muted", "accent"}
        assert rows["llm-eval"].cells[4] == ("ready", "good")


async def test_with_several_clusters_and_none_named_the_fleet_is_there_to_choose_from(
    cockpit: Open,
) -> None:
    asked: list[ClusterRef] = []
    other = kube()
    other.advance(60)
    reconnect = leads_to(other, asked)
    size = (120, 30)
    async with cockpit(chosen=False, fleet=fleet(NOW_S), reconnect=reconnect, size=size) as seen:
        await seen.sees("choose a cluster", "No cluster is chosen yet", "llm-eval")
        await seen.press("1")
        await seen.sees("0 shows the fleet")
        await seen.press("0", "j", "j", "enter")
        await seen.until(lambda: asked == [REF])
        await seen.sees("● degraded", "RUNNING", "service proxy")
        assert view(seen) == "overview"
        seen.app.connection.close()  # type: ignore[union-attr]


async def test_theme_is_that_of_the_context(cockpit: Open) -> None:
    other = digits()
    other.advance(60)
    route = leads_to(other, [])
    async with cockpit(simulation=kube(), fleet=fleet(NOW_S), reconnect=route) as seen:
        before = seen.app.theme
        seen.app.context_themes = {f"{CONTEXT[:2]}*": "high-contrast", "*": "ansi-16"}
        await seen.app.show_cluster(switched=False)
        assert seen.app.theme == "high-contrast"
        seen.app.context_themes = {CONTEXT: "high-contrast"}
        await seen.press("colon", *"cluster llm-eval", "enter")
        await seen.sees("local:demo")
        assert seen.app.theme == before, "a cluster of no context has the theme of the settings"
        other.session.close()


async def test_switching_forgets_the_cluster_before_and_closes_its_session(cockpit: Open) -> None:
    other = digits()
    other.advance(60)
    other.backend.denied = {"scale": "not here"}
    asked: list[ClusterRef] = []
    before = kube()
    async with cockpit(
        simulation=before, fleet=fleet(NOW_S), reconnect=leads_to(other, asked)
    ) as seen:
        await seen.press("4", "s", "j", "j", "slash", *"gpu", "enter")
        await seen.sees("Pods · 6 of 7")
        theme = seen.app.theme
        await seen.press("colon", *"cluster llm-eval", "enter")
        await seen.until(lambda: asked == [OTHER])
        await seen.sees("Pods · 3", "demo-head", "local:demo")
        assert "llm-train" not in seen.text
        assert view(seen) == "pods"
        assert seen.app.theme == theme
        await seen.until(lambda: seen.app.capabilities.get("scale", None) is not None)
        assert seen.app.refusal("scale") == "not here"
        assert seen.app.connection is not None
        assert seen.app.connection.fleet is not None
        assert seen.app.connection.reconnect is not None
        await seen.until(lambda: ended(before))
        other.session.close()


async def test_filters_of_the_previous_cluster_are_dropped(cockpit: Open) -> None:
    other = digits()
    other.advance(60)
    route = leads_to(other, [])
    async with cockpit(simulation=kube(), fleet=fleet(NOW_S), reconnect=route) as seen:
        screen = seen.app.screen
        assert isinstance(screen, MainScreen)
        await seen.press("0", "slash", *"staging", "enter", "4", "slash", *"gpu", "enter")
        await seen.press("5", "o", "slash", *"epoch", "enter")
        log = screen.view.query_one(LogView)
        await seen.until(lambda: log.pattern == "epoch")
        assert screen.filters == {"fleet": "staging", "pods": "gpu", "jobs": "epoch"}
        await seen.press("colon", *"cluster llm-eval", "enter")
        await seen.sees("local:demo")
        assert log.pattern == ""
        assert screen.filters == {"fleet": "staging"}, "the fleet is the same"
        other.session.close()


async def test_incidents_of_the_previous_cluster_are_dropped(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, asked = threading.Event(), list[ClusterRef]()
    node = "gpu-pool-a-1"
    bad = RunIncidents(
        ("kuberay", REF.namespace, REF.name), (Incident(node, Kind.GPU_ERROR, NOW_S, "Xid 79"),), {}
    )

    def of(history: NodeHistory, ref: ClusterRef) -> list[RunIncidents]:
        asked.append(ref)
        if ref == OTHER:
            return []
        go.wait(60)
        return [bad]

    monkeypatch.setattr(NodeHistory, "of", of)
    other = kube()
    other._script = [
        replace(event, ref=OTHER) if isinstance(event, ClusterSeen) else event
        for event in other._script
    ]
    other.advance(60)
    route = leads_to(other, [])
    size = (200, 50)
    async with cockpit(simulation=kube(), fleet=fleet(NOW_S), reconnect=route, size=size) as seen:
        await seen.press("9")
        await seen.until(lambda: asked == [REF])
        await seen.press("colon", *"cluster llm-eval", "enter")
        await seen.until(lambda: seen.app.store.ref == OTHER)
        go.set()
        await seen.until(lambda: asked == [REF, OTHER])
        seen.app.redraw()
        await seen.sees(node)
        assert "Xid 79" not in seen.text
        other.session.close()


async def test_answers_about_drills_of_the_previous_cluster_are_dropped(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, asked_other, may_close = (threading.Event() for _ in range(3))
    DrillHistory().keep(KeptDrill(past("drill-01aa", -7200, 1.0)))
    before, other = kube(), digits(kill_s=None)
    other.advance(60)
    close = before.session.close

    async def late() -> str:
        await asyncio.to_thread(answer.wait, 60)
        return "ana@bastion:7"

    async def nobody() -> str:
        asked_other.set()
        return ""

    def close_late() -> None:
        may_close.wait(60)  # else it cancels the answer
        close()

    monkeypatch.setattr(before.actions, "drill_elsewhere", late)
    monkeypatch.setattr(other.actions, "drill_elsewhere", nobody)
    monkeypatch.setattr(before.session, "close", close_late)
    route = leads_to(other, [])
    async with cockpit(simulation=before, fleet=fleet(NOW_S), reconnect=route) as seen:
        await seen.press("6")
        await seen.sees("Earlier drills · 0")
        await seen.press("colon", *"cluster llm-eval", "enter")
        await seen.sees("local:demo")
        answer.set()
        await seen.until(asked_other.is_set)
        assert "ana@bastion" not in seen.text
        await seen.sees("Earlier drills · 1")
        may_close.set()
        other.session.close()


async def test_a_cluster_that_does_not_answer_leaves_the_one_before(cockpit: Open) -> None:
    def reconnect(ref: ClusterRef, say: Log) -> Connection:
        raise UnreachableError(f"No way to {ref.name}.", "The API server is gone.", "Wait.")

    async with cockpit(simulation=kube(), fleet=fleet(NOW_S), reconnect=reconnect) as seen:
        await seen.press("colon", *"cluster llm-eval", "enter")
        await seen.until(lambda: "No way to llm-eval." in seen.toasts)
        await seen.sees("● degraded")
        assert seen.app.switching is None


async def test_while_the_way_is_made_the_screen_lives_and_the_last_wish_counts(
    cockpit: Open,
) -> None:
    slow, asked = threading.Event(), list[str]()
    first, second = kube(), digits()
    for simulation in (first, second):
        simulation.advance(60)

    def reconnect(ref: ClusterRef, say: Log) -> Connection:
        asked.append(ref.name)
        simulation = first if ref == OTHER else second
        if ref == OTHER:
            slow.wait(60)
        simulation.session.start()
        return Connection(simulation.session, simulation.actions)

    async with cockpit(simulation=kube(), fleet=fleet(NOW_S), reconnect=reconnect) as seen:
        await seen.press("colon", *"cluster llm-eval", "enter")
        await seen.sees("connecting to ")
        await seen.press("4")
        await seen.sees("Pods · 7")
        await seen.press("colon", *"cluster canary", "enter")
        await seen.sees("local:demo")
        slow.set()
        # The first route is ready, but no longer needed.
        await seen.until(lambda: ended(first))
        await seen.sees("local:demo")
        assert asked == ["llm-eval", "canary"]
        second.session.close()


async def test_dialogs_of_the_previous_cluster_are_closed(cockpit: Open) -> None:
    go, other = threading.Event(), digits()
    other.advance(60)

    def reconnect(ref: ClusterRef, say: Log) -> Connection:
        go.wait(60)
        other.session.start()
        return Connection(other.session, other.actions)

    async with cockpit(simulation=kube(), fleet=fleet(NOW_S), reconnect=reconnect) as seen:
        await seen.press("colon", *"cluster llm-eval", "enter")
        await seen.sees("connecting to ")
        await seen.press("4", "K")
        await seen.sees("Kill the head?")
        go.set()
        await seen.sees("Pods · 3", "local:demo")
        assert isinstance(seen.app.screen, MainScreen)
        asked = [*seen.simulation.backend.asked, *other.backend.asked]
        assert not [call for call in asked if call[0] == "delete_pod"]
        other.session.close()


async def test_a_drill_that_begins_during_the_connecting_keeps_its_cluster(cockpit: Open) -> None:
    go, here, other = threading.Event(), kube(), digits()
    other.advance(60)

    def reconnect(ref: ClusterRef, say: Log) -> Connection:
        go.wait(60)
        other.session.start()
        return Connection(other.session, other.actions)

    async with cockpit(simulation=here, fleet=fleet(NOW_S), reconnect=reconnect) as seen:
        await seen.press("colon", *"cluster llm-eval", "enter")
        await seen.sees("connecting to ")
        seen.app.conducting = Conducting("pod-kill", lambda: None, lambda: None)
        go.set()
        await seen.until(lambda: seen.app.switching is None)
        assert seen.app.session is here.session
        await seen.until(lambda: "A drill is running: pod-kill." in seen.toasts)
        await seen.until(lambda: ended(other))
        assert not ended(here)
        seen.app.conducting = None


async def test_help_that_is_read_during_the_start_stays_and_the_cluster_is_there_below(
    cockpit: Open,
) -> None:
    go, simulation = threading.Event(), digits()
    simulation.advance(60)

    def connect(say: Log) -> Connection:
        go.wait(60)
        return Connection(simulation.session, simulation.actions)

    app = CockpitApp(connect)
    with simulation.session:
        async with app.run_test(size=(80, 24)) as pilot:
            seen = Seen(app, pilot, simulation)
            await seen.press("question_mark")
            await seen.sees("Keys · Overview")
            go.set()
            await seen.until(lambda: bool(app.capabilities))
            await seen.sees("Keys · Overview")
            await seen.press("escape")
            await seen.sees("● ready", "RUNNING")


async def test_a_context_with_one_cluster_is_looked_at_and_of_more_there_is_a_choice(
    cockpit: Open,
) -> None:
    asked: list[ClusterRef] = []
    other = kube()
    other.advance(60)
    async with cockpit(
        simulation=kube(), fleet=fleet(NOW_S), reconnect=leads_to(other, asked)
    ) as seen:
        await seen.press("colon", *"context staging", "enter")
        await seen.sees("only staging", "canary")
        assert "llm-eval" not in seen.text
        await seen.press("escape")
        await seen.sees("llm-eval")
        await seen.press("colon", *"namespace ml-research", "enter")
        await seen.sees("only arn:aws")
        assert "nightly" not in seen.text
        await seen.press("colon", *"namespace all", "enter")
        await seen.sees("nightly", "llm-eval")
        await seen.press("colon", *"context nowhere", "enter")
        await seen.until(lambda: "There is no context 'nowhere'." in seen.toasts)
        assert asked == []
        await seen.press("colon", *"context on-prem", "enter")
        await seen.until(lambda: [ref.name for ref in asked] == ["edge"])
        other.session.close()


async def test_the_fleet_sorts_filters_and_follows(cockpit: Open) -> None:
    session = fleet(NOW_S)
    async with cockpit(simulation=kube(), fleet=session, size=(160, 40)) as seen:
        await seen.press("0", "slash", *"staging", "enter")
        await seen.sees("Fleet · 2 of 9 with “staging”")
        await seen.press("escape", "s")
        screen = seen.app.screen
        assert isinstance(screen, MainScreen)
        assert isinstance(screen.view, FleetView)
        assert screen.view.order.by == "context"
        session.dispatch(
            SourceHealth(at_s=NOW_S, source="context:staging", ok=False, error="expired token")
        )
        await seen.sees("expired token")


async def test_one_local_cluster_has_no_fleet(cockpit: Open) -> None:
    async with cockpit() as seen:
        assert "Fleet" not in seen.text
        await seen.press("9")
        await seen.sees("Ray nodes")
        assert "K8s nodes" not in seen.text
        await seen.press("0")
        await seen.sees("This cluster is not on Kubernetes.")
        await seen.press("colon", *"cluster x", "enter")
        await seen.until(lambda: "There is no cluster 'x'." in seen.toasts)


@pytest.mark.parametrize("view", ["1", "9", "0"])
@pytest.mark.parametrize("read_only", [False, True])
async def test_eighty_cells_show_the_names_of_all_views(
    cockpit: Open, view: str, read_only: bool
) -> None:
    async with cockpit(simulation=kube(), fleet=fleet(NOW_S), read_only=read_only) as seen:
        await seen.press(view)
        await seen.sees("0Fleet")
        head = seen.text.splitlines()[0]
        for name in ("1Over", "2Rank", "3Chart", "4Pods", "5Jobs", "6Drill", "7Trial", "8Alert"):
            assert name in head
        assert ("read-only" in head) == read_only
        await seen.pilot.click("Tabs", offset=(head.index("5Jobs"), 0))
        await seen.sees("ENTRYPOINT")


def known() -> list[ClusterRef]:
    session = fleet(NOW_S)
    session.drain()
    return clusters(session.store)


def test_a_name_means_the_nearest_cluster_and_may_be_written_in_full() -> None:
    assert cluster_name.named(known(), "llm-train", REF) == REF
    assert cluster_name.named(known(), "staging/llm-train", REF) == STAGING
    assert cluster_name.named(known(), f"{CONTEXT}/ml-research/llm-eval", None) == OTHER
    with pytest.raises(UsageError, match="matches several"):
        cluster_name.named(known(), "llm-train", None)
    with pytest.raises(UsageError, match="no cluster"):
        cluster_name.named(known(), "llm", None)


def test_completion_knows_contexts_namespaces_and_the_shortest_names() -> None:
    session = fleet(NOW_S)
    session.drain()

    def complete(line: str) -> list[str]:
        return commands.completions(line, session.store, commands.Names(fleet=session.store))

    assert complete("context st") == ["context staging"]
    assert complete("namespace a") == ["namespace all"]
    assert complete("namespace ml") == ["namespace ml-research"]
    assert complete("cluster llm-e") == ["cluster llm-eval"]
    assert complete("cluster st") == ["cluster staging/llm-train"]
