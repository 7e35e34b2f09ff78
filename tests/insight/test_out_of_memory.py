"""The memory monitor's kills are an alert on any node, with a run or without."""

from __future__ import annotations

from msgspec.structs import replace

from cockpit.insight.causes.types import Category
from cockpit.insight.detectors.findings import findings
from cockpit.insight.detectors.hysteresis import AlertState
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.model.alert import Severity
from cockpit.model.cluster import Node
from cockpit.model.death import MemoryKill
from cockpit.model.event import AlertRaised, MemoryKillsListed, NodesListed
from cockpit.store.store import Store
from tests.causes.corpus import ENDED_S, Case, attempt, verdict

NOW_S = 1_763_712_000.0
DETAIL = "Memory on the node was 3.8GB / 4.0GB (0.95), which exceeds the threshold of 0.95."


def kill(number: int, node: str = "h", ip: str = "10.0.0.1", pid: int = 0) -> MemoryKill:
    return MemoryKill(f"w{number}", node, ip, pid or 900 + number, NOW_S - number, DETAIL)


def store_with(*kills: MemoryKill) -> Store:
    store = Store()
    head = Node("h", "10.0.0.1", "head", True, True)
    store.apply(NodesListed(at_s=NOW_S, source="ray", nodes=(head,)))
    store.apply(MemoryKillsListed(at_s=NOW_S, source="failures", kills=kills))
    return store


def test_kills_on_the_head_are_one_critical_finding_without_a_run() -> None:
    [found] = findings(store_with(*map(kill, range(15))), None, NOW_S)
    assert (found.kind, found.subject) == ("out-of-memory", "node 10.0.0.1")
    assert found.severity is Severity.CRITICAL
    assert found.what == "Ray's memory monitor killed 15 processes on the head (10.0.0.1)"
    assert found.why == DETAIL


def test_each_node_has_its_own_finding_and_old_kills_have_none() -> None:
    old = replace(kill(0, "o"), at_s=NOW_S - 1_801)
    found = findings(store_with(kill(1), kill(2, "n", "10.0.0.2"), old), None, NOW_S)
    assert [one.subject for one in found] == ["node 10.0.0.1", "node 10.0.0.2"]
    assert found[1].severity is Severity.WARNING
    assert found[1].what == "Ray's memory monitor killed 1 process on 10.0.0.2"


def test_alert_is_raised_at_once() -> None:
    store = store_with(kill(1))
    raised = AlertState().update(store, None, findings(store, None, NOW_S), NOW_S, Thresholds())
    [event] = raised
    assert isinstance(event, AlertRaised)
    assert event.alert.id == "out-of-memory/node 10.0.0.1"


def test_killed_rank_is_named_and_is_the_cause_of_its_attempt() -> None:
    killed = MemoryKill("w", "node-1", "10.0.0.2", 101, ENDED_S - 1, DETAIL)
    listed = MemoryKillsListed(at_s=ENDED_S, source="failures", kills=(killed,))
    case = Case("x", Category.HOST_MEMORY, attempt("rank 0: lost a peer: Broken pipe", listed))
    cause = verdict(case)
    assert (cause.category, cause.ranks, cause.quote) == (Category.HOST_MEMORY, (1,), DETAIL)
    store = Store()
    for event in case.events:
        store.apply(event)
    [found] = [one for one in findings(store, None, ENDED_S) if one.kind == "out-of-memory"]
    assert found.what.endswith("on w-1, rank 1 of run r among them")
