"""What `cockpit up` creates is what `kubectl apply -k` creates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cockpit.backends.kuberay.provision import overlay
from cockpit.backends.kuberay.provision.kinds import BY_NAME, PARTS, labels
from cockpit.backends.kuberay.provision.overlay import S3, Volume, Wanted, objects
from cockpit.cli.cluster import up
from cockpit.config import bundled
from tests.manifests.kustomize import OVERLAYS, Object, name_of, with_component
from tests.manifests.render import RENDERED, rendered

COMPONENTS = {"storage-nfs": Volume(nfs="nfs.example.com:/exports/ml"),
              "storage-hostpath": Volume(host_path="/var/lib/cockpit/shared")}  # fmt: skip


def without_labels(made: tuple[Object, ...]) -> dict[tuple[str, str], Any]:
    """By kind and name, without the labels of `cockpit up`."""
    ours = {name for kind in BY_NAME.values() for name in labels(kind, "ml", "demo")}
    for each in made:
        meta = each["metadata"]
        meta["labels"] = {k: v for k, v in meta.get("labels", {}).items() if k not in ours}
        if not meta["labels"]:
            del meta["labels"]
    return {(each["kind"], name_of(each)): each for each in made}


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("name", OVERLAYS)
def test_rendered_file_is_what_kustomize_builds(name: str) -> None:
    assert (RENDERED / f"{name}.yaml").read_text() == rendered(name), (
        "run: python -m tests.manifests.render"
    )


@pytest.mark.parametrize("name", OVERLAYS)
def test_up_creates_exactly_the_objects_of_the_overlay(name: str) -> None:
    made = objects(Wanted(overlay=name))
    built = yaml.safe_load_all((RENDERED / f"{name}.yaml").read_text())
    assert without_labels(made) == {(each["kind"], name_of(each)): each for each in built}
    assert (made[0]["kind"], made[-1]["kind"]) == ("Namespace", "RayCluster")


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("component", COMPONENTS)
def test_volume_of_a_flag_is_that_of_the_component(component: str, tmp_path: Path) -> None:
    made = without_labels(objects(Wanted(volume=COMPONENTS[component])))
    built = {
        (each["kind"], name_of(each)): each for each in with_component(component, folder=tmp_path)
    }
    assert made == built


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("base", "components", "endpoint"),
    [
        ("recovery", ["s3"], ""),
        ("cpu", ["s3", "s3-endpoint"], "http://s3.example.com:9000"),
        ("gpu", ["s3-gpu"], ""),
    ],
)
def test_bucket_of_a_flag_is_that_of_the_components(
    base: str, components: list[str], endpoint: str, tmp_path: Path
) -> None:
    s3 = S3("s3://bucket/runs", "s3", "us-east-1", endpoint)
    made = without_labels(objects(Wanted(overlay=base, s3=s3)))
    built = {
        (each["kind"], name_of(each)): each
        for each in with_component(*components, folder=tmp_path, overlay=base)
    }
    settings = built["ConfigMap", "ray-settings"]["data"]
    assert settings["STORAGE_PATH"] == "s3://BUCKET/runs"  # for the user to replace
    settings["STORAGE_PATH"] = s3.path
    assert made == built
    assert ("PersistentVolumeClaim", "shared") not in made


@pytest.mark.usefixtures("programs")
def test_bucket_of_a_role_lets_the_pods_get_its_credentials(tmp_path: Path) -> None:
    """At an address on port 80, which no other policy allows."""
    with_role = objects(Wanted(s3=S3("s3://bucket/runs")))
    made = with_component("s3", "s3-role", folder=tmp_path)
    policy = ("NetworkPolicy", "ray-to-role")
    built = {(each["kind"], name_of(each)): each for each in made}[policy]
    assert without_labels(with_role)[policy] == built
    [rule] = built["spec"]["egress"]
    assert {"ipBlock": {"cidr": "169.254.169.254/32"}} in rule["to"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 80}]
    with_keys = objects(Wanted(s3=S3("s3://bucket/runs", "s3")))
    assert policy not in without_labels(with_keys)


@pytest.mark.usefixtures("programs")
def test_small_asks_for_what_the_component_asks_for_and_fits_into_two_cpus(tmp_path: Path) -> None:
    made = objects(Wanted(small=True))
    built = {
        (each["kind"], name_of(each)): each for each in with_component("small", folder=tmp_path)
    }
    assert without_labels(made) == built
    recovery = objects(Wanted(overlay="recovery", small=True))
    [cluster] = [each for each in recovery if each["kind"] == "RayCluster"]
    need = overlay.needed(cluster)
    assert need["pods"] == 4
    assert need["requests.cpu"] < 1.8  # of 2, without what each node runs
    assert need["requests.memory"] <= 4 * 2**30
    assert need["limits.cpu"] == 8


def test_flags_name_every_overlay_and_every_part() -> None:
    assert set(up.OVERLAYS) == set(overlay.OVERLAYS) == set(OVERLAYS)
    assert set(up.PARTS) == set(PARTS)


def test_up_reads_the_rendered_files_of_the_repository() -> None:
    """tests/test_wheel.py checks those of a wheel."""
    assert bundled.manifests() / "kubernetes" / "rendered" == RENDERED
