"""The API server as an operator needs it: one request, or a watch, as the kubeconfig's user."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

Object = dict[str, Any]
"""An object of the API server. Objects of a Mirror must not be modified."""

WATCH_SILENCE_S = 400.0
"""A watch ends after at most 300 s, see `watch`."""


class ApiError(Exception):
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Change:
    kind: str
    """ADDED, MODIFIED, DELETED or BOOKMARK."""
    item: Object


class Api:
    def __init__(self, kubeconfig: Path) -> None:
        server, context, token = _credentials(kubeconfig)
        self._http = httpx.AsyncClient(
            base_url=server,
            verify=context,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(30.0),
            limits=httpx.Limits(max_connections=100),
            trust_env=False,
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def get(self, path: str, **params: str) -> Object:
        return await self._ask("GET", path, params=params)

    async def create(self, path: str, body: Object) -> Object:
        return await self._ask("POST", path, body)

    async def replace(self, path: str, body: Object) -> Object:
        return await self._ask("PUT", path, body)

    async def merge(self, path: str, body: Object) -> Object:
        return await self._ask("PATCH", path, body, content="application/merge-patch+json")

    async def delete(self, path: str, *, grace_s: int | None = None) -> Object:
        """With the object's grace period if none is given; dependents are deleted afterwards."""
        options: Object = {"propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        return await self._ask("DELETE", path, options)

    async def watch(self, path: str, version: str, selector: str = "") -> AsyncIterator[Change]:
        """Changes after `version`, until the API server ends it. ApiError 410: list again."""
        params = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "300",
        }
        if selector:
            params["labelSelector"] = selector
        timeout = httpx.Timeout(30.0, read=WATCH_SILENCE_S)
        async with self._http.stream("GET", path, params=params, timeout=timeout) as answer:
            if answer.status_code >= 400:
                raise _error(answer.status_code, await answer.aread())
            async for line in answer.aiter_lines():
                data = json.loads(line)
                if data["type"] == "ERROR":
                    status = data["object"]
                    raise ApiError(
                        status.get("code", 500), status.get("reason", ""), status.get("message", "")
                    )
                yield Change(data["type"], data["object"])

    async def through(
        self, path: str, method: str = "GET", body: Any = None, headers: Mapping[str, str] = {}
    ) -> tuple[int, bytes]:
        """A request that the API server proxies (the service proxy): its unchanged response."""
        answer = await self._http.request(method, path, json=body, headers=dict(headers))
        return answer.status_code, answer.content

    async def _ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        params: Mapping[str, str] | None = None,
        content: str = "application/json",
    ) -> Object:
        answer = await self._http.request(
            method,
            path,
            params=params,
            content=None if body is None else json.dumps(body),
            headers={"Content-Type": content},
        )
        if answer.status_code >= 400:
            raise _error(answer.status_code, answer.content)
        text: Object = answer.json()
        return text


def _error(status: int, content: bytes) -> ApiError:
    try:
        data = json.loads(content)
    except ValueError:
        return ApiError(status, "", content.decode(errors="replace")[:200])
    return ApiError(status, data.get("reason", ""), data.get("message", ""))


def _credentials(kubeconfig: Path) -> tuple[str, ssl.SSLContext, str]:
    """Server, TLS and token of the current context: what the testbed's own kubeconfigs hold."""
    config = yaml.safe_load(kubeconfig.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    tls = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
    if certificate := user.get("client-certificate"):
        tls.load_cert_chain(certificate, user["client-key"])
    return cluster["server"], tls, user.get("token", "")


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)
