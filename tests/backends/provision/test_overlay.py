"""Objects of an overlay for a chosen name, size, image and volume."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.backends.kuberay.provision.kinds import (
    KINDS,
    Object,
    is_ours,
    kind_of,
    name_of,
    path_of,
)
from cockpit.backends.kuberay.provision.overlay import (
    OVERLAYS,
    S3,
    Volume,
    Wanted,
    group_sizes,
    largest,
    needed,
    objects,
    templates,
)
from cockpit.model.error import UsageError

TEAM = Wanted(namespace="team-a", cluster="llm")


def one(made: tuple[Object, ...], kind: str) -> Any:
    return next(each for each in made if each["kind"] == kind)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_other_name_and_namespace_leave_nothing_of_the_manifests_names(overlay: str) -> None:
    made = objects(replace(TEAM, overlay=overlay))
    assert '"demo"' not in json.dumps(made)
    for each in made:
        kind = kind_of(each)
        assert is_ours(each, "team-a", "llm")
        if kind.namespaced:
            assert each["metadata"]["namespace"] == "team-a"
            assert path_of(each).startswith(f"{kind.api_path}/namespaces/team-a/{kind.plural}/")
        elif not kind.shared:
            assert "team-a" in name_of(each)
    assert {s["namespace"] for e in made for s in e.get("subjects", ())} == {"team-a"}
    role = one(made, "Role")
    assert role["rules"][0]["resourceNames"] == ["llm"]


@pytest.mark.parametrize(
    ("overlay", "sizes"),
    [
        ("cpu", {"workers": 7}),
        ("recovery", {"workers": 8}),  # with the spare
        ("autoscaling", {"workers": 0}),
        ("gpu", {"workers": 0, "gpu": 7}),
    ],
)
def test_size_sets_the_workers_and_the_quota_fits(overlay: str, sizes: dict[str, int]) -> None:
    made = objects(Wanted(overlay=overlay, size=7))
    cluster = one(made, "RayCluster")
    assert group_sizes(cluster) == sizes
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert group["replicas"] <= group["maxReplicas"]
    most = max(group["maxReplicas"] for group in cluster["spec"]["workerGroupSpecs"])
    assert most >= 7
    need = largest(cluster)
    assert {
        name: need[name] <= number(amount)
        for name, amount in one(made, "ResourceQuota")["spec"]["hard"].items()
        if name in need
    } == dict.fromkeys([n for n in one(made, "ResourceQuota")["spec"]["hard"] if n in need], True)


def number(amount: Any) -> float:
    text = str(amount)
    return float(text.removesuffix("Gi")) * 2**30 if text.endswith("Gi") else float(text)


def test_quota_has_room_for_the_container_of_the_autoscaler() -> None:
    made = objects(Wanted(overlay="autoscaling", size=23))
    need = largest(one(made, "RayCluster"))
    assert need["requests.cpu"] == pytest.approx(1 + 23 + 0.2)
    assert need["limits.memory"] == 73.5 * 2**30
    assert number(one(made, "ResourceQuota")["spec"]["hard"]["requests.cpu"]) >= 24.2


def test_needed_resources_are_those_of_the_head_and_all_workers() -> None:
    need = needed(one(objects(Wanted()), "RayCluster"))
    assert need["pods"] == 3
    assert need["requests.cpu"] == 3
    assert need["limits.memory"] == 10 * 2**30


def test_image_is_that_of_all_pods() -> None:
    made = objects(Wanted(overlay="gpu", image="registry.example.com:5000/ml/train:2"))
    images = {
        container["image"]
        for template in templates(one(made, "RayCluster"))
        for container in template["spec"]["containers"]
    }
    assert images == {"registry.example.com:5000/ml/train:2"}


def test_queue_is_a_label_of_the_cluster_alone() -> None:
    made = objects(Wanted(queue="volcano:team-a"))
    labels = one(made, "RayCluster")["metadata"]["labels"]
    assert (labels["volcano.sh/queue-name"], labels["ray.io/scheduler-name"]) == (
        "team-a",
        "volcano",
    )
    assert json.dumps(made).count("volcano.sh/queue-name") == 1


def test_storage_class_is_set_on_the_claim() -> None:
    made = objects(Wanted(volume=Volume(storage_class="fast-nfs")))
    assert one(made, "PersistentVolumeClaim")["spec"]["storageClassName"] == "fast-nfs"
    assert not [each for each in made if each["kind"] == "PersistentVolume"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_bucket_needs_no_claim_and_gives_its_keys_to_each_pod(overlay: str) -> None:
    s3 = S3("s3://team-a/runs", "keys", "eu-central-1", "https://s3.example.com")
    wanted = replace(TEAM, overlay=overlay, s3=s3)
    made = objects(wanted)
    assert not {"PersistentVolumeClaim", "PersistentVolume"} & {each["kind"] for each in made}
    assert '"claimName"' not in json.dumps(made)
    for template in templates(one(made, "RayCluster")):
        (container,) = template["spec"]["containers"]
        assert container["envFrom"][-1] == {"secretRef": {"name": "keys"}}
    settings = one(made, "ConfigMap")["data"]
    assert settings["STORAGE_PATH"] == wanted.storage_path == "s3://team-a/runs"
    assert settings["AWS_REGION"] == "eu-central-1"
    assert settings["AWS_ENDPOINT_URL"] == "https://s3.example.com"
    assert "ray-to-s3" not in json.dumps(made), "port 443 is open"
    role = objects(replace(wanted, s3=S3("s3://team-a")))
    assert "secretRef" not in json.dumps(role)
    assert "AWS_REGION" not in json.dumps(role)


def test_server_on_another_port_is_reached_by_the_pods_of_the_cluster() -> None:
    for endpoint, port in (("http://minio:9000", 9000), ("http://minio", 80)):
        made = objects(replace(TEAM, s3=S3("s3://abc/x", endpoint=endpoint)))
        (policy,) = [each for each in made if name_of(each) == "ray-to-s3"]
        assert policy["spec"]["egress"] == [{"ports": [{"protocol": "TCP", "port": port}]}]
        assert policy["spec"]["podSelector"]["matchLabels"] == {"ray.io/is-ray-node": "yes"}


def test_part_that_is_left_out_leaves_no_reference_to_it() -> None:
    everything = objects(Wanted())
    for part in {kind.part for kind in KINDS if kind.part}:
        kinds = {kind.name for kind in KINDS if kind.part == part}
        left = objects(Wanted(without=frozenset([part])))
        assert not kinds & {each["kind"] for each in left}
        assert len(left) < len(everything)
    plain = objects(Wanted(without=frozenset(["priorities", "roles"])))
    assert "priorityClassName" not in json.dumps(plain)
    assert [name_of(each) for each in plain if each["kind"] == "ServiceAccount"] == ["ray"]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Wanted(cluster="Demo"), "There is no RayCluster 'Demo'"),
        (Wanted(namespace="a.b"), "cannot be named 'a.b'"),
        (Wanted(namespace="../x"), "There is no namespace"),
        (Wanted(size=0), "at least 1"),
        (Wanted(queue="a/b"), "names no queue"),
        (Wanted(image="x; rm -rf"), "not the name of an image"),
        (Wanted(image="cockpit-train:0.1.0:x"), "not the name of an image"),
        (Wanted(image="registry.example.com/Cockpit:0.1.0"), "not the name of an image"),
        (Wanted(without=frozenset(["pods"])), "no part 'pods'"),
        (Wanted(volume=Volume(nfs="server")), "not SERVER:/PATH"),
        (Wanted(volume=Volume(host_path="../etc")), "not an absolute path"),
        (Wanted(volume=Volume(host_path="/a/../etc")), "not an absolute path"),
        (Wanted(volume=Volume(storage_class="a", nfs="b:/c")), "Keep one of"),
        (Wanted(volume=Volume(storage_class="A/B")), "no storage class"),
        (Wanted(s3=S3("/shared")), "is not the address of a bucket"),
        (Wanted(s3=S3("s3://key:secret@bucket/x")), "is not the address of a bucket"),
        (Wanted(s3=S3("s3://bucket/x?region=eu")), "is not the address of a bucket"),
        (Wanted(s3=S3("s3://abc", region="eu west")), "not the name of a region"),
        (Wanted(s3=S3("s3://abc", secret="A_B")), "no Secret 'A_B'"),
        (Wanted(s3=S3("s3://abc", endpoint="minio:9000")), "not the URL of a server"),
        (Wanted(s3=S3("s3://abc", endpoint="http://a:99999")), "not the URL of a server"),
        (Wanted(s3=S3("s3://abc"), volume=Volume(nfs="b:/c")), "--s3 needs no volume"),
    ],
)
def test_invalid_name_or_size_is_refused(wanted: Wanted, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        objects(wanted)
