"""An API server in memory, for the requests of `cockpit up` and `cockpit down`.

It keeps objects, lists them by label, and answers reviews of permissions. `conflicts` and `refused`
script its errors. tests/backends/provision/test_control_plane.py uses a real one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.error_message import refusal
from cockpit.backends.kuberay.provision.kinds import KINDS, Kind

USER = "jane"
STANDARD = {
    "metadata": {
        "name": "shared",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "nfs.csi.k8s.io",
}


@dataclass
class ApiServer:
    objects: dict[str, Any] = field(default_factory=dict)
    """By path."""
    classes: list[Any] = field(default_factory=lambda: [STANDARD])
    missing: set[str] = field(default_factory=set)
    """API groups that are not installed."""
    denied: set[tuple[str, str]] = field(default_factory=set)
    """Verb and resource."""
    conflicts: dict[str, str] = field(default_factory=dict)
    """By path, the other manager and field of an object that is applied without force."""
    lost: set[str] = field(default_factory=set)
    """Paths whose objects cannot be applied, except in a dry run."""
    busy: dict[str, int] = field(default_factory=dict)
    """By path, how many writes meet one of a controller."""
    applied: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    number: int = 0

    def add(self, path: str, **content: Any) -> Any:
        """An object that another client has created."""
        self.number += 1
        meta = {"name": path.rpartition("/")[2], "uid": f"u-{self.number}"}
        made: dict[str, Any] = {**content, "metadata": {**meta, **content.get("metadata", {})}}
        self.objects[path] = made
        return made

    def handle(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if path.endswith("selfsubjectaccessreviews"):
            of = body["spec"]["resourceAttributes"]
            return 201, {"status": {"allowed": (of["verb"], of["resource"]) not in self.denied}}
        if path.endswith("selfsubjectreviews"):
            return 201, {"status": {"userInfo": {"username": USER}}}
        if path == "/apis/storage.k8s.io/v1/storageclasses":
            return 200, {"items": self.classes}
        if path == "/apis":
            versions = {kind.api for kind in KINDS if kind.group}
            return 200, {"groups": [{"preferredVersion": {"groupVersion": v}} for v in versions]}
        if known := [kind for kind in KINDS if kind.api_path == path]:
            return self._resources(known)
        if method == "PATCH":
            return self._apply(path, query, body)
        if method == "DELETE":
            return self._delete(path, body)
        if path in self.objects:
            return 200, self.objects[path]
        if path.rpartition("/")[2] in {"pods", "rayjobs", *(k.plural for k in KINDS)}:
            selector = query.get("labelSelector", "")
            if "==" in selector.replace("!=", "=="):  # it only knows `a=b` and `a`
                return _status(400, "BadRequest", f"unable to parse requirement: {selector}")
            return 200, {"items": self._listed(path, selector), "metadata": {}}
        return _status(404, "NotFound", f"{path} not found")

    def _resources(self, known: list[Kind]) -> tuple[int, Any]:
        if known[0].group in self.missing:
            return _status(404, "NotFound", "the server could not find the requested resource")
        listed = [
            {"name": kind.plural, "kind": kind.name, "namespaced": kind.namespaced,
             "verbs": ["list"]}
            for kind in known
        ]  # fmt: skip
        return 200, {"resources": listed}

    def _apply(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        dry = query.get("dryRun") == "All"
        assert query["fieldManager"] == "cockpit-up"
        assert query["fieldValidation"] == "Strict"
        if path in self.conflicts and "force" not in query:
            message = f"Apply failed with 1 conflict: {self.conflicts[path]}"
            return _status(409, "Conflict", message)
        if self.busy.get(path, 0):
            self.busy[path] -= 1
            return _status(
                409, "Conflict", "Operation cannot be fulfilled: the object has been modified"
            )
        if path in self.lost and not dry:
            return _status(422, "Invalid", "spec.x: Invalid value")
        before = self.objects.get(path)
        wanted = body["metadata"].get("uid")
        if wanted and before is not None and before["metadata"]["uid"] != wanted:
            return _status(409, "Conflict", "metadata.uid: field is immutable")
        after = {**(before or {}), **json.loads(json.dumps(body))}
        meta = dict((before or {}).get("metadata", {"uid": f"u-{self.number + 1}"}))
        meta["labels"] = {**meta.get("labels", {}), **body["metadata"].get("labels", {})}
        after["metadata"] = {**body["metadata"], **meta}
        if not dry:
            self.number += 1
            self.applied.append(path)
            self.objects[path] = after
        return 200, after

    def _delete(self, path: str, body: Any) -> tuple[int, Any]:
        if path not in self.objects:
            return _status(404, "NotFound", f"{path} not found")
        assert body["preconditions"]["uid"] == self.objects[path]["metadata"]["uid"]
        self.deleted.append(path)
        for each in [each for each in self.objects if each.startswith(f"{path}/")]:
            del self.objects[each]
        del self.objects[path]
        return 200, {}

    def _listed(self, path: str, selector: str) -> list[Any]:
        wanted = dict(part.split("=") for part in selector.split(",") if "=" in part)
        there = {part for part in selector.split(",") if part and "=" not in part}
        scope, _, plural = path.rpartition("/")
        api, _, namespace = scope.partition("/namespaces/")
        found = []
        for each, content in self.objects.items():
            owner, _, _ = each.rpartition("/")
            in_scope = owner == path or (
                not namespace and owner.startswith(f"{api}/") and owner.endswith(f"/{plural}")
            )
            labels = content["metadata"].get("labels", {})
            if in_scope and wanted.items() <= labels.items() and there <= labels.keys():
                found.append(content)
        return found

    def client(self) -> type[KubeClient]:
        """A client whose requests this object answers."""
        api = self

        class Client(KubeClient):
            async def _send(
                self,
                method: str,
                path: str,
                params: Mapping[str, str] | None = None,
                body: Any = None,
                content_type: str = "application/json",
                accept: str = "",
            ) -> bytes:
                code, answer = api.handle(method, path, dict(params or {}), body)
                content = json.dumps(answer).encode()
                if code >= 400:
                    raise refusal(self.credentials, method, path, code, content)
                return content

        return Client


KUBECONFIG = {
    "current-context": "lab",
    "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "u", "user": {}}],
}


def _status(code: int, reason: str, message: str) -> tuple[int, Any]:
    return code, {"kind": "Status", "reason": reason, "message": message}
