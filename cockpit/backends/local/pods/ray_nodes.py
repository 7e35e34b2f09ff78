"""Which Ray nodes the head knows to be alive, asked over HTTP with the standard library alone."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cockpit.backends.local.address import require_own_listener
from cockpit.model.error import CockpitError
from cockpit.model.limited_json import MAX_BYTES, loads


@dataclass(frozen=True, slots=True)
class RayNodes:
    """The addresses of the living nodes, and Ray's words on each dead one by its address."""

    alive: frozenset[str]
    dead: Mapping[str, str]


def ask_nodes(host: str, port: int, token: str, timeout_s: float = 5.0) -> RayNodes | None:
    """None while the head does not answer, or not yet sensibly. Blocks: run it in a thread."""
    raw = _get(host, port, token, "/api/v0/nodes?limit=10000", timeout_s)
    try:
        nodes = raw["data"]["result"]["result"] if raw else None
        if nodes is None:
            return None
        alive = {str(node["node_ip"]) for node in nodes if node["state"] == "ALIVE"}
        dead = {
            str(node["node_ip"]): str(node["state_message"] or "")
            for node in nodes
            if node["state"] == "DEAD" and node["node_ip"] not in alive
        }
    except (KeyError, TypeError):
        return None
    return RayNodes(frozenset(alive), dead)


def ask_version(host: str, port: int, token: str, timeout_s: float = 5.0) -> str:
    """Ray's version, or nothing."""
    raw = _get(host, port, token, "/api/version", timeout_s)
    return str(raw.get("ray_version", "")) if raw else ""


def _get(host: str, port: int, token: str, path: str, timeout_s: float) -> Mapping[str, Any] | None:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.connect()
        require_own_listener(host, port, "The cluster's token")
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = answer.read(MAX_BYTES + 1)
        raw = loads(body) if answer.status == 200 else None
    except (CockpitError, OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return raw if isinstance(raw, dict) else None
