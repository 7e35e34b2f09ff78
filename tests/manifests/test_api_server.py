"""A real API server accepts each object of manifests/kubernetes, and the pods of its cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.cluster.crds import real
from tests.cluster.module_crds import monitors_and_rules, rayservices_and_cronjobs
from tests.cluster.testbed import Testbed
from tests.manifests.kustomize import (
    FOLDER,
    IMAGE,
    MONITORING,
    OVERLAYS,
    STORAGE,
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

GROUP = "manifests.test"
"""The real definitions are served under it: `ray.io` has the simplified ones, for other tests."""
PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "PriorityClass": "priorityclasses",
    "StorageClass": "storageclasses",
}
"""Of the kinds whose plural is not the name with an s."""
NO_NAMESPACE = {
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "PersistentVolume",
    "PriorityClass",
    "StorageClass",
}


@pytest.fixture(scope="module")
def served(control_plane: Testbed) -> Iterator[Testbed]:
    """The API server, with the real definitions of KubeRay and of the Prometheus operator."""
    folder = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definitions = [*real(), *rayservices_and_cronjobs()]
    for definition in definitions:
        definition["metadata"]["name"] = f"{definition['spec']['names']['plural']}.{GROUP}"
        definition["spec"]["group"] = GROUP
    definitions += monitors_and_rules()
    for definition in definitions:
        control_plane.plane.ask("POST", folder, definition)
    for definition in definitions:
        spec = definition["spec"]
        control_plane.plane.wait_for(f"/apis/{spec['group']}/v1/{spec['names']['plural']}")
    yield control_plane
    for definition in definitions:
        control_plane.plane.ask("DELETE", f"{folder}/{definition['metadata']['name']}")


def in_namespace(objects: tuple[Object, ...], namespace: str) -> tuple[Object, ...]:
    """The same objects in another namespace than `ml`, and of the group of this test."""
    moved: list[Object] = json.loads(
        json.dumps(objects)
        .replace('"namespace": "ml"', f'"namespace": "{namespace}"')
        .replace('"ray.io/v1"', f'"{GROUP}/v1"')
    )
    for each in of_kind(tuple(moved), "Namespace"):
        each["metadata"]["name"] = namespace
    return tuple(moved)


def path_of(each: Object) -> str:
    api = "api" if each["apiVersion"] == "v1" else "apis"
    plural = PLURALS.get(each["kind"], each["kind"].lower() + "s")
    namespace = (
        "" if each["kind"] in NO_NAMESPACE else f"namespaces/{each['metadata']['namespace']}/"
    )
    return f"/{api}/{each['apiVersion']}/{namespace}{plural}/{name_of(each)}"


def apply(testbed: Testbed, each: Object) -> Any:
    query = "fieldManager=manifests&fieldValidation=Strict"
    return testbed.plane.ask(
        "PATCH", f"{path_of(each)}?{query}", each, content="application/apply-patch+yaml"
    )


@contextmanager
def applied(testbed: Testbed, objects: tuple[Object, ...]) -> Iterator[None]:
    """Apply the objects; delete those without a namespace at the end."""
    try:
        for each in objects:
            assert apply(testbed, each)["metadata"]["name"] == name_of(each)
        yield
    finally:
        for each in objects:
            if each["kind"] in NO_NAMESPACE:
                testbed.plane.ask("DELETE", path_of(each))


def admitted(testbed: Testbed, namespace: str, template: Object, labels: Mapping[str, str]) -> Any:
    """The pod of the template as the API server would create it.

    Admission checks account, priority and quota; a dry run schedules nothing.
    """
    metadata = {"name": "pod", "labels": labels, **template.get("metadata", {})}
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
    return testbed.plane.ask("POST", path, {"metadata": metadata, "spec": template["spec"]})


@pytest.mark.parametrize("name", OVERLAYS)
def test_each_object_of_an_overlay_and_each_pod_is_accepted(served: Testbed, name: str) -> None:
    namespace = f"manifests-{name}"
    objects = in_namespace(overlay(name), namespace)
    with applied(served, objects):
        for group in ray_groups(objects):
            made = admitted(served, namespace, group["template"], pod_labels(group))
            worker = "groupName" in group
            assert made["spec"]["priority"] == (1000 if worker else 10000)
            assert made["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize("name", STORAGE)
def test_each_kind_of_storage_is_accepted(served: Testbed, name: str, tmp_path: Path) -> None:
    objects = in_namespace(with_component(name, folder=tmp_path), f"manifests-{name}")
    with applied(served, objects):
        claim = one(objects, "PersistentVolumeClaim", "shared")["spec"]
        if volume := claim.get("volumeName"):
            (offered,) = of_kind(objects, "PersistentVolume")
            assert name_of(offered) == volume
            assert claim["storageClassName"] == ""  # no class makes another volume for it
            assert offered["spec"]["accessModes"] == claim["accessModes"]
            assert offered["spec"]["capacity"] == claim["resources"]["requests"]
        else:
            (storage,) = of_kind(objects, "StorageClass")
            assert name_of(storage) == claim["storageClassName"]


@pytest.mark.parametrize(
    ("base", "components"),
    [("cpu", ("s3", "s3-endpoint", "s3-role", "mlflow")), ("gpu", ("s3-gpu",))],
)
def test_bucket_in_place_of_the_claim_is_accepted_with_the_keys_of_a_secret(
    served: Testbed, base: str, components: tuple[str, ...], tmp_path: Path
) -> None:
    namespace = f"manifests-s3-{base}"
    made = with_component(*components, folder=tmp_path, overlay=base)
    objects = in_namespace(made, namespace)
    assert not any(name_of(each) == "shared" for each in objects)
    settings = one(objects, "ConfigMap", "ray-settings")["data"]
    assert settings["STORAGE_PATH"].startswith("s3://")
    with applied(served, objects):
        for group in ray_groups(objects):
            pod = admitted(served, namespace, group["template"], pod_labels(group))["spec"]
            sources = pod["containers"][0]["envFrom"]
            assert {"secretRef": {"name": "s3"}} in sources
            assert {"configMapRef": {"name": "ray-settings"}} in sources
            assert not any("persistentVolumeClaim" in volume for volume in pod["volumes"])
            mounts = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
            assert "/shared" not in mounts
        if "AWS_ENDPOINT_URL" in settings:
            (rule,) = one(objects, "NetworkPolicy", "ray-to-s3")["spec"]["egress"]
            assert settings["AWS_ENDPOINT_URL"].endswith(f":{rule['ports'][0]['port']}")


def test_mlflow_server_is_accepted_and_is_where_each_job_looks(
    served: Testbed, tmp_path: Path
) -> None:
    objects = in_namespace(with_component("mlflow", folder=tmp_path), "manifests-mlflow")
    with applied(served, objects):
        service = one(objects, "Service")
        (port,) = service["spec"]["ports"]
        settings = one(objects, "ConfigMap", "ray-settings")["data"]
        address = f"{name_of(service)}:{port['port']}"
        assert settings["MLFLOW_TRACKING_URI"] == f"http://{address}"
        template = one(objects, "Deployment")["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert service["spec"]["selector"] == labels
        pod = template["spec"]
        (container,) = pod["containers"]
        assert container["image"] == IMAGE
        flags = dict(argument.split("=", 1) for argument in container["args"])
        assert address in flags["--allowed-hosts"].split(",")
        assert flags["--port"] == str(port["port"])
        (volume,) = pod["volumes"]
        one(objects, "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
        inbound = one(objects, "NetworkPolicy", "mlflow")["spec"]
        outbound = one(objects, "NetworkPolicy", "ray-to-mlflow")["spec"]
        ray = outbound["podSelector"]["matchLabels"]
        assert all(ray.items() <= pod_labels(group).items() for group in ray_groups(objects))
        assert inbound["podSelector"]["matchLabels"] == labels
        assert inbound["ingress"][0]["from"] == [{"podSelector": {"matchLabels": ray}}]
        assert outbound["egress"][0]["to"] == [{"podSelector": inbound["podSelector"]}]


def test_mlflow_server_with_postgres_is_accepted_with_its_address_from_a_secret(
    served: Testbed, tmp_path: Path
) -> None:
    namespace = "manifests-postgres"
    objects = in_namespace(with_component("mlflow-postgres", folder=tmp_path), namespace)
    with applied(served, objects):
        template = one(objects, "Deployment")["spec"]["template"]
        made = admitted(served, namespace, template, template["metadata"]["labels"])
        (container,) = made["spec"]["containers"]
        assert not any("backend-store-uri" in argument for argument in container["args"])
        (uri,) = [each for each in container["env"] if each["name"] == "MLFLOW_BACKEND_STORE_URI"]
        assert uri["valueFrom"]["secretKeyRef"] == {"name": "mlflow-database", "key": "uri"}


def test_each_object_of_the_monitoring_is_accepted_and_each_pod_finds_its_files(
    served: Testbed,
) -> None:
    objects = build(MONITORING) + build(MONITORING / "dcgm")
    namespace = served.namespace("monitoring")
    with applied(served, objects):
        maps = {name_of(each): each["data"] for each in of_kind(objects, "ConfigMap")}
        for each in (*of_kind(objects, "Deployment"), *of_kind(objects, "DaemonSet")):
            template = each["spec"]["template"]
            template["spec"].pop("serviceAccountName", "")  # its token is made later
            labels = template["metadata"]["labels"]
            admitted(served, namespace, template, labels)
            volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
            (container,) = template["spec"]["containers"]
            for mount in container["volumeMounts"]:
                mapped = volumes[mount["name"]].get("configMap", {}).get("name")
                assert mapped is None or mount.get("subPath") in (None, *maps[mapped])
        for service in of_kind(objects, "Service"):
            assert name_of(service) == service["spec"]["selector"]["app.kubernetes.io/name"]


def test_nightly_game_day_of_the_cluster_is_accepted_and_its_pod_fits(
    served: Testbed, tmp_path: Path
) -> None:
    namespace = "manifests-nightly"
    objects = in_namespace(with_component("../../drills", folder=tmp_path), namespace)
    with applied(served, objects):
        job = one(objects, "CronJob")["spec"]["jobTemplate"]["spec"]
        (container,) = admitted(served, namespace, job["template"], {})["spec"]["containers"]
        assert container["image"] == "cockpit:0.1.0"
        command = container["command"]
        assert f"--cluster={name_of(one(objects, 'RayCluster'))}" in command
        (ray,) = ray_groups(objects)[0]["template"]["spec"]["containers"]
        mounts = {mount["mountPath"] for mount in ray["volumeMounts"]}
        assert "--set=storage_path=$(STORAGE_PATH)" in command
        storage = next(
            settings["data"]["STORAGE_PATH"]
            for settings in of_kind(objects, "ConfigMap")
            if "STORAGE_PATH" in settings.get("data", {})
        )
        assert str(Path(storage).parent) in mounts


def test_job_that_resubmits_is_accepted_and_its_pod_fits(served: Testbed, tmp_path: Path) -> None:
    namespace = "manifests-resubmit"
    made = with_component("resubmit", folder=tmp_path, overlay="recovery")
    objects = in_namespace(made, namespace)
    with applied(served, objects):
        template = one(objects, "Job")["spec"]["template"]
        (container,) = admitted(served, namespace, template, {})["spec"]["containers"]
        assert container["image"] == "cockpit:0.1.0"
        assert f"--cluster={name_of(one(objects, 'RayCluster'))}" in container["command"]


def test_redis_of_the_head_is_accepted_with_the_password_of_a_secret(
    served: Testbed, tmp_path: Path
) -> None:
    namespace = "manifests-redis"
    made = with_component("redis", "driver", folder=tmp_path, overlay="recovery")
    objects = in_namespace(made, namespace)
    with applied(served, objects):
        options = one(objects, "RayCluster")["spec"]["gcsFaultToleranceOptions"]
        secret = {"name": "redis", "key": "password"}
        assert options["redisPassword"]["valueFrom"]["secretKeyRef"] == secret
        service = one(objects, "Service")
        (port,) = service["spec"]["ports"]
        assert options["redisAddress"] == f"{name_of(service)}:{port['port']}"
        template = one(objects, "Deployment")["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert service["spec"]["selector"] == labels
        (container,) = admitted(served, namespace, template, labels)["spec"]["containers"]
        assert {"containerPort": port["port"], "name": "redis", "protocol": "TCP"} in container[
            "ports"
        ]
        (variable,) = container["env"]
        assert variable["valueFrom"]["secretKeyRef"] == secret
        arguments = container["args"]
        assert arguments[arguments.index("--requirepass") + 1] == f"$({variable['name']})"
        (volume,) = template["spec"]["volumes"]
        one(objects, "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
        inbound = one(objects, "NetworkPolicy", "redis")["spec"]
        outbound = one(objects, "NetworkPolicy", "ray-to-redis")["spec"]
        ray = outbound["podSelector"]["matchLabels"]
        assert all(ray.items() <= pod_labels(group).items() for group in ray_groups(objects))
        assert inbound["podSelector"]["matchLabels"] == labels
        assert inbound["ingress"][0]["from"] == [{"podSelector": {"matchLabels": ray}}]
        assert outbound["egress"][0]["to"] == [{"podSelector": inbound["podSelector"]}]


def test_rayjob_and_raycronjob_are_accepted(served: Testbed) -> None:
    namespace = served.namespace("manifests-jobs")
    for folder in ("jobs", "cronjob"):
        (job,) = in_namespace(build(FOLDER / folder), namespace)
        made = apply(served, job)["spec"]
        assert made.get("jobTemplate", made)["submissionMode"] == "HTTPMode"


def test_rayservice_and_its_pods_are_accepted_beside_the_cluster(served: Testbed) -> None:
    namespace = "manifests-service"
    objects = in_namespace(overlay("cpu") + build(FOLDER / "service"), namespace)
    with applied(served, objects):
        config = one(objects, "RayService")["spec"]["rayClusterConfig"]
        for group in (config["headGroupSpec"], *config["workerGroupSpecs"]):
            made = admitted(served, namespace, group["template"], {})
            (container,) = made["spec"]["containers"]
            assert container["image"] == IMAGE
            for volume in made["spec"]["volumes"]:
                if claim := volume.get("persistentVolumeClaim"):
                    one(objects, "PersistentVolumeClaim", claim["claimName"])


@pytest.mark.parametrize(
    ("base", "components"), [("cpu", ("small",)), ("gpu", ("recovery", "spare-gpu"))]
)
def test_component_that_no_overlay_has_is_accepted(
    served: Testbed, base: str, components: tuple[str, ...], tmp_path: Path
) -> None:
    namespace = f"manifests-{components[-1]}"
    objects = in_namespace(with_component(*components, folder=tmp_path, overlay=base), namespace)
    with applied(served, objects):
        for group in ray_groups(objects):
            admitted(served, namespace, group["template"], pod_labels(group))


def test_unknown_field_is_refused(served: Testbed) -> None:
    """So that the tests above can fail."""
    namespace = served.namespace("manifests-unknown")
    objects = in_namespace(overlay("cpu"), namespace)
    cluster = one(objects, "RayCluster")
    cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["imagge"] = "x"
    with pytest.raises(HTTPError) as refused:
        apply(served, cluster)
    assert "imagge: field not declared in schema" in refused.value.read().decode()
