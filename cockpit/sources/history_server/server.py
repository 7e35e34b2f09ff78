"""KubeRay's History Server (kuberay/historyserver, August 2026): the sessions of deleted clusters.

It stores the logs and the events of Ray's sessions, and serves them by the routes of the Ray
dashboard. Cookies select the session (pkg/historyserver/router.go). So the client of the dashboard
reads it, apart from what a stored session does not have.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cockpit.model.cluster import DashboardRoute, Node
from cockpit.model.death import MemoryKill
from cockpit.model.decoding.limited_json import LimitError, loads
from cockpit.model.decoding.value_range import moment_s
from cockpit.model.error import UsageError
from cockpit.model.run import Job, JobStatus
from cockpit.model.text import one_line
from cockpit.sources.json_server import JsonServer, ServerKind
from cockpit.sources.ray import answers
from cockpit.sources.ray.answers import TrainRun
from cockpit.sources.ray.dashboard import Dashboard, Version, understood
from cockpit.sources.ray.http import MissingError
from cockpit.sources.server_settings import ServerSettings

LIVE = "live"
"""The name of the session of a cluster that exists: requests are passed on to its dashboard."""
LIMIT_BYTES = 16 << 20
KIND = ServerKind(
    name="History Server",
    noun="a History Server of KubeRay",
    reach="check that it runs, and the address: url under [history_server]",
    credentials="set token_file or username and password_file under [history_server]",
    refused=("refused", "check the credentials under [history_server]"),
    narrow="delete old sessions from its storage",
    timeout_s=150.0,  # it may read a session for up to 2 minutes (session_loader.go)
    limit_bytes=LIMIT_BYTES,
)
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,253}")
"""What may be in a path and a cookie: names of Kubernetes, and of sessions."""


class Session(Struct, frozen=True):
    """One session of Ray on one RayCluster; a restart of the head begins another."""

    namespace: str
    cluster: str
    name: str
    """`session_2026-…`, or LIVE."""
    created_s: float
    owner_kind: str = ""
    """`rayjob` or `rayservice`, if that created the cluster."""
    owner: str = ""


class HistoryServer:
    """A client of one server. Its methods raise UnreachableError, NotAllowedError and AnswerError.

    Bound to the event loop of its first request.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._server = JsonServer(KIND, settings)

    @property
    def where(self) -> str:
        return self._server.where

    async def aclose(self) -> None:
        await self._server.aclose()

    async def sessions(self) -> tuple[Session, ...]:
        """All that are stored, and those of clusters that exist, the newest first."""
        answer = await self._server.send("GET", "/clusters", "its clusters")
        with self._server.understood():
            try:
                raw = loads(answer, max_bytes=LIMIT_BYTES)
            except LimitError as error:
                raise self._server.strange(str(error)) from error
            found = [_session(each) for each in raw or ()]
        return tuple(sorted(found, key=lambda each: -each.created_s))

    async def dashboard(self, session: Session) -> StoredDashboard:
        """The dashboard of a stored session, which the server first loads.

        Raises UsageError if the cluster exists, or a name cannot be sent.
        """
        for text in (session.namespace, session.cluster, session.name):
            if not _PLAIN.fullmatch(text):
                raise UsageError(f"The session {one_line(text)!r} has a name that is not valid.")
        path = f"/enter_cluster/{session.namespace}/raycluster/{session.cluster}/{session.name}"
        entered = await self._server.ask("GET", path, f"session {session.name}")
        if LIVE in (session.name, entered.get("session")):
            raise UsageError(
                f"RayCluster {session.cluster} in namespace {session.namespace} exists.",
                "The History Server only passes requests on to it.",
                f"See: cockpit why -n {session.namespace} --cluster {session.cluster}",
            )
        cookies = {
            "cluster_name": session.cluster,
            "cluster_namespace": session.namespace,
            "session_name": session.name,
            "owner_kind": session.owner_kind,
            "owner_name": session.owner,
        }
        cookie = "; ".join(
            f"{name}={value}" for name, value in cookies.items() if _PLAIN.fullmatch(value)
        )
        route = DashboardRoute(
            self._settings.url,
            {"Cookie": cookie, **_authorization(self._settings)},
            tls=self._server.tls(),
            via="History Server",
        )
        return StoredDashboard(route)


class StoredDashboard(Dashboard):
    """The dashboard of a session that is over, as the History Server serves it."""

    async def version(self) -> Version:
        """Empty if the collector has not stored it."""
        try:
            raw = await self._http.ask("GET", "/api/v0/cluster_metadata")
        except MissingError:
            return Version("", "")
        data = raw.get("data") if isinstance(raw, dict) else None
        return Version(one_line(str((data or {}).get("rayVersion") or ""), 40), "")

    async def nodes(self) -> tuple[Node, ...]:
        return tuple(node for node, _ in await self.nodes_with_ends())

    async def nodes_with_ends(self) -> tuple[tuple[Node, float | None], ...]:
        """Each node with the time of its death; all die with the cluster.

        Without usage: the server fills it with zeros.
        """
        raw = await self._http.ask("GET", "/nodes", params={"view": "summary"})
        with understood("/nodes"):
            ends = {
                one_line(str(each["raylet"].get("nodeId"))): _end_s(each["raylet"])
                for each in raw["data"]["summary"]
            }
            return tuple((_without_usage(node), ends[node.id]) for node in answers.nodes(raw))

    async def jobs(self) -> tuple[Job, ...]:
        """Without those whose status is not known: it is empty if no event reported it."""
        raw = await self._http.ask("GET", "/api/jobs/")
        known = [each for each in raw if _is_job(each)] if isinstance(raw, list) else []
        found = [answers.job(each) for each in known]
        return tuple(sorted(found, key=lambda job: (job.started_s or 0.0, job.id), reverse=True))

    async def train_runs(self) -> tuple[TrainRun, ...]:
        """Only if the collector is configured to store this route."""
        try:
            return await super().train_runs()
        except MissingError:
            return ()

    async def memory_kills(self) -> tuple[MemoryKill, ...]:
        """Only if the collector is configured to store this route."""
        try:
            return await super().memory_kills()
        except MissingError:
            return ()

    async def log_files(self, node_id: str, glob: str) -> tuple[str, ...]:
        """As Ray lists them. The server lists names without the folder of the pattern."""
        folder = glob.rpartition("/")[0]
        found = await super().log_files(node_id, glob)
        if not folder:
            return found
        return tuple(name if "/" in name else f"{folder}/{name}" for name in found)


def _without_usage(node: Node) -> Node:
    return replace(
        node,
        cpu_percent=None,
        memory_used_bytes=None,
        memory_total_bytes=None,
        disk_used_bytes=None,
        disk_total_bytes=None,
        sent_bytes_per_s=None,
        received_bytes_per_s=None,
        object_store_used_bytes=None,
        object_store_total_bytes=None,
    )


def _end_s(raylet: Any) -> float | None:
    """Times there are in ms, and 0 if the node has not died."""
    if raylet.get("state") != "DEAD" or not raylet.get("endTimeMs"):
        return None
    return moment_s(float(raylet["endTimeMs"]) / 1000)


def _session(raw: Any) -> Session:
    return Session(
        namespace=one_line(str(raw["namespace"])),
        cluster=one_line(str(raw["name"])),
        name=one_line(str(raw["sessionName"])),
        created_s=moment_s(raw.get("createTimeStamp") or 0),
        owner_kind=one_line(str(raw.get("ownerKind") or "")),
        owner=one_line(str(raw.get("ownerName") or "")),
    )


def _is_job(raw: Any) -> bool:
    return isinstance(raw, dict) and raw.get("status") in {status.value for status in JobStatus}


def _authorization(settings: ServerSettings) -> dict[str, str]:
    if settings.token:
        return {"Authorization": f"Bearer {settings.token}"}
    if settings.username:
        pair = f"{settings.username}:{settings.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}
