"""KubeRay's History Server, as its routes are in kuberay/historyserver (August 2026).

`/clusters` lists sessions, `/enter_cluster` loads one and sets cookies, and the routes of the Ray
dashboard need these cookies. A log is listed without the folder of the pattern, by its last lines
or whole, and never streamed. What the collector does not store is 404.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, urlsplit

SESSION = "session_2026-08-20_10-00-00_000000_1"
OLDER = "session_2026-08-19_10-00-00_000000_1"
DEFAULT_LINES, MOST_LINES = 1000, 10_000
HEAD, WORKER = "a" * 56, "b" * 56


@dataclass
class Stored:
    """One session: by node and by name relative to its log directory, the text of each log."""

    cluster: str = "demo"
    namespace: str = "ml"
    created_s: int = 1_787_000_000
    owner: str = ""
    nodes: list[dict[str, Any]] = field(default_factory=lambda: [node(HEAD), node(WORKER)])
    jobs: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[tuple[str, str], str] = field(default_factory=dict)
    endpoints: dict[str, Any] = field(default_factory=dict)
    """By path: what the collector has stored."""


T0 = 1_787_000_000.0
"""When the sessions begin."""
DELETED_S = T0 + 600.0


def node(node_id: str, ended_s: float = DELETED_S) -> dict[str, Any]:
    """Usage is zero: Ray's events do not have it (formatNodeSummaryReplayForResp)."""
    return {
        "t": int(ended_s * 1000),
        "hostname": "",
        "ip": "10.0.0.1" if node_id == HEAD else "10.0.0.2",
        "cpu": 0,
        "mem": [0, 0, 0, 0],
        "disk": {"/": {"total": 0, "used": 0, "free": 0, "percent": 0.0}},
        "networkSpeed": [0, 0],
        "gpus": [],
        "raylet": {
            "nodeId": node_id,
            "nodeManagerAddress": "10.0.0.1" if node_id == HEAD else "10.0.0.2",
            "isHeadNode": node_id == HEAD,
            "state": "DEAD",
            "endTimeMs": int(ended_s * 1000),
            "stateMessage": "Unexpected termination: health check failed",
            "resourcesTotal": {"CPU": 2.0},
        },
    }


def job(job_id: str, status: str, message: str = "") -> dict[str, Any]:
    return {
        "driver_exit_code": 0,
        "driver_node_id": HEAD,
        "metadata": {},
        "message": message,
        "entrypoint": "python train.py",
        "status": status,
        "job_id": "01000000",
        "submission_id": job_id,
        "type": "SUBMISSION",
        "start_time": 1_787_000_000_000,
        "end_time": 1_787_000_300_000,
    }


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sessions: dict[str, Stored] = {}
        self.live: list[Stored] = []
        self.asked: list[str] = []
        self.token = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(**sessions: Stored) -> Iterator[Server]:
    server = Server()
    server.sessions.update(sessions)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            return self._text(401, "log in")
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/clusters":
            return self._json([*map(_live, self.server.live), *self._listed()])
        if parts.path.startswith("/enter_cluster/"):
            return self._enter(parts.path.split("/")[2:])
        cookies = SimpleCookie(self.headers.get("Cookie", ""))
        if "cluster_name" not in cookies:
            return self._text(400, "Cluster Cookie not found")
        session = self.server.sessions.get(cookies["session_name"].value)
        if session is None or f"entered {cookies['session_name'].value}" not in self.server.asked:
            return self._text(503, "session snapshot not in cache; reload via /enter_cluster")
        owner = cookies["owner_name"].value if "owner_name" in cookies else ""
        # Another owner is another folder of the storage: it is empty.
        return self._stored(session if owner == session.owner else Stored(), parts.path, query)

    def _stored(self, session: Stored, path: str, query: dict[str, str]) -> None:
        if path == "/nodes":
            data = {"summary": session.nodes, "nodeLogicalResources": {}}
            return self._json({"result": True, "msg": "", "data": data})
        if path == "/api/jobs/":
            return self._json(session.jobs)
        if path == "/api/v0/logs":
            return self._json({"data": {"result": {"internal": _matching(session, query)}}})
        if path == "/api/v0/logs/file":
            return self._log(session, query)
        if path == "/api/v0/logs/stream":
            return self._text(501, "Log streaming only available for live clusters")
        if path in session.endpoints:
            return self._json(session.endpoints[path])
        return self._text(404, "Endpoint data not found in storage")

    def _listed(self) -> list[dict[str, Any]]:
        return [
            {
                "name": of.cluster,
                "namespace": of.namespace,
                "sessionName": name,
                "createTime": "",
                "createTimeStamp": of.created_s,
                **({"ownerKind": "rayjob", "ownerName": of.owner} if of.owner else {}),
            }
            for name, of in self.server.sessions.items()
        ]

    def _enter(self, wanted: list[str]) -> None:
        namespace, _, cluster, session = wanted
        found = self.server.sessions.get(session)
        if session != "live" and (found is None or found.cluster != cluster):
            what = f"cluster {namespace}/raycluster/{cluster} with session {session} not found"
            return self._text(404, what)
        is_live = any(of.cluster == cluster and session == "live" for of in self.server.live)
        self.server.asked.append(f"entered {session}")
        name = "live" if is_live else session
        answer = {"result": "success", "name": cluster, "namespace": namespace, "session": name}
        return self._json(answer)

    def _log(self, session: Stored, query: dict[str, str]) -> None:
        text = session.logs.get((query["node_id"], query["filename"]))
        if text is None:
            return self._text(404, f"log file not found: {query['filename']}")
        lines = int(query.get("lines", "0")) or DEFAULT_LINES
        if lines > 0:
            text = "\n".join(text.splitlines()[-min(lines, MOST_LINES) :])
        return self._send(200, text.encode(), "text/plain; charset=utf-8")

    def _json(self, body: object) -> None:
        self._send(200, json.dumps(body).encode(), "application/json")

    def _text(self, status: int, text: str) -> None:
        self._send(status, text.encode(), "text/plain")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _live(of: Stored) -> dict[str, Any]:
    return {
        "name": of.cluster,
        "namespace": of.namespace,
        "sessionName": "live",
        "createTime": "",
        "createTimeStamp": of.created_s,
    }


def _matching(session: Stored, query: dict[str, str]) -> list[str]:
    """Names relative to the folder of the pattern (doublestar.SplitPattern in getNodeLogs)."""
    folder, _, pattern = query["glob"].rpartition("/")
    there = [PurePosixPath(name) for node_id, name in session.logs if node_id == query["node_id"]]
    return [
        path.name
        for path in there
        if str(path.parent) == (folder or ".") and fnmatchcase(path.name, pattern)
    ]
