"""A route to a Service: a port-forward to one of its pods.

Unlike the API server's service proxy, a port-forward leaves paths as they are: that proxy rewrites
the absolute links of pages (k8s.io/apimachinery, pkg/util/proxy/transport.go).
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.fields import checked, is_ready, items, mapping, text
from cockpit.backends.kuberay.api.port_forward import PortForward
from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import UnreachableError, UsageError


class ServiceName(Struct, frozen=True):
    """`port` 0: the only one of the Service, or its first."""

    namespace: str
    name: str
    port: int = 0

    @property
    def described(self) -> str:
        return f"Service {self.name} in namespace {self.namespace}"


class ServiceRoute:
    """`route` opens the port-forward, and again when the pod was replaced; then `aclose`."""

    def __init__(self, client: KubeClient, service: ServiceName) -> None:
        self._client, self._service = client, service
        self._forward: PortForward | None = None
        self._forward_to = ("", 0)

    async def aclose(self) -> None:
        forward, self._forward = self._forward, None
        if forward is not None:
            await forward.__aexit__(None, None, None)

    async def route(self) -> DashboardRoute:
        """Raises UsageError without such a Service, UnreachableError without a ready pod."""
        pod, port = await self._target()
        if self._forward is None or self._forward_to != (pod, port):
            await self.aclose()
            forward = PortForward(self._client, self._service.namespace, pod, port)
            self._forward, self._forward_to = await forward.__aenter__(), (pod, port)
        return DashboardRoute(
            f"http://{pod}:{port}", socket_path=self._forward.socket_path, via="port-forward"
        )

    async def _target(self) -> tuple[str, int]:
        """The pod, and the port in it."""
        service = self._service
        base = f"/api/v1/namespaces/{checked('Namespace', service.namespace)}"
        found = await self._client.find(f"{base}/services/{checked('Service', service.name)}")
        if found is None:
            raise UsageError(
                f"There is no {service.described}.", todo="Name it: --service NAMESPACE/NAME:PORT"
            )
        spec = mapping(found, "spec")
        ports = [each for each in items(spec, "ports") if service.port in (0, each.get("port"))]
        selector = {str(name): str(value) for name, value in mapping(spec, "selector").items()}
        if not ports or not selector:
            lacking = "has no selector" if ports else f"has no port {service.port or ''}".rstrip()
            raise UsageError(f"{service.described} {lacking}.", todo="Name another one: --service")
        wanted = ",".join(f"{name}={value}" for name, value in selector.items())
        listed = await self._client.get(f"{base}/pods", {"labelSelector": wanted})
        ready = [pod for pod in items(listed, "items") if is_ready(pod)]
        if not ready:
            raise UnreachableError(
                f"{service.described} has no ready pod.",
                f"{len(items(listed, 'items'))} pods have its labels.",
                f"See: kubectl get pods -n {service.namespace} -l {wanted}",
            )
        pod = ready[0]
        return text(mapping(pod, "metadata"), "name"), _port_in(pod, ports[0])


def _port_in(pod: Any, port: Any) -> int:
    """`targetPort` is a number, the name of a container's port, or missing: the same number."""
    target = port.get("targetPort") or port.get("port")
    if isinstance(target, int):
        return target
    for container in items(mapping(pod, "spec"), "containers"):
        for each in items(container, "ports"):
            if each.get("name") == target and isinstance(number := each.get("containerPort"), int):
                return number
    raise UnreachableError(f"No container of the pod has a port named {str(target)!r}.")
