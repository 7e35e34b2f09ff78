"""Kueue's controller on the test cluster, with its webhooks and its visibility API.

Definitions, webhooks and the APIService are the files of the Go module. The controller is no pod:
the API server calls its webhooks at the address of the space, and its visibility API through a
Service without a selector.
"""

from __future__ import annotations

import base64
import time
import urllib.error
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.build import program
from tests.cluster.control_plane import ControlPlane
from tests.cluster.module_crds import module

NAMESPACE = "kueue-system"
WEBHOOKS, VISIBILITY, PROBES, METRICS = 9443, 8082, 8081, 8083
START_S = 90.0
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUPS = ("ray.io", "kueue.x-k8s.io")
"""The API groups whose webhooks are registered: the others' kinds are not installed."""
_HOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def start(plane: ControlPlane) -> None:
    """Install it on a control plane that is `aggregated`, and return when it admits workloads."""
    definitions = [_read(path)[0] for path in (_components() / "crd" / "bases").glob("*.yaml")]
    for each in definitions:
        plane.ask("POST", _CRDS, each)
    for each in definitions:
        spec = each["spec"]
        version = spec["versions"][0]["name"]
        plane.wait_for(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}")
    plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    _account(plane)
    _run(plane)
    _register_webhooks(plane)
    _register_visibility(plane)


def queue(
    plane: ControlPlane, namespace: str, name: str, cpus: int, *, cluster_queue: str = "training"
) -> None:
    """A LocalQueue and its ClusterQueue, with a quota of CPUs and enough of the rest."""
    quotas = {"cpu": str(cpus), "memory": "1Ti", "pods": "1000"}
    flavor = {
        "name": "default",
        "resources": [{"name": each, "nominalQuota": amount} for each, amount in quotas.items()],
    }
    spec = {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": [{"coveredResources": list(quotas), "flavors": [flavor]}],
    }
    version = "kueue.x-k8s.io/v1beta1"
    for kind, its_name, its_spec in (
        ("ResourceFlavor", "default", {}),
        ("ClusterQueue", cluster_queue, spec),
        ("LocalQueue", name, {"clusterQueue": cluster_queue}),
    ):
        scope = f"/namespaces/{namespace}" if kind == "LocalQueue" else ""
        body = {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": its_name},
            "spec": its_spec,
        }
        plane.ask("POST", f"/apis/{version}{scope}/{kind.lower()}s", body)


def _account(plane: ControlPlane) -> None:
    """Its ServiceAccount, and the files of it that a pod would have: the visibility API reads them
    instead of a kubeconfig. /run is the space's own."""
    name = "kueue-controller-manager"
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    plane.ask("POST", accounts, {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    binding = {
        "metadata": {"name": "kueue"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [subject],
    }
    plane.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    token = plane.ask("POST", f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 86400}})
    source = plane.space.folder / "kueue-account"
    source.mkdir(mode=0o700)
    (source / "token").write_text(token["status"]["token"])
    (source / "ca.crt").write_bytes(plane.authority.certificate.read_bytes())
    inside = "/run/secrets/kubernetes.io/serviceaccount"
    plane.space.run("mkdir", "-p", inside)
    plane.space.run("cp", source / "token", source / "ca.crt", inside)


def _run(plane: ControlPlane) -> None:
    folder = plane.space.folder / "kueue"
    folder.mkdir()
    pair = plane.authority.sign("kueue-webhooks", hosts=(plane.space.address,))
    (folder / "tls.crt").write_bytes(pair.certificate.read_bytes())
    (folder / "tls.key").write_bytes(pair.key.read_bytes())
    config: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{PROBES}"},
        "metrics": {"bindAddress": f"127.0.0.1:{METRICS}"},
        "webhook": {"port": WEBHOOKS, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 50, "burst": 100},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["ray.io/rayjob", "ray.io/raycluster"]},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    host, _, port = plane.server.removeprefix("https://").partition(":")
    plane.space.start(
        "kueue",
        [program("kueue"), f"--config={folder}/config.yaml"],
        {
            "KUBECONFIG": str(plane.kubeconfig),
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
        },
    )
    ready = ["python3", "-c", "import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=2)"]
    deadline = time.monotonic() + START_S
    while plane.space.run(*ready, f"http://127.0.0.1:{PROBES}/readyz", check=False).returncode:
        if not plane.space.alive("kueue") or time.monotonic() > deadline:
            raise RuntimeError(f"Kueue is not ready:\n{plane.space.said('kueue', 40)}")
        time.sleep(0.2)


def _register_webhooks(plane: ControlPlane) -> None:
    authority = base64.b64encode(plane.authority.certificate.read_bytes()).decode()
    for each in _read(_components() / "webhook" / "manifests.yaml"):
        if each["kind"] not in _HOOKS:
            continue
        hooks = [hook for hook in each["webhooks"] if _group(hook) in _GROUPS]
        for hook in hooks:
            path = hook["clientConfig"]["service"]["path"]
            url = f"https://{plane.space.address}:{WEBHOOKS}{path}"
            hook["clientConfig"] = {"url": url, "caBundle": authority}
        plural = f"{each['kind'].lower()}s"
        name = {"name": f"kueue-{each['metadata']['name']}"}
        body = {**each, "metadata": name, "webhooks": hooks}
        plane.ask("POST", f"/apis/admissionregistration.k8s.io/v1/{plural}", body)


def _group(hook: dict[str, Any]) -> str:
    return str(hook["rules"][0]["apiGroups"][0])


def _register_visibility(plane: ControlPlane) -> None:
    folder = _components() / "visibility"
    [service], [api] = _read(folder / "service.yaml"), _read(folder / "apiservice_v1beta1.yaml")
    name = {"name": service["metadata"]["name"], "namespace": NAMESPACE}
    [port] = service["spec"]["ports"]
    services = f"/api/v1/namespaces/{NAMESPACE}"
    plane.ask("POST", f"{services}/services", {"metadata": name, "spec": {"ports": [port]}})
    addresses = {
        "addresses": [{"ip": plane.space.address}],
        "ports": [{"name": port["name"], "port": VISIBILITY, "protocol": "TCP"}],
    }
    plane.ask("POST", f"{services}/endpoints", {"metadata": name, "subsets": [addresses]})
    plane.ask("POST", "/apis/apiregistration.k8s.io/v1/apiservices", api)
    # The API server answers 503 until it has reached it.
    deadline = time.monotonic() + START_S
    while not _is_served(plane, f"/apis/{api['spec']['group']}/{api['spec']['version']}"):
        if time.monotonic() > deadline:
            path = f"/apis/apiregistration.k8s.io/v1/apiservices/{api['metadata']['name']}"
            raise RuntimeError(f"no visibility API: {plane.ask('GET', path)['status']}")
        time.sleep(0.2)


def _is_served(plane: ControlPlane, path: str) -> bool:
    try:
        plane.ask("GET", path)
    except urllib.error.HTTPError as error:
        if error.code not in (404, 503):
            raise
        return False
    return True


def _components() -> Path:
    return module() / "config" / "components"


def _read(path: Path) -> list[Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for each in yaml.load_all(path.read_text(), loader) if each]
