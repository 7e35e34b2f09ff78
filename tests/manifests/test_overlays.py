"""What each overlay of manifests/kubernetes contains."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from cockpit.backends.kuberay.api.access import DASHBOARD_PORT
from cockpit.cli.change import launch
from cockpit.cli.options.parser import Parser
from cockpit.launch import flags as flags_of_launch
from cockpit.launch.job import bundled_job
from cockpit.model.error import ExitCode
from cockpit.model.recovery import FAST
from tests.manifests.kustomize import (
    FOLDER,
    IMAGE,
    MONITORING,
    OVERLAYS,
    Object,
    build,
    name_of,
    of_kind,
    one,
    overlay,
    pod_labels,
    ray_groups,
    with_component,
)

ROOT = Path(__file__).parents[2]
UNITS = {"Gi": 1024**3, "Mi": 1024**2, "m": 1e-3, "": 1}

pytestmark = pytest.mark.usefixtures("programs")


@pytest.fixture(params=OVERLAYS)
def objects(request: pytest.FixtureRequest) -> tuple[Object, ...]:
    return overlay(request.param)


def amount(quantity: object) -> float:
    found = re.fullmatch(r"(\d+)(Gi|Mi|m|)", str(quantity))
    assert found is not None, quantity
    return int(found[1]) * UNITS[found[2]]


def containers(objects: tuple[Object, ...]) -> Iterator[Object]:
    for group in ray_groups(objects):
        yield from group["template"]["spec"]["containers"]


def ray_version() -> str:
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())["project"]
    [pin] = [item for item in project["optional-dependencies"]["train"] if item.startswith("ray[")]
    return str(pin.partition("==")[2])


def test_head_offers_no_cpu_for_ranks_and_each_worker_does(objects: tuple[Object, ...]) -> None:
    head, *workers = ray_groups(objects)
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert workers
    for group in workers:
        (ray,) = group["template"]["spec"]["containers"]
        offered = float(group["rayStartParams"]["num-cpus"])
        assert 1 <= offered <= amount(ray["resources"]["requests"]["cpu"])


def test_cluster_uses_the_pinned_ray_and_one_image_and_requires_a_token(
    objects: tuple[Object, ...],
) -> None:
    spec = one(objects, "RayCluster")["spec"]
    assert spec["rayVersion"] == ray_version()
    assert {container["image"] for container in containers(objects)} == {IMAGE}
    assert spec["authOptions"]["mode"] == "token"


def test_largest_cluster_fits_into_the_quota(objects: tuple[Object, ...]) -> None:
    quota = one(objects, "ResourceQuota")["spec"]["hard"]
    head, *workers = ray_groups(objects)
    used: dict[str, float] = {"pods": 1}
    for group, count in ((head, 1), *((group, group["maxReplicas"]) for group in workers)):
        (ray,) = group["template"]["spec"]["containers"]
        for kind in ("requests", "limits"):
            assert {"cpu", "memory"} <= ray["resources"][kind].keys()
            for resource, quantity in ray["resources"][kind].items():
                name = f"{kind}.{resource}"
                used[name] = used.get(name, 0) + count * amount(quantity)
        if group is not head:
            assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
            used["pods"] += count
    assert used["requests.memory"] == used["limits.memory"]  # a rank is not killed for others' use
    for name, allowed in quota.items():
        assert used.get(name, 0) <= amount(allowed), name


def test_each_mounted_claim_account_setting_and_priority_exists(
    objects: tuple[Object, ...],
) -> None:
    for group in ray_groups(objects):
        pod = group["template"]["spec"]
        one(objects, "ServiceAccount", pod["serviceAccountName"])
        one(objects, "PriorityClass", pod["priorityClassName"])
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        (ray,) = pod["containers"]
        for source in ray["envFrom"]:
            one(objects, "ConfigMap", source["configMapRef"]["name"])
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in ray["volumeMounts"]}
        assert mounts["/dev/shm"]["emptyDir"]["medium"] == "Memory"
        claim = one(
            objects,
            "PersistentVolumeClaim",
            mounts["/shared"]["persistentVolumeClaim"]["claimName"],
        )
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_each_selector_matches_pods_of_the_cluster(objects: tuple[Object, ...]) -> None:
    pods = [pod_labels(group).items() for group in ray_groups(objects)]
    selectors = [each["spec"]["selector"] for each in of_kind(objects, "PodDisruptionBudget")]
    for policy in of_kind(objects, "NetworkPolicy"):
        selectors.append(policy["spec"]["podSelector"])
        for rule in (*policy["spec"].get("ingress", ()), *policy["spec"].get("egress", ())):
            peers = (*rule.get("from", ()), *rule.get("to", ()))
            selectors += [peer["podSelector"] for peer in peers if "podSelector" in peer]
    for group in ray_groups(objects):
        spread = group["template"]["spec"].get("topologySpreadConstraints", ())
        selectors += [constraint["labelSelector"] for constraint in spread]
    for selector in selectors:
        assert any(selects(selector, dict(labels)) for labels in pods), selector


def test_pods_without_an_explicit_rule_receive_and_send_nothing(
    objects: tuple[Object, ...],
) -> None:
    deny = one(objects, "NetworkPolicy", "default-deny")["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for policy in of_kind(objects, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", ()):
            if "from" not in rule:  # the dashboard, which requires the token
                assert [port["port"] for port in rule["ports"]] == [8265]


NAMESPACE, HEAD = "ml", {"ray.io/node-type": "head", "ray.io/is-ray-node": "yes"}
OWN_HEAD = HEAD | {"ray.io/cluster": "train-x1"}
WORKER = {"ray.io/node-type": "worker", "ray.io/is-ray-node": "yes"}
MLFLOW, OUTSIDE = {"app.kubernetes.io/name": "mlflow"}, None
ISOLATED = WORKER | {"cockpit.ray.io/drill": "d1"}
"""Labels of pods; None: an address that is no pod's."""


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    for wanted in selector.get("matchExpressions", ()):
        assert wanted["operator"] == "DoesNotExist"
        if wanted["key"] in labels:
            return False
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def passes(
    objects: tuple[Object, ...],
    direction: str,
    pod: Mapping[str, str],
    peer: tuple[str, Mapping[str, str] | None],
    port: int,
) -> bool:
    """Whether a policy of the namespace lets the pod connect to the peer, or the peer to it."""
    where, labels = peer

    def is_peer(each: Object) -> bool:
        if labels is None:
            return False
        wanted = each.get("namespaceSelector")
        own = where == NAMESPACE if wanted is None else False
        names = {"kubernetes.io/metadata.name": where}
        inside = own or (wanted is not None and selects(wanted, names))
        return inside and "ipBlock" not in each and selects(each.get("podSelector", {}), labels)

    for policy in (each["spec"] for each in of_kind(objects, "NetworkPolicy")):
        if not selects(policy["podSelector"], pod):
            continue
        for rule in policy.get(direction, ()):
            peers = rule.get("from" if direction == "ingress" else "to")
            ports = rule.get("ports")
            if (ports is None or port in [each["port"] for each in ports]) and (
                peers is None or any(map(is_peer, peers))
            ):
                return True
    return False


def reaches(
    objects: tuple[Object, ...],
    source: tuple[str, Mapping[str, str] | None],
    target: tuple[str, Mapping[str, str] | None],
    port: int,
) -> bool:
    leaves = source[0] != NAMESPACE or (
        source[1] is not None and passes(objects, "egress", source[1], target, port)
    )
    enters = target[0] != NAMESPACE or (
        target[1] is not None and passes(objects, "ingress", target[1], source, port)
    )
    return leaves and enters


@pytest.mark.parametrize(
    ("source", "target", "port", "allowed"),
    [
        ((NAMESPACE, WORKER), (NAMESPACE, HEAD), 6379, True),
        ((NAMESPACE, HEAD), (NAMESPACE, WORKER), 34567, True),
        ((NAMESPACE, WORKER), (NAMESPACE, OWN_HEAD), 6379, True),  # a RayJob with its own cluster
        ((NAMESPACE, {}), (NAMESPACE, HEAD), 6379, False),
        (("other", WORKER), (NAMESPACE, HEAD), 6379, False),
        (("", OUTSIDE), (NAMESPACE, HEAD), 8265, True),  # cockpit, through the API server
        (("kuberay-system", {}), (NAMESPACE, HEAD), 8265, True),
        (("ingress-nginx", {}), (NAMESPACE, OWN_HEAD), 8265, True),
        (("", OUTSIDE), (NAMESPACE, WORKER), 8265, False),
        (("monitoring", {}), (NAMESPACE, WORKER), 8080, True),
        (("other", {}), (NAMESPACE, WORKER), 8080, False),
        ((NAMESPACE, {}), ("kube-system", {}), 53, True),
        ((NAMESPACE, WORKER), ("", OUTSIDE), 443, True),  # object stores
        ((NAMESPACE, {}), ("", OUTSIDE), 6443, True),  # a pod of cockpit, to the API server
        ((NAMESPACE, HEAD), ("", OUTSIDE), 8443, True),  # the autoscaler, to minikube's API server
        ((NAMESPACE, HEAD), ("", OUTSIDE), 16443, True),  # the same on MicroK8s
        ((NAMESPACE, WORKER), ("", OUTSIDE), 22, False),
        ((NAMESPACE, WORKER), ("", OUTSIDE), 9000, True),  # an S3 server of the cluster
        ((NAMESPACE, WORKER), (NAMESPACE, MLFLOW), 5000, True),
        ((NAMESPACE, {}), (NAMESPACE, MLFLOW), 5000, False),
        ((NAMESPACE, MLFLOW), (NAMESPACE, HEAD), 6379, False),
        ((NAMESPACE, ISOLATED), (NAMESPACE, HEAD), 6379, False),  # the drill network-isolate
        ((NAMESPACE, HEAD), (NAMESPACE, ISOLATED), 34567, False),
        ((NAMESPACE, ISOLATED), ("", OUTSIDE), 443, False),
        ((NAMESPACE, ISOLATED), ("kube-system", {}), 53, False),
        (("monitoring", {}), (NAMESPACE, ISOLATED), 8080, False),
    ],
)
def test_network_policies_allow_what_ray_needs(
    source: tuple[str, Mapping[str, str] | None],
    target: tuple[str, Mapping[str, str] | None],
    port: int,
    allowed: bool,
    everything: tuple[Object, ...],
) -> None:
    assert reaches(everything, source, target, port) is allowed


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Object, ...]:
    folder = tmp_path_factory.mktemp("network")
    return with_component("mlflow", "s3", "s3-endpoint", folder=folder, overlay="monitoring")


def test_prometheus_reaches_the_metrics_of_each_pod_with_and_without_its_operator(
    objects: tuple[Object, ...],
) -> None:
    """manifests/monitoring is applied beside any overlay."""
    for pod in (HEAD, WORKER):
        assert reaches(objects, ("monitoring", {}), (NAMESPACE, pod), 8080)
        assert not reaches(objects, ("other", {}), (NAMESPACE, pod), 8080)


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({"app_kubernetes_io_name": "dcgm-exporter"}, True),  # manifests/monitoring/dcgm
        ({"app": "nvidia-dcgm-exporter"}, True),  # NVIDIA's GPU operator
        ({"app_kubernetes_io_name": "dcgm-exporter", "app": "x"}, True),
        ({"app": "dcgm-exporter-proxy"}, False),
        ({}, False),
    ],
)
def test_prometheus_without_its_operator_finds_the_exporter_of_either_origin(
    labels: Mapping[str, str], found: bool
) -> None:
    config = yaml.safe_load((MONITORING / "kubernetes.yml").read_text())
    [job] = [each for each in config["scrape_configs"] if each["job_name"] == "dcgm"]
    meta = {f"__meta_kubernetes_pod_label_{name}": label for name, label in labels.items()}
    meta["__meta_kubernetes_pod_container_port_name"] = "metrics"
    kept = [
        re.fullmatch(rule["regex"], ";".join(meta.get(name, "") for name in rule["source_labels"]))
        for rule in job["relabel_configs"]
        if rule["action"] == "keep"
    ]
    assert all(kept) is found


def test_service_runs_the_checkpoint_server_on_its_own_cluster() -> None:
    objects = build(FOLDER / "service")
    spec = one(objects, "RayService")["spec"]
    (app,) = yaml.safe_load(spec["serveConfigV2"])["applications"]
    module, _, builder = app["import_path"].partition(":")
    assert f"def {builder}(arguments" in (ROOT / f"{module.replace('.', '/')}.py").read_text()
    settings = {setting.name: setting for setting in bundled_job("serve").settings}
    assert set(app["args"]) <= settings.keys()
    config = spec["rayClusterConfig"]
    (worker,) = config["workerGroupSpecs"]
    assert config["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert int(worker["rayStartParams"]["num-cpus"]) * worker["replicas"] >= app["args"]["replicas"]
    pods = WORKER | {"ray.io/serve": "true"}
    for where, passed in ((NAMESPACE, True), ("ingress-nginx", True), ("other", False)):
        assert passes(objects, "ingress", pods, (where, {}), 8000) is passed
    assert not passes(objects, "ingress", ISOLATED | pods, (NAMESPACE, {}), 8000)


def service_pods(folder: str) -> tuple[str, list[Object]]:
    """The path of the run that is served, and the pods of the head and of the replicas."""
    spec = one(build(FOLDER / folder), "RayService")["spec"]
    (app,) = yaml.safe_load(spec["serveConfigV2"])["applications"]
    config = spec["rayClusterConfig"]
    groups = [config["headGroupSpec"], *config["workerGroupSpecs"]]
    return app["args"]["run_path"], [group["template"]["spec"] for group in groups]


def test_service_serves_a_run_of_the_job_from_the_storage_of_its_pods() -> None:
    (job,) = build(FOLDER / "jobs")
    words = job["spec"]["entrypoint"].split()
    run = words[words.index("--run-name") + 1]
    settings = one(overlay("cpu"), "ConfigMap", "ray-settings")["data"]
    run_path, pods = service_pods("service")
    assert run_path == f"$STORAGE_PATH/{run}"
    for pod in pods:
        (ray,) = pod["containers"]
        assert {"configMapRef": {"name": "ray-settings"}} in ray["envFrom"]
        (mount,), (volume,) = ray["volumeMounts"], pod["volumes"]
        assert settings["STORAGE_PATH"].startswith(f"{mount['mountPath']}/")
        assert volume["persistentVolumeClaim"]["claimName"] == "shared"


def test_service_of_a_bucket_differs_in_the_storage_alone(tmp_path: Path) -> None:
    """It is beside the component s3, which deletes the claim."""
    objects = with_component("s3", folder=tmp_path)
    assert not of_kind(objects, "PersistentVolumeClaim")
    sources = [ray["envFrom"] for ray in containers(objects)]
    run_path, pods = service_pods("service-s3")
    usual_path, usual = service_pods("service")
    assert run_path == usual_path
    for pod, with_claim in zip(pods, usual, strict=True):
        (ray,) = pod["containers"]
        assert ray["envFrom"] in sources
        with_claim.pop("volumes")
        del with_claim["containers"][0]["volumeMounts"]
        with_claim["containers"][0]["envFrom"] = ray["envFrom"]
        assert pod == with_claim


@pytest.mark.parametrize("components", [(), ("s3",)], ids=["claim", "bucket"])
def test_game_day_stores_its_run_where_the_overlay_does(
    components: tuple[str, ...], tmp_path: Path
) -> None:
    objects = with_component(*components, "../../drills", folder=tmp_path)
    job = one(objects, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = job["containers"]
    assert "--set=storage_path=$(STORAGE_PATH)" in container["command"]
    (variable,) = [each for each in container["env"] if each["name"] == "STORAGE_PATH"]
    source = variable["valueFrom"]["configMapKeyRef"]
    path = one(objects, "ConfigMap", source["name"])["data"][source["key"]]
    assert path.startswith("s3://" if components else "/shared/")


@pytest.mark.parametrize("components", [("resubmit",), ("resubmit", "driver")], ids="+".join)
def test_job_that_resubmits_has_flags_and_exit_codes_that_exist(
    components: tuple[str, ...], tmp_path: Path
) -> None:
    objects = with_component(*components, folder=tmp_path, overlay="recovery")
    spec = one(objects, "Job")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    program, verb, *flags = container["command"]
    assert (program, verb) == ("cockpit", "launch")
    parser = Parser()
    launch.arguments(parser, verb)
    cluster = "--cluster=demo"  # a flag of every verb
    args = parser.parse_args([flag for flag in flags if flag != cluster])
    assert cluster in flags
    assert args.yes
    assert args.resubmit > 0
    command = flags_of_launch.spec(args).command
    assert command == flags_of_launch.spec(args).command, "a pod that replaces it finds the job"
    [names] = [rule["onExitCodes"] for rule in spec["podFailurePolicy"]["rules"][1:]]
    ends = {ExitCode.FAILED, ExitCode.USAGE, ExitCode.NOT_ALLOWED}
    assert set(names["values"]) == ends
    assert names["containerName"] == container["name"]
    (account,) = [
        each
        for each in of_kind(objects, "ServiceAccount")
        if name_of(each) == spec["template"]["spec"]["serviceAccountName"]
    ]
    roles = [
        one(objects, "Role", each["roleRef"]["name"])
        for each in of_kind(objects, "RoleBinding")
        if each["subjects"][0]["name"] == name_of(account)
    ]
    named = [name for role in roles for rule in role["rules"] for name in rule["resourceNames"]]
    head = f"{name_of(one(objects, 'RayCluster'))}-head-svc:{DASHBOARD_PORT}"
    assert set(named) == {"demo", head}


def test_bindings_name_existing_roles_and_accounts(objects: tuple[Object, ...]) -> None:
    bindings = of_kind(objects, "RoleBinding")
    assert bindings
    for binding in bindings:
        role = one(objects, binding["roleRef"]["kind"], binding["roleRef"]["name"])
        for rule in role["rules"]:
            named = rule.get("resourceNames", ["demo"])
            assert named == [name_of(one(objects, "RayCluster"))]
        for subject in binding["subjects"]:
            account = one(objects, "ServiceAccount", subject["name"])
            assert subject["namespace"] == account["metadata"]["namespace"]


def test_recovery_has_the_fast_profile_and_a_spare_worker() -> None:
    settings = one(overlay("recovery"), "ConfigMap", "ray-settings")["data"]
    assert FAST.pod_env.items() <= settings.items()
    default = one(overlay("cpu"), "ConfigMap", "ray-settings")["data"]
    assert not FAST.pod_env.keys() & default.keys()
    [spare] = ray_groups(overlay("recovery"))[1:]
    [group] = ray_groups(overlay("cpu"))[1:]
    assert spare["replicas"] == group["replicas"] + 1


def test_recovery_with_a_spare_is_added_to_gpu_workers(tmp_path: Path) -> None:
    made = with_component("recovery", "spare-gpu", folder=tmp_path, overlay="gpu")
    sizes = {group.get("groupName", "head"): group.get("replicas") for group in ray_groups(made)}
    assert sizes == {"head": None, "workers": 0, "gpu": 3}
    settings = one(made, "ConfigMap", "ray-settings")["data"]
    assert FAST.pod_env.items() <= settings.items()
    assert "NCCL_DEBUG" in settings


@pytest.mark.parametrize("base", ["cpu", "gpu"])
def test_driver_has_a_pod_without_ranks_whose_resource_a_resubmitted_job_reserves(
    base: str, tmp_path: Path
) -> None:
    made = with_component("resubmit", "redis", "driver", folder=tmp_path, overlay=base)
    *others, group = ray_groups(made)
    assert group["groupName"] == "driver"
    assert others == ray_groups(overlay(base)), "the other groups are as before"
    assert group["minReplicas"] == group["replicas"] == group["maxReplicas"] == 1
    assert group["rayStartParams"]["num-cpus"] == "0"
    [given] = shlex.split(group["rayStartParams"]["resources"])  # as the shell of the pod does
    resources = json.loads(given)
    command = one(made, "Job")["spec"]["template"]["spec"]["containers"][0]["command"]
    [flag] = [each for each in command if each.startswith("--driver-resource=")]
    name, count = flag.partition("=")[2].split("=")
    assert resources[name] >= float(count)
    assert one(made, "RayCluster")["spec"]["gcsFaultToleranceOptions"]
    test_largest_cluster_fits_into_the_quota(made)


@pytest.mark.parametrize("base", ["cpu", "gpu"])
def test_components_for_all_overlays_combine(base: str, tmp_path: Path) -> None:
    spare = "spare" if base == "cpu" else "spare-gpu"
    names = ("recovery", spare, "monitoring", "mlflow", "storage-nfs", "autoscaling")
    made = with_component(*names, folder=tmp_path, overlay=base)
    settings = one(made, "ConfigMap", "ray-settings")["data"]
    assert {"RAY_health_check_period_ms", "MLFLOW_TRACKING_URI"} <= settings.keys()
    assert one(made, "PodMonitor")
    assert one(made, "RayCluster")["spec"]["enableInTreeAutoscaling"]
    assert one(made, "PersistentVolumeClaim", "shared")["spec"]["volumeName"] == "ml-shared-nfs"


def test_drain_ends_before_the_grace_period_of_the_pod(objects: tuple[Object, ...]) -> None:
    settings = one(objects, "ConfigMap", "ray-settings")["data"]
    drain_s = float(settings.get("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "30"))  # Ray's default
    for group in ray_groups(objects)[1:]:
        assert drain_s < group["template"]["spec"]["terminationGracePeriodSeconds"]


def test_service_ends_its_requests_before_its_pod_is_killed(objects: tuple[Object, ...]) -> None:
    """Its settings are those of the overlay beside it."""
    settings = dict(one(objects, "ConfigMap", "ray-settings")["data"])
    _, (_, worker) = service_pods("service")
    (ray,) = worker["containers"]
    settings |= {each["name"]: each["value"] for each in ray.get("env", ())}
    drain_s = float(settings.get("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "30"))
    [requests_s] = [
        each.default for each in bundled_job("serve").settings if each.name == "drain_s"
    ]
    assert float(str(requests_s)) < drain_s < worker.get("terminationGracePeriodSeconds", 30)


def test_only_pods_that_ask_for_gpus_tolerate_gpu_nodes() -> None:
    tolerant = {}
    for group in ray_groups(overlay("gpu")):
        pod = group["template"]["spec"]
        gpus = pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", "0")
        tolerant[group.get("groupName", "head")] = (gpus, "tolerations" in pod)
    assert tolerant == {"head": ("0", False), "workers": ("0", False), "gpu": ("1", True)}
    assert "NCCL_DEBUG" in one(overlay("gpu"), "ConfigMap", "ray-settings")["data"]


def test_autoscaler_may_call_the_kubernetes_api_and_nothing_else_may() -> None:
    spec = one(overlay("autoscaling"), "RayCluster")["spec"]
    assert spec["enableInTreeAutoscaling"]
    assert spec["autoscalerOptions"]["version"] == "v2"
    head, *workers = ray_groups(overlay("autoscaling"))
    assert head["template"]["spec"]["automountServiceAccountToken"]
    assert not any("automountServiceAccountToken" in g["template"]["spec"] for g in workers)
    account = one(overlay("autoscaling"), "ServiceAccount", "ray")
    assert account["automountServiceAccountToken"] is False


def test_monitor_selects_the_port_that_each_pod_has() -> None:
    monitor = one(overlay("monitoring"), "PodMonitor")["spec"]
    (selector,) = monitor["selector"]["matchExpressions"]
    ports = {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]}
    allowed = one(overlay("monitoring"), "NetworkPolicy", "ray-metrics")["spec"]["ingress"][0]
    for group in ray_groups(overlay("monitoring")):
        assert pod_labels(group)[selector["key"]] in selector["values"]
        (ray,) = group["template"]["spec"]["containers"]
        named = {port["containerPort"] for port in ray["ports"] if port["name"] in ports}
        assert named == {port["port"] for port in allowed["ports"]}


def test_monitors_of_two_namespaces_select_no_pod_twice() -> None:
    monitor, cluster = (one(overlay("monitoring"), kind) for kind in ("PodMonitor", "RayCluster"))
    assert monitor["metadata"]["namespace"] == cluster["metadata"]["namespace"]
    assert "namespaceSelector" not in monitor["spec"], "the default is its own namespace"


@pytest.mark.parametrize("folder", ["jobs", "cronjob"])
def test_rayjob_runs_a_bundled_job_on_the_cluster_with_flags_that_exist(folder: str) -> None:
    (job,) = build(FOLDER / folder)
    spec = job["spec"].get("jobTemplate", job["spec"])
    assert spec["clusterSelector"] == {"ray.io/cluster": name_of(one(overlay("cpu"), "RayCluster"))}
    python, _, module, *words = spec["entrypoint"].split()
    assert python == "python"
    bundled = bundled_job(module.removeprefix("training.jobs."))
    flags = {word for word in words if word.startswith("--")}
    assert flags <= {"--" + setting.name.replace("_", "-") for setting in bundled.settings}
    assert words[words.index("--storage-path") + 1] == '"$STORAGE_PATH"'


def test_rayjob_of_each_night_has_a_run_of_its_own(tmp_path: Path) -> None:
    """A run that has ended does nothing when it is started again under its name."""
    (job,) = build(FOLDER / "cronjob")
    entrypoint = job["spec"]["jobTemplate"]["entrypoint"]
    names = run_names(entrypoint, tmp_path, "20261126", "20261127")
    assert names == ["nightly-20261126", "nightly-20261127"]


def run_names(entrypoint: str, folder: Path, *days: str) -> list[str]:
    """The name of the run on each day, as the shell passes it, in which Ray starts the command."""
    programs = {"date": 'echo "$DAY"', "python": 'for last; do :; done; echo "$last"'}
    for name, does in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)
    return [
        subprocess.run(
            ["/bin/sh", "-c", entrypoint],
            env={"PATH": str(folder), "DAY": day},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.strip()
        for day in days
    ]
