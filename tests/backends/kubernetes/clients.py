"""Kubeconfigs and clients as the tests want them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import read
from tests.cluster.testbed import Testbed


def client_of(kubeconfig: Path) -> KubeClient:
    return KubeClient(Credentials(read([kubeconfig]).context()))


def written(
    path: Path,
    user: Mapping[str, Any],
    cluster: Mapping[str, Any] | None = None,
    name: str = "here",
) -> Path:
    """A kubeconfig with one context."""
    where = {"server": "https://127.0.0.1:1", **(cluster or {})}
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": name,
                "clusters": [{"name": "c", "cluster": where}],
                "users": [{"name": "u", "user": dict(user)}],
                "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return path


def cluster_of(testbed: Testbed) -> dict[str, Any]:
    """The kubeconfig's entry for the real API server."""
    return {
        "server": testbed.plane.server,
        "certificate-authority": str(testbed.plane.authority.certificate),
    }


def admin(testbed: Testbed) -> dict[str, str]:
    folder = testbed.plane.authority.folder
    return {
        "client-certificate": str(folder / "admin.crt"),
        "client-key": str(folder / "admin.key"),
    }


def token_of(testbed: Testbed, namespace: str, account: str = "default") -> str:
    """A real token of a ServiceAccount, as the API server issues them."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return str(testbed.plane.ask("POST", path, {"spec": {}})["status"]["token"])
