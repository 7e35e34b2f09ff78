"""A RayCluster on an API server without an operator: the test takes its role.

Pods that tolerate KWOK's nodes become Running and Ready automatically; others do not change.
"""

from __future__ import annotations

import itertools
import time
import urllib.error
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import read
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.model.cluster import ClusterRef
from tests.cluster import kwok
from tests.cluster.raycluster import Group, ray_cluster
from tests.cluster.testbed import Testbed

CONDITIONS = {
    "HeadPodReady": ("True", "HeadPodRunningAndReady"),
    "RayClusterProvisioned": ("True", "AllPodRunningAndReadyFirstTime"),
}
_numbers = itertools.count(1)


@dataclass
class Place:
    """A namespace of the test's own with a cluster `demo` in it."""

    testbed: Testbed
    namespace: str

    @classmethod
    def new(cls, testbed: Testbed) -> Place:
        return cls(testbed, testbed.namespace(f"kuberay-{next(_numbers)}"))

    @property
    def missing_node(self) -> str:
        """The node of pods that stay pending."""
        return f"nowhere-{self.namespace}"

    def path(self, plural: str, name: str = "") -> str:
        api = "/apis/ray.io/v1" if plural.startswith("ray") else "/api/v1"
        return f"{api}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return self.testbed.plane.ask(method, path, body, **more)

    def merge(self, path: str, body: Any) -> Any:
        return self.ask("PATCH", path, body, content="application/merge-patch+json")

    def has(self, path: str) -> bool:
        try:
            self.ask("GET", path)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return False
        return True

    def cluster(
        self, name: str = "demo", groups: Sequence[Group] = (Group(),), **spec: Any
    ) -> dict[str, Any]:
        made = ray_cluster(name, groups, namespace=self.namespace, token=False, simulated=True)
        made["spec"] |= spec
        found: dict[str, Any] = self.ask("POST", self.path("rayclusters"), made)
        return found

    def status(self, name: str = "demo", **fields: Any) -> None:
        """What the operator would write; provisioned and with a ready head."""
        conditions = [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind, (status, reason) in CONDITIONS.items()
        ]
        status = {"conditions": conditions, "state": "ready", **fields}
        self.merge(f"{self.path('rayclusters', name)}/status", {"status": status})

    def pod(
        self,
        name: str,
        group: str = "gpu",
        *,
        cluster: str = "demo",
        labels: dict[str, str] | None = None,
        runs: bool = True,
        **spec: Any,
    ) -> None:
        """`runs` False: a pod that is bound to no node that there is, and stays pending.

        Kubernetes deletes the pods of such a node some 40 s after it saw the first one: each place
        has its own node, so that pods of earlier tests do not begin this time.
        """
        head = group == "headgroup"
        container = {"name": "ray", "image": "localhost/none", "imagePullPolicy": "Never"}
        body = {
            "metadata": {
                "name": name,
                "labels": {
                    "ray.io/cluster": cluster,
                    "ray.io/group": group,
                    "ray.io/node-type": "head" if head else "worker",
                    **(labels or {}),
                },
            },
            "spec": {
                "containers": [container],
                "terminationGracePeriodSeconds": 0,
                **({"tolerations": [kwok.TOLERATION]} if runs else {"nodeName": self.missing_node}),
                **spec,
            },
        }
        self.ask("POST", self.path("pods"), body)

    def pod_status(self, name: str, **status: Any) -> None:
        self.merge(f"{self.path('pods', name)}/status", {"status": status})

    def event(self, kind: str, name: str, reason: str, message: str) -> None:
        """A warning, as a kubelet or the operator leaves it."""
        body = {
            "metadata": {"name": f"{name}.{reason}".lower()},
            "involvedObject": {"kind": kind, "name": name, "namespace": self.namespace},
            "reason": reason,
            "message": message,
            "type": "Warning",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
        self.ask("POST", self.path("events"), body)

    def node(self, name: str, *, ready: bool) -> None:
        condition = {"type": "Ready", "status": "True" if ready else "False", "reason": "Played"}
        body = {"metadata": {"name": name}, "status": {"conditions": [condition]}}
        self.ask("POST", "/api/v1/nodes", body)

    def user(
        self, name: str, rules: list[dict[str, list[str]]], *, everywhere: bool = False
    ) -> Path:
        """The kubeconfig of a user with just these rights, in this namespace or in all."""
        rbac = "rbac.authorization.k8s.io"
        kind = "ClusterRole" if everywhere else "Role"
        scope = "" if everywhere else f"/namespaces/{self.namespace}"
        unique = f"{name}-{self.namespace}"
        path = f"/apis/{rbac}/v1{scope}/{kind.lower()}"
        self.ask("POST", f"{path}s", {"metadata": {"name": unique}, "rules": rules})
        binding = {
            "metadata": {"name": unique},
            "roleRef": {"apiGroup": rbac, "kind": kind, "name": unique},
            "subjects": [{"kind": "User", "name": unique, "apiGroup": rbac}],
        }
        self.ask("POST", f"{path}bindings", binding)
        if rules:
            self.wait(lambda: self._is_granted(unique, rules[-1]), f"rights of {unique} in force")
        return self.testbed.plane.user_kubeconfig(unique)

    def _is_granted(self, user: str, rule: dict[str, list[str]]) -> bool:
        """Return whether the API server's authorizer, which watches the roles, knows this one."""
        resource, _, part = rule["resources"][0].partition("/")
        asked = {
            "namespace": self.namespace,
            "verb": rule["verbs"][0],
            "group": rule["apiGroups"][0],
            "resource": resource,
            "subresource": part,
            "name": rule.get("resourceNames", [""])[0],
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        review = {"spec": {"user": user, "resourceAttributes": asked}}
        return bool(self.ask("POST", path, review)["status"]["allowed"])

    def ready_cluster(self, workers: int = 1, **spec: Any) -> None:
        """`demo` with a head and some workers, all ready."""
        self.cluster(groups=[Group(replicas=workers)], **spec)
        self.pod("demo-head-aaaaa", "headgroup")
        for number in range(workers):
            self.pod(f"demo-gpu-worker-aaaa{number}")
        self.status(desiredWorkerReplicas=workers, readyWorkerReplicas=workers)
        self.wait(lambda: all(_is_ready(pod) for pod in self.pods()), "pods ready")

    def pods(self) -> list[Any]:
        found: list[Any] = self.ask("GET", self.path("pods"))["items"]
        return found

    def wait(self, condition: Callable[[], bool], what: str, within_s: float = 20.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, f"never: {what}"
            time.sleep(0.05)

    @asynccontextmanager
    async def backend(
        self, name: str = "demo", kubeconfig: Path | None = None, **more: Any
    ) -> AsyncIterator[KubeRayBackend]:
        """The administrator's, or that of a kubeconfig."""
        context = read([kubeconfig or self.testbed.kubeconfig]).context()
        ref = ClusterRef("kuberay", name, self.namespace, context.name)
        made = KubeRayBackend(Credentials(context), ref, **more)
        try:
            yield made
        finally:
            await made.aclose()


def _is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
