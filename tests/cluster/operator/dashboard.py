"""A cluster's dashboard, as far as RayJobs need it: through the API server's service proxy."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from tests.cluster.operator.api import Api, ApiError, Object

PORT = 8265


class DashboardError(Exception):
    """The dashboard does not answer, or not as it should."""


@dataclass(frozen=True, slots=True)
class JobInfo:
    status: str
    message: str
    start_ms: int
    end_ms: int

    @property
    def ended(self) -> bool:
        return self.status in ("SUCCEEDED", "FAILED", "STOPPED")


class Dashboard:
    def __init__(self, api: Api, namespace: str, service: str, token_secret: str) -> None:
        self._api = api
        self._namespace = namespace
        self._base = f"/api/v1/namespaces/{namespace}/services/{service}:{PORT}/proxy/api/jobs/"
        self._token_secret = token_secret

    async def submit(self, request: Object) -> None:
        status, content = await self._ask("POST", "", request)
        if status >= 300:
            raise DashboardError(f"SubmitJob fail: {status} {_short(content)}")

    async def job(self, job_id: str) -> JobInfo | None:
        """None: no such job."""
        status, content = await self._ask("GET", job_id)
        if status == 404:
            return None
        if status >= 300:
            raise DashboardError(f"GetJobInfo fail: {status} {_short(content)}")
        data = json.loads(content)
        return JobInfo(
            data["status"],
            data.get("message") or "",
            data.get("start_time") or 0,
            data.get("end_time") or 0,
        )

    async def stop(self, job_id: str) -> None:
        status, content = await self._ask("POST", f"{job_id}/stop")
        if status >= 300:
            raise DashboardError(f"StopJob fail: {status} {_short(content)}")

    async def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        # Not `Authorization`: the API server takes that one for itself and does not hand it on.
        headers = {}
        if token := await self._token():
            headers["X-Ray-Authorization"] = f"Bearer {token}"
        return await self._api.through(self._base + path, method, body, headers)

    async def _token(self) -> str:
        if not self._token_secret:
            return ""
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{self._token_secret}"
        try:
            secret = await self._api.get(path)
        except ApiError as error:
            raise DashboardError(f"no token: {error}") from error
        return base64.b64decode(secret["data"]["auth_token"]).decode()


def _short(content: bytes) -> str:
    return content[:300].decode(errors="replace")
