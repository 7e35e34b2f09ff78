"""Processes that Ray's memory monitor killed lately, on any node, the head included."""

from __future__ import annotations

from collections import defaultdict

from cockpit import format
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.model.alert import Finding, Severity
from cockpit.model.death import MemoryKill
from cockpit.model.text import one_line
from cockpit.store.store import Store

KIND = "out-of-memory"


def find(store: Store, now_s: float, limits: Thresholds) -> list[Finding]:
    """One finding for each node, that with the most kills first."""
    by_node: dict[str, list[MemoryKill]] = defaultdict(list)
    for kill in store.memory_kills:
        if 0 <= now_s - kill.at_s <= limits.memory_kill_s:
            by_node[kill.node_id].append(kill)
    return [
        _finding(store, kills)
        for kills in sorted(by_node.values(), key=lambda kills: (-len(kills), kills[0].node_id))
    ]


def _finding(store: Store, kills: list[MemoryKill]) -> Finding:
    newest = max(kills, key=lambda kill: kill.at_s)
    node = store.nodes.get(newest.node_id)
    pod = next((p.name for p in store.pods.values() if p.ip and p.ip == newest.node_ip), "")
    where = pod or newest.node_ip or newest.node_id
    if node is not None and node.is_head:
        where = f"the head ({where})"
    killed, of_run = _ranks(store, kills)
    who = f", {killed} of run {of_run} among them" if killed else ""
    return Finding(
        KIND,
        f"node {newest.node_ip or newest.node_id}",
        Severity.CRITICAL if killed or (node is not None and node.is_head) else Severity.WARNING,
        f"Ray's memory monitor killed {format.plural(len(kills), 'process')} on {where}{who}",
        one_line(newest.detail, 300) or "Reported by Ray",
        "Give the node more memory, or start fewer processes on it; for the cause, run: cockpit "
        "why",
    )


def _ranks(store: Store, kills: list[MemoryKill]) -> tuple[str, str]:
    """The ranks among the killed processes, and the name of their run."""
    pids = {(kill.node_id, kill.pid) for kill in kills}
    for run in sorted(store.runs.values(), key=lambda run: -run.started_s):
        ranks = {
            placed.rank
            for attempt in run.attempts.values()
            for placed in attempt.placements
            if (placed.node_id, placed.pid) in pids
        }
        if ranks:
            return format.ranks(ranks), run.name or run.id
    return "", ""
