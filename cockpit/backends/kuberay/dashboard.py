"""The route to a RayCluster's dashboard: a given URL, the API server's proxy, or a port-forward.

Without a URL, the other two are tried in this order, and a working one is kept. Through the API
server, Ray's token is sent in the header `X-Ray-Authorization` (Ray 2.52), since `Authorization` is
the API server's.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from cockpit.backends.kuberay.api.access import DASHBOARD_PORT as PORT
from cockpit.backends.kuberay.api.client import ForbiddenError, KubeClient, KubeError
from cockpit.backends.kuberay.api.fields import checked, is_label, mapping
from cockpit.backends.kuberay.resources.raycluster import RayCluster
from cockpit.backends.ray_token import dashboard_address, ray_token
from cockpit.model.cluster import ClusterRef, DashboardRoute
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError
from cockpit.model.secret import sendable
from cockpit.model.text import one_line

if TYPE_CHECKING:
    from cockpit.backends.kuberay.api.port_forward import PortForward

FRESH_S = 5.0
"""How long a token and a way that worked are taken for good without looking again."""
TOKEN_KEY = "auth_token"
HeadPod = Callable[[], Awaitable[str]]


class Dashboards:
    """Routes to one cluster's dashboard. `url`, if set, is the only one.

    `token_secret` is a Secret that the user allows to be read for Ray's token, in addition to the
    one that KubeRay creates: the object's author must not choose which Secret its viewers read.
    """

    def __init__(self, client: KubeClient, url: str = "", token_secret: str = "") -> None:
        self._client, self._url = client, url.rstrip("/")
        self._token_secret = token_secret
        self._token: tuple[str, str] | None = None
        """The Secret (its cluster's uid), and the token."""
        self._works = ""
        self._looked_s = float("-inf")
        self._forward: PortForward | None = None
        self._forward_to = ""
        self._begun: tuple[str, asyncio.Task[CockpitError | None]] | None = None

    async def aclose(self) -> None:
        if self._begun is not None:
            self._begun[1].cancel()
            await asyncio.wait([self._begun[1]])
        await self._end_forward()

    def begin(self, cluster: ClusterRef) -> None:
        """Try the service proxy before the cluster's object is known, on the running loop.

        For a single query: `route` uses the result if the object names the service that KubeRay
        makes for a head by default.
        """
        service = f"{cluster.name}-head-svc"
        if self._begun is None and not self._url and is_label(service):
            path = _proxy_path(cluster.namespace, service)
            self._begun = path, asyncio.create_task(self._refused_at(path))

    async def route(self, cluster: RayCluster, head_pod: HeadPod) -> DashboardRoute:
        """Return a route that has just responded.

        Raises UnreachableError or NotAllowedError with the reasons of all routes that were tried.
        """
        if time.monotonic() - self._looked_s > FRESH_S:
            # A repeated request may have failed with the token that was found before.
            self._token, self._works, self._looked_s = None, "", time.monotonic()
        if self._url:
            url, headers = dashboard_address(self._url, await self._ray_token(cluster))
            return DashboardRoute(url, headers, via="explicit URL")
        token, refused = await asyncio.gather(
            self._ray_token(cluster), self._refused_by_proxy(cluster)
        )
        if refused is None:
            return await self._by_proxy(cluster, token)
        tried = [refused]
        if not _is_down(refused):  # else another way leads to the same place
            try:
                return await self._by_forward(cluster, token, head_pod)
            except (KubeError, ForbiddenError, UnreachableError) as error:
                tried.append(error)
        raise _no_way(cluster, tried)

    async def _refused_by_proxy(self, cluster: RayCluster) -> CockpitError | None:
        """Return why the service proxy cannot be used; None where it can.

        The request is one that Ray answers without a token. It shows whether the proxy may be used,
        and whether a head is behind it.
        """
        if not is_label(cluster.head_service):
            return UnreachableError(
                f"RayCluster {cluster.name} has a head service with an invalid name.",
                f"status.head.serviceName has an invalid name: {one_line(cluster.head_service)!r}",
            )
        if self._works == "proxy":
            return None
        path = _path_of(cluster)
        begun, self._begun = self._begun, None
        if begun is not None:
            if begun[0] == path:
                return await begun[1]
            begun[1].cancel()
        return await self._refused_at(path)

    async def _refused_at(self, path: str) -> CockpitError | None:
        try:
            await self._client.text(f"{path}/api/authentication_mode")
        except (KubeError, ForbiddenError, UnreachableError) as error:
            return error
        return None

    async def _by_proxy(self, cluster: RayCluster, token: str) -> DashboardRoute:
        credentials = self._client.credentials
        self._works = "proxy"
        headers = await credentials.headers()
        if token:
            headers["X-Ray-Authorization"] = f"Bearer {token}"
        return DashboardRoute(
            credentials.server + _path_of(cluster),
            headers,
            tls=await credentials.tls(),
            server_name=credentials.server_name,
            proxy=credentials.proxy,
            via="service proxy",
        )

    async def _by_forward(
        self, cluster: RayCluster, token: str, head_pod: HeadPod
    ) -> DashboardRoute:
        pod = await head_pod()
        forward = self._forward
        # A port-forward to the same pod is kept: other requests may use it.
        if forward is None or self._forward_to != pod:
            await self._end_forward()
            from cockpit.backends.kuberay.api.port_forward import PortForward

            forward = PortForward(self._client, cluster.namespace, pod, PORT)
            self._forward, self._forward_to = await forward.__aenter__(), pod
        self._works = "forward"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        scheme = "https" if cluster.tls else "http"
        return DashboardRoute(
            f"{scheme}://{pod}:{PORT}",
            headers,
            socket_path=forward.socket_path,
            via="port-forward",
        )

    async def _end_forward(self) -> None:
        forward, self._forward = self._forward, None
        if forward is not None:
            await forward.__aexit__(None, None, None)

    async def _ray_token(self, cluster: RayCluster) -> str:
        if not cluster.token_secret:
            return ""
        if self._token is None or self._token[0] != cluster.uid:
            self._token = (cluster.uid, await self._read_token(cluster))
        return self._token[1]

    async def _read_token(self, cluster: RayCluster) -> str:
        if cluster.token_secret not in {*cluster.operator_secrets, self._token_secret}:
            if token := ray_token():
                return token
            raise NotAllowedError(
                f"RayCluster {cluster.name} names a Secret that KubeRay did not create: "
                f"{one_line(cluster.token_secret)!r}.",
                "It is not read: the author of the cluster could name any of your Secrets.",
                "If it holds Ray's token, add --token-secret NAME, or set COCKPIT_RAY_TOKEN.",
            )
        secret = checked("Secret", cluster.token_secret)
        path = f"/api/v1/namespaces/{cluster.namespace}/secrets/{secret}"
        try:
            found = await self._client.get(path)
            encoded = str(mapping(found, "data").get(TOKEN_KEY) or "")
            token = base64.b64decode(encoded).decode()
            return sendable(token, f"Secret {cluster.token_secret}")
        except ValueError as error:  # neither base64 nor UTF-8; the error would quote the secret
            raise UnreachableError(
                f"The Secret {cluster.token_secret} does not contain Ray's token.",
                f"Its {TOKEN_KEY} is not text.",
            ) from error
        except ForbiddenError as error:
            if token := ray_token():
                return token
            raise NotAllowedError(
                f"RayCluster {cluster.name} requires a token, and you may not read its Secret.",
                error.why,
                "Set COCKPIT_RAY_TOKEN, or ask for the permission to get this Secret.",
            ) from error
        except KubeError as error:
            if error.status != 404:
                raise
            raise UnreachableError(
                f"RayCluster {cluster.name} requires a token that does not exist yet.",
                f"There is no Secret {cluster.token_secret} in namespace {cluster.namespace}.",
                "KubeRay's operator creates it; see: cockpit doctor",
            ) from error


def _path_of(cluster: RayCluster) -> str:
    return _proxy_path(cluster.namespace, cluster.head_service, tls=cluster.tls)


def _proxy_path(namespace: str, service: str, *, tls: bool = False) -> str:
    """Of the dashboard, below the API server's address."""
    scheme = "https:" if tls else ""
    return f"/api/v1/namespaces/{namespace}/services/{scheme}{service}:{PORT}/proxy"


def _is_down(error: CockpitError) -> bool:
    """The API server answered that the service is not there, or no pod behind it."""
    return isinstance(error, KubeError) and error.status in (404, 502, 503, 504)


def _no_way(cluster: RayCluster, tried: list[CockpitError]) -> CockpitError:
    what = f"The dashboard of RayCluster {cluster.name} cannot be reached."
    first = tried[0]
    if _is_down(first):
        return UnreachableError(
            what, one_line(f"Its head is not up: {first.what}"), "Wait for it; see: cockpit pods"
        )
    reasons = [one_line(error.why or error.what) for error in tried]
    why = "; ".join(
        f"{way}: {reason}" for way, reason in zip(("proxy", "port-forward"), reasons, strict=False)
    )
    todo = "Give its address with --dashboard-url, or ask for the right; see: cockpit doctor"
    if all(isinstance(error, NotAllowedError) for error in tried):
        return NotAllowedError(what, why, todo)
    return UnreachableError(what, why, todo)
