"""The test cluster behaves as a real Kubernetes does: what other tests lean on holds."""

from __future__ import annotations

import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient, Configuration, CoreV1Api
from kubernetes.stream import portforward, stream

from tests.cluster import kwok
from tests.cluster.control_plane import ControlPlane
from tests.cluster.raycluster import Group, ray_cluster, ray_pod_template
from tests.cluster.testbed import Testbed

WEB = "web"
ASK = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"
SERVE = """
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"you asked {self.path}".encode())
print("serving", flush=True)
http.server.ThreadingHTTPServer(("", 80), Echo).serve_forever()
"""
CALL_HOME = """
import json, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
token = open(f"{folder}/token").read()
context = ssl.create_default_context(cafile=f"{folder}/ca.crt")
url = "https://kubernetes.default.svc/apis/authentication.k8s.io/v1/selfsubjectreviews"
body = b'{"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}'
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
request = urllib.request.Request(url, data=body, headers=headers)
answer = json.load(urllib.request.urlopen(request, context=context, timeout=5))
print(answer["status"]["userInfo"]["username"])
"""
END_ONCE = """
import pathlib, time
state = pathlib.Path("/state/ended")
if not state.exists():
    state.touch()
    raise SystemExit("my last words")
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def pods(kubernetes: Testbed) -> Iterator[str]:
    """A namespace with a pod that serves HTTP, its service, and a client pod."""
    namespace = kubernetes.namespace("testbed")
    path = f"/api/v1/namespaces/{namespace}"
    kubernetes.plane.ask("POST", f"{path}/pods", _pod(WEB, SERVE))
    kubernetes.plane.ask("POST", f"{path}/pods", _pod("client", "import time; time.sleep(1000)"))
    service = {
        "metadata": {"name": WEB},
        "spec": {"selector": {"app": WEB}, "ports": [{"port": 8000, "targetPort": 80}]},
    }
    kubernetes.plane.ask("POST", f"{path}/services", service)
    _until(lambda: _phase(kubernetes, namespace, "client") == "Running", 60)
    _until(lambda: "serving" in _log(kubernetes, f"{path}/pods/{WEB}/log"), 60)
    yield namespace
    kubernetes.plane.ask("DELETE", path)


@pytest.fixture
def api(kubernetes: Testbed) -> Iterator[CoreV1Api]:
    authority = kubernetes.plane.authority
    configuration = Configuration(host=kubernetes.plane.server)
    configuration.ssl_ca_cert = str(authority.certificate)
    configuration.cert_file = str(authority.folder / "admin.crt")
    configuration.key_file = str(authority.folder / "admin.key")
    with ApiClient(configuration) as client:
        yield CoreV1Api(client)


def test_a_command_runs_in_a_pod(api: CoreV1Api, pods: str) -> None:
    assert _exec(api, pods, "sh", "-c", "echo $((6 * 7)); hostname").split() == ["42", "client"]


def test_a_port_of_a_pod_is_forwarded(api: CoreV1Api, pods: str) -> None:
    forward = portforward(api.connect_get_namespaced_pod_portforward, WEB, pods, ports="80")
    through = forward.socket(80)
    through.setblocking(True)
    through.sendall(b"GET /forwarded HTTP/1.0\r\n\r\n")
    text = b""
    while part := through.recv(4096):
        text += part
    through.close()
    assert text.endswith(b"you asked /forwarded")


def test_a_service_is_reached_through_the_api_server(kubernetes: Testbed, pods: str) -> None:
    path = f"/api/v1/namespaces/{pods}/services/{WEB}:8000/proxy/from/outside"
    assert kubernetes.plane.ask("GET", path) == "you asked /from/outside"


def test_a_pod_reaches_a_service_by_name_and_by_address(
    kubernetes: Testbed, api: CoreV1Api, pods: str
) -> None:
    service = kubernetes.plane.ask("GET", f"/api/v1/namespaces/{pods}/services/{WEB}")
    address = service["spec"]["clusterIP"]
    for host in (WEB, f"{WEB}.{pods}.svc.cluster.local", address):
        text = _exec(api, pods, sys.executable, "-c", ASK, f"http://{host}:8000/{host}")
        assert text.strip() == f"you asked /{host}"


def test_a_pod_asks_the_api_server_as_its_service_account(api: CoreV1Api, pods: str) -> None:
    text = _exec(api, pods, sys.executable, "-c", CALL_HOME)
    assert text.strip() == f"system:serviceaccount:{pods}:default"


def test_a_container_that_ends_is_started_again(kubernetes: Testbed, pods: str) -> None:
    path = f"/api/v1/namespaces/{pods}/pods"
    kubernetes.plane.ask("POST", path, _pod("brief", END_ONCE))
    _until(lambda: _restarts(kubernetes, pods, "brief") == 1, 60)
    assert _phase(kubernetes, pods, "brief") == "Running"
    last = kubernetes.plane.ask("GET", f"{path}/brief/log?previous=true")
    assert last.strip() == "my last words"


def test_nothing_in_a_pod_reaches_the_world(api: CoreV1Api, pods: str) -> None:
    text = _exec(api, pods, "bash", "-c", "echo > /dev/tcp/192.0.2.1/80")
    assert "No route to host" in text


def test_a_pod_that_is_evicted_goes(kubernetes: Testbed, pods: str) -> None:
    path = f"/api/v1/namespaces/{pods}/pods"
    kubernetes.plane.ask("POST", path, _pod("evicted", "import time; time.sleep(1000)"))
    _until(lambda: _phase(kubernetes, pods, "evicted") == "Running", 60)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}}
    kubernetes.plane.ask("POST", f"{path}/evicted/eviction", eviction)
    _until(lambda: _phase(kubernetes, pods, "evicted") == "", 30)


def test_a_pod_that_fits_nowhere_reports_why(kubernetes: Testbed, pods: str) -> None:
    path = f"/api/v1/namespaces/{pods}/pods"
    kubernetes.plane.ask("POST", path, _pod("greedy", "", gpus=8))

    def why() -> str:
        conditions = kubernetes.plane.ask("GET", f"{path}/greedy")["status"].get("conditions", [])
        return " ".join(condition.get("message", "") for condition in conditions)

    _until(lambda: "Insufficient nvidia.com/gpu" in why(), 30)


def test_a_user_may_do_what_a_role_reports_and_no_more(kubernetes: Testbed, pods: str) -> None:
    kubeconfig = kubernetes.plane.user_kubeconfig("cockpit-reader", ["readers"])
    pods_path = f"/api/v1/namespaces/{pods}/pods"
    assert _status_for(kubeconfig, pods_path) == 403
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{pods}"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    role = {"metadata": {"name": "reader"}, "rules": [rule]}
    kubernetes.plane.ask("POST", f"{rights}/roles", role)
    binding = {
        "metadata": {"name": "reader"},
        "subjects": [{"kind": "Group", "name": "readers"}],
        "roleRef": {"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"},
    }
    kubernetes.plane.ask("POST", f"{rights}/rolebindings", binding)
    _until(lambda: _status_for(kubeconfig, pods_path) == 200, 10)
    assert _status_for(kubeconfig, f"{pods_path}/client") == 403
    assert _status_for(kubeconfig, "/api/v1/nodes") == 403
    asked = [line for line in _audited(kubernetes.plane) if line["user"] == "cockpit-reader"]
    assert {(line["resource"], line["code"]) for line in asked} == {
        ("pods", 403),
        ("pods", 200),
        ("nodes", 403),
    }


@pytest.mark.ray
def test_a_pod_runs_the_ray_of_this_environment(kubernetes: Testbed, pods: str) -> None:
    storage = kubernetes.plane.space.folder / "storage"
    template = ray_pod_template("ray", memory="1Gi", storage=storage)
    [container] = template["spec"]["containers"]
    container["command"] = ["/bin/bash", "-c", "ray --version | tee /mnt/shared/version"]
    path = f"/api/v1/namespaces/{pods}/pods"
    kubernetes.plane.ask("POST", path, {**template, "metadata": {"name": "ray"}})
    wanted = ray_cluster()["spec"]["rayVersion"]
    _until(lambda: wanted in _log(kubernetes, f"{path}/ray/log"), 60)
    assert wanted in (storage / "version").read_text()


def test_simulated_pods_run_at_once_and_go_when_deleted(control_plane: Testbed) -> None:
    namespace = control_plane.namespace("simulated")
    path = f"/api/v1/namespaces/{namespace}/pods"
    kwok.add_nodes(control_plane.plane, 2, gpus=8, prefix="testbed")
    cluster = ray_cluster(groups=(Group(gpus=4),), simulated=True)
    [group] = cluster["spec"]["workerGroupSpecs"]
    names = [f"worker-{number}" for number in range(4)]
    for name in names:
        pod = {**group["template"], "metadata": {"name": name}}
        control_plane.plane.ask("POST", path, pod)
    _until(lambda: all(_phase(control_plane, namespace, name) == "Running" for name in names), 30)
    used = [control_plane.plane.ask("GET", f"{path}/{name}")["spec"]["nodeName"] for name in names]
    assert all(used.count(node) <= 2 for node in used), "two of 4 GPUs fit a node of 8"
    control_plane.plane.ask("DELETE", path)
    _until(lambda: not control_plane.plane.ask("GET", path)["items"], 30)


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ({"groupName": "gpu", "maxReplicas": 1, "minReplicas": 0}, "template"),
        ({"groupName": "gpu", "maxReplicas": "4", "minReplicas": 0, "template": {}}, "integer"),
    ],
)
def test_a_raycluster_of_the_wrong_shape_is_refused(
    control_plane: Testbed, group: dict[str, Any], why: str
) -> None:
    cluster = ray_cluster("wrong")
    cluster["spec"]["workerGroupSpecs"] = [group]
    path = "/apis/ray.io/v1/namespaces/default/rayclusters"
    with pytest.raises(urllib.error.HTTPError) as refused:
        control_plane.plane.ask("POST", path, cluster)
    assert refused.value.code == 422
    assert why in refused.value.read().decode()


def _pod(name: str, program: str, *, gpus: int = 0) -> dict[str, Any]:
    template = ray_pod_template("main", memory="256Mi", gpus=gpus)
    [container] = template["spec"]["containers"]
    container["command"] = [sys.executable, "-c", program]
    container["volumeMounts"].append({"name": "state", "mountPath": "/state"})
    spec = template["spec"] | {"terminationGracePeriodSeconds": 0}
    spec["volumes"].append({"name": "state", "emptyDir": {}})
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def _exec(api: CoreV1Api, namespace: str, *command: str) -> str:
    text: str = stream(
        api.connect_get_namespaced_pod_exec,
        "client",
        namespace,
        command=list(command),
        stdout=True,
        stderr=True,
        stdin=False,
        tty=False,
    )
    return text


def _phase(testbed: Testbed, namespace: str, name: str) -> str:
    """Empty when there is no such pod."""
    items = testbed.plane.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    phases = [pod["status"]["phase"] for pod in items if pod["metadata"]["name"] == name]
    return str(phases[0]) if phases else ""


def _restarts(testbed: Testbed, namespace: str, name: str) -> int:
    pod = testbed.plane.ask("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))


def _log(testbed: Testbed, path: str) -> str:
    """Empty while the container has not started."""
    try:
        return str(testbed.plane.ask("GET", path))
    except urllib.error.HTTPError as error:
        if error.code != 400:
            raise
        return ""


def _status_for(kubeconfig: Path, path: str) -> int:
    """The HTTP status that the user of this kubeconfig gets."""
    config = yaml.safe_load(kubeconfig.read_text())
    [cluster], [user] = config["clusters"], config["users"]
    context = ssl.create_default_context(cafile=cluster["cluster"]["certificate-authority"])
    context.load_cert_chain(user["user"]["client-certificate"], user["user"]["client-key"])
    try:
        with urllib.request.urlopen(cluster["cluster"]["server"] + path, context=context) as text:
            return int(text.status)
    except urllib.error.HTTPError as error:
        return error.code


def _audited(plane: ControlPlane) -> Iterator[dict[str, Any]]:
    for line in plane.audit_log.read_text().splitlines():
        entry = json.loads(line)
        yield {
            "user": entry["user"].get("username", ""),  # a wrong certificate has no name
            "resource": entry.get("objectRef", {}).get("resource", ""),
            "code": entry["responseStatus"]["code"],
        }


def _until(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)
