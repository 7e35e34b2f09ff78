"""A Ray dashboard that misbehaves on demand: real sockets, answers shaped as ray 2.60's are."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cockpit.model.cluster import DashboardRoute

HEAD = "a" * 56
TICK_S = 0.005


@dataclass(frozen=True)
class Fault:
    """The fault of one response."""

    status: int = 0
    """Answered instead, with `text`."""
    text: str = ""
    wait_s: float = 0.0
    after_bytes: int | None = None
    """A log response ends after this number of bytes of its body."""
    clean: bool = True
    """Ends as if complete; otherwise the connection is cut."""


@dataclass
class FakeDashboard:
    files: dict[str, bytearray] = field(default_factory=dict)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    autoscaler: dict[str, Any] | None = None
    """What `/api/cluster_status` answers; without it there is no such path."""
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    """By the start of the path; each is used once, the last of a list too."""
    token: str = ""
    dead_nodes: set[str] = field(default_factory=set)
    """Nodes whose agent has ended, and their logs with it."""
    asked: list[str] = field(default_factory=list)
    """The path and query of every request."""
    open_streams: int = 0
    port: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def route(self) -> DashboardRoute:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return DashboardRoute(f"http://127.0.0.1:{self.port}", headers)

    def write(self, name: str, text: str | bytes) -> None:
        data = text if isinstance(text, bytes) else text.encode()
        self.files.setdefault(name, bytearray()).extend(data)

    def fail(self, path: str, *faults: Fault) -> None:
        self.faults.setdefault(path, deque()).extend(faults)

    def times_asked(self, part: str) -> int:
        return sum(part in asked for asked in self.asked)

    async def until_asked(self, part: str, times: int) -> None:
        """Until this number of requests had this in their path or query."""
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(lambda: self.times_asked(part) >= times)

    def add_job(self, job_id: str, status: str = "RUNNING", ray_id: str = "01000000") -> None:
        self.jobs.append(job(job_id, status, ray_id))

    def end_job(self, job_id: str, status: str = "SUCCEEDED") -> None:
        for raw in self.jobs:
            if raw["submission_id"] == job_id:
                raw["status"] = status

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[FakeDashboard]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        tasks: set[asyncio.Task[None]] = self._tasks
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) != b"":
                await self._answer(head.decode(), writer)
        except (asyncio.IncompleteReadError, ConnectionError, _CutError):
            pass  # the client disconnected, or it was configured to cut
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        target = head.split(" ", 2)[1]
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        async with self._news:
            self.asked.append(unquote(target))
            self._news.notify_all()
        fault = self._fault(path)
        await asyncio.sleep(fault.wait_s)
        if fault.status:
            return await _send(writer, fault.status, fault.text.encode())
        if self.token and f"authorization: bearer {self.token}" not in head.lower():
            return await _send(writer, 403, b"Forbidden: Invalid authentication token")
        if path == "/api/version":
            return await _send_json(writer, {"ray_version": "2.60.0", "session_name": "s"})
        if path == "/nodes":
            return await _send_json(writer, {"data": {"summary": self.nodes or [node()]}})
        if path == "/api/cluster_status" and self.autoscaler is not None:
            return await _send_json(writer, self.autoscaler)
        if path == "/api/v0/nodes":
            wanted = query.get("filter_values", [])
            listed = [
                {"node_ip": raylet["nodeManagerAddress"], "state": raylet["state"]}
                for raylet in (raw["raylet"] for raw in self.nodes or [node()])
                if not wanted or {raylet["state"], raylet.get("nodeId")} & set(wanted)
            ]
            return await _send_json(writer, {"data": {"result": {"result": listed}}})
        if path == "/api/v0/workers":
            return await _send_json(writer, {"data": {"result": {"result": []}}})
        if path == "/api/jobs/":
            return await _send_json(writer, self.jobs)
        if path.startswith("/api/jobs/"):
            for raw in self.jobs:
                if raw["submission_id"] == path.removeprefix("/api/jobs/"):
                    return await _send_json(writer, raw)
            return await _send(writer, 404, b"Job does not exist")
        if dead := self.dead_nodes.intersection(query.get("node_id", ())):
            text = f"Agent for node id: {dead.pop()} doesn't exist."
            return await _send(writer, 500, text.encode())
        if path == "/api/v0/logs":
            return await _send_json(writer, {"data": {"result": {"internal": list(self.files)}}})
        if path.startswith("/api/v0/logs/"):
            return await self._log(path, query, fault, writer)
        return await _send(writer, 404, b"404: Not Found")

    def _fault(self, path: str) -> Fault:
        for prefix, faults in self.faults.items():
            if path.startswith(prefix) and faults:
                return faults.popleft()
        return Fault()

    async def _log(
        self, path: str, query: dict[str, list[str]], fault: Fault, writer: asyncio.StreamWriter
    ) -> None:
        name, lines = query["filename"][0], int(query["lines"][0])
        if name not in self.files:
            await _send(writer, 500, f"A file is not found at: {name}".encode())
            return
        data = self.files[name]
        start = 0
        if lines > 0:
            parts = bytes(data).splitlines(keepends=True)
            start = sum(map(len, parts[:-lines]))
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.open_streams += 1
        try:
            sent = 0
            while True:
                chunk = bytes(data[start + sent :])
                if fault.after_bytes is not None:
                    chunk = chunk[: fault.after_bytes - sent]
                if chunk:
                    writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                    await writer.drain()
                    sent += len(chunk)
                if fault.after_bytes is not None and sent >= fault.after_bytes:
                    if not fault.clean:
                        raise _CutError
                    break
                if path.endswith("/file"):
                    break
                data = self.files[name]
                await asyncio.sleep(TICK_S)
        finally:
            self.open_streams -= 1
        writer.write(b"0\r\n\r\n")
        await writer.drain()


class _CutError(Exception):
    pass


async def _send_json(writer: asyncio.StreamWriter, body: object) -> None:
    await _send(writer, 200, json.dumps(body).encode())


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
    await writer.drain()


def autoscaler_answer(**report: Any) -> dict[str, Any]:
    """As `/api/cluster_status` of ray 2.60 has it; `demand` and `pg_demand` are its load."""
    load = {"resourceDemand": report.pop("demand", []), "pgDemand": report.pop("pg_demand", [])}
    error = report.pop("error", None)
    status = {"autoscalerReport": report, "loadMetricsReport": load}
    return {"data": {"autoscalingError": error, "clusterStatus": status}}


def job(job_id: str, status: str = "RUNNING", ray_id: str = "01000000") -> dict[str, Any]:
    return {
        "type": "SUBMISSION",
        "job_id": ray_id,
        "submission_id": job_id,
        "status": status,
        "entrypoint": "python train.py",
        "message": "",
        "start_time": 1_763_712_000_000,
        "end_time": None,
        "metadata": {},
        "runtime_env": {},
        "driver_node_id": HEAD,
    }


def node(node_id: str = HEAD, *, head: bool = True, alive: bool = True) -> dict[str, Any]:
    """As `/nodes?view=summary` of ray 2.60 has it, the fields that are read."""
    return {
        "hostname": "vm",
        "ip": "127.0.0.10",
        "cpu": 12.5,
        "mem": [16_000, 12_000, 25.0, 4_000],
        "disk": {"/": {"total": 100, "used": 40, "free": 60, "percent": 40.0}},
        "networkSpeed": [1_500.5, 2_500.0],
        "gpus": [
            {
                "index": 0,
                "name": "NVIDIA H200",
                "utilizationGpu": 87,
                "memoryUsed": 1024,
                "memoryTotal": 2048,
                "powerMw": 300_500,
                "temperatureC": 61,
            }
        ],
        "raylet": {
            "nodeId": node_id,
            "objectStoreUsedMemory": 10,
            "objectStoreAvailableMemory": 30,
            "nodeManagerAddress": "127.0.0.10",
            "nodeManagerHostname": "vm",
            "isHeadNode": head,
            "state": "ALIVE" if alive else "DEAD",
            "stateMessage": None if alive else "Unexpected termination:\nhealth check failed",
            "resourcesTotal": {"CPU": 2.0, "objectStoreMemory": 80.0, "node:InternalHead": 1.0},
        },
    }
