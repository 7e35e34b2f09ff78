"""The images, really built with buildah from a Debian of debootstrap, and run on a real node.

A build takes minutes, a registry for Python packages, and 30 GB of disk.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from xml.etree import ElementTree

import pytest

from cockpit.cli.main import main
from cockpit.model.error import ExitCode
from tests.cluster.node import ctr
from tests.cluster.testbed import Testbed
from tests.manifests.kustomize import Object, name_of, of_kind, one, with_component
from tests.manifests.test_api_server import NO_NAMESPACE, apply, path_of
from tests.manifests.test_image import FOLDER, VERSION

BASE = "localhost/debian-python:test"
TRAIN, COCKPIT = "localhost/cockpit-train", "localhost/cockpit"
FREE_BYTES = 30 << 30
LARGEST_BYTES = 150_000_000
"""Of the image `cockpit`, unpacked."""
NAMESPACE, APPLIED = "images", "images-applied"
"""Of the cluster of `cockpit up`, and of the one of `kubectl apply -k`."""
VOLUMES = {"shared": ("20Gi", "ReadWriteMany"), "mlflow": ("10Gi", "ReadWriteOnce"),
           "cockpit-drills": ("1Gi", "ReadWriteOnce")}  # fmt: skip
"""What the claims of the manifests ask for, by their names."""
READY_S, DAY_S = 900.0, 3000.0

# The build of both images is part of the first test.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]


@dataclass(frozen=True)
class Store:
    """Images of buildah, in a folder of their own."""

    folder: Path

    def run(self, *command: str | Path) -> str:
        environment = {
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "BUILDAH_ISOLATION": "chroot",
        }
        done = subprocess.run(
            command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout.strip()

    def archive(self, image: str) -> Path:
        """As containerd imports it, unpacked."""
        path = self.folder / f"{image.rpartition('/')[2]}.tar"
        path.unlink(missing_ok=True)
        target = f"docker-archive:{path}:{image}:{VERSION}"
        self.run("buildah", "push", "-q", f"{image}:{VERSION}", target)
        return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Both images, built by the script that a user runs."""
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None:
            pytest.skip(f"apt-get install {program}")
    folder = tmp_path_factory.mktemp("images")
    if shutil.disk_usage(folder).free < FREE_BYTES:
        pytest.skip(f"less than {FREE_BYTES >> 30} GB of disk are free")
    made = Store(folder)
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/graph"\n'
    )
    # The certificates of this machine: a proxy may sign what pip reads.
    authorities = Path(
        ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    )
    inside = "/etc/ssl/certs/ca-certificates.crt"
    (folder / "pip.conf").write_text(f"[global]\ncert = {inside}\n")
    try:
        base_image(made, authorities, inside)
        for what, name in (("train", TRAIN), ("cockpit", COCKPIT)):
            made.run(
                *(FOLDER / "build.sh", what, "--builder", "buildah", "--from", BASE),
                *("--name", name, "--pip-conf", folder / "pip.conf"),
            )
        yield made
    finally:
        made.run("buildah", "rm", "--all")
        made.run("buildah", "rmi", "--all", "--force")
        shutil.rmtree(folder)


def base_image(made: Store, authorities: Path, inside: str) -> None:
    """A Debian with Python, and with the authorities of this machine at the path `inside`."""
    root = made.folder / "root"
    made.run(
        "debootstrap",
        "--variant=minbase",
        "--include=python3,python3-venv,ca-certificates",
        "bookworm",
        root,
    )
    shutil.copy(authorities, root / inside.lstrip("/"))
    container = made.run("buildah", "from", "scratch")
    made.run("buildah", "add", "-q", container, root, "/")
    made.run("buildah", "commit", "-q", "--rm", container, BASE)
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def with_images(store: Store, kubernetes: Testbed) -> Testbed:
    """The cluster, whose node has both images, also under the names in the manifests."""
    space = kubernetes.plane.space
    for image in (TRAIN, COCKPIT):
        archive = store.archive(image)
        space.run(*ctr(), "images", "import", archive)
        archive.unlink()
        plain = f"docker.io/library/{image.rpartition('/')[2]}:{VERSION}"
        space.run(*ctr(), "images", "tag", f"{image}:{VERSION}", plain)
    return kubernetes


def test_image_of_cockpit_is_small_and_its_content_is_listed(store: Store) -> None:
    archive = store.archive(COCKPIT)
    assert archive.stat().st_size < LARGEST_BYTES
    config = json.loads(store.run("buildah", "inspect", "--type", "image", f"{COCKPIT}:{VERSION}"))
    docker = config["Docker"]["config"]
    assert docker["User"] == "1000:1000"
    assert docker["Labels"]["org.opencontainers.image.version"] == VERSION
    history = json.dumps(config["History"])
    assert "cert =" not in history  # the settings of pip


def test_cluster_of_built_images_trains_recovers_and_is_seen_from_a_pod(
    with_images: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    kubernetes, plane = with_images, with_images.plane
    shared = plane.space.folder / "from-image"
    shared.mkdir()
    os.chown(shared, 1000, 1000)
    where = (
        *("--kubeconfig", str(kubernetes.kubeconfig)),
        *("-n", NAMESPACE, "--cluster", "demo"),
    )
    up = ("up", "--on", "kubernetes", "--overlay", "cpu", "--size", "1", "--yes")
    assert main((*up, "--image", f"{TRAIN}:{VERSION}", "--host-path", str(shared), *where)) == 0, (
        capsys.readouterr().err
    )
    launched = ("launch", "checkpointed", "--workers", "1", "--yes", "--set", "epochs=20000")
    assert main((*launched, "--set", "storage_path=/shared/checkpoints", *where)) == 0
    until_a_rank_steps(where, capsys)
    assert main(("kill", "0", "--yes", "-o", "json", *where)) == 0
    recovery = json.loads(capsys.readouterr().out)
    assert recovery["recovered"]
    assert in_pod(kubernetes, "status")["cluster"]["health"] == "ready"
    assert [job["status"] for job in in_pod(kubernetes, "jobs")] == ["RUNNING"]
    assert main(("down", "--on", "kubernetes", "--yes", *where)) == 0, capsys.readouterr().err
    assert "Delete Namespace images." in capsys.readouterr().err
    with pytest.raises(HTTPError):
        plane.ask("GET", f"/api/v1/namespaces/{NAMESPACE}")


def test_applied_game_day_and_mlflow_server_run_as_pods_of_the_images(
    with_images: Testbed, tmp_path: Path
) -> None:
    """As `kubectl apply -k` creates them, and `kubectl create job --from` starts the game day."""
    plane = with_images.plane
    objects = applied_objects(with_component("small", "mlflow", "../../drills", folder=tmp_path))
    with volumes(with_images), created(with_images, objects):
        until(lambda: all_ready(with_images), READY_S, lambda: pods(with_images))
        job = one(objects, "CronJob")["spec"]["jobTemplate"]["spec"]
        jobs = f"/apis/batch/v1/namespaces/{APPLIED}/jobs"
        plane.ask("POST", jobs, {"metadata": {"name": "day"}, "spec": job})
        until(lambda: is_over(plane.ask("GET", f"{jobs}/day")), DAY_S, lambda: pods(with_images))
        state = plane.ask("GET", f"{jobs}/day")["status"]
        assert state.get("succeeded") == 1, log_of(with_images, "day")
        suite = ElementTree.parse(folder_of(with_images, "cockpit-drills") / "smoke.xml")
        assert {case.attrib["name"] for case in suite.iter("testcase")} >= {
            "a node is lost",
            "a rank crashes",
        }
        assert not [*suite.iter("failure"), *suite.iter("error")]
        runs = folder_of(with_images, "mlflow") / "mlflow.db"
        with closing(sqlite3.connect(runs)) as database:
            [(params,)] = database.execute("select count(*) from params where key = 'epochs'")
            [(steps,)] = database.execute("select count(*) from metrics where key = 'loss'")
        assert (params > 0, steps > 0) == (True, True), "the job has found the server by itself"


def applied_objects(built: tuple[Object, ...]) -> tuple[Object, ...]:
    """The same objects in another namespace than `ml`, which other tests use."""
    moved: list[Object] = json.loads(
        json.dumps(built).replace('"namespace": "ml"', f'"namespace": "{APPLIED}"')
    )
    one(tuple(moved), "Namespace")["metadata"]["name"] = APPLIED
    return tuple(moved)


def folder_of(kubernetes: Testbed, claim: str) -> Path:
    return kubernetes.plane.space.folder / f"{APPLIED}-{claim}"


@contextmanager
def volumes(kubernetes: Testbed) -> Iterator[None]:
    """A default storage class, and a volume for each claim, in a folder of user 1000."""
    plane = kubernetes.plane
    made = []

    def create(path: str, body: Object) -> None:
        plane.ask("POST", path, body)
        made.append(f"{path}/{name_of(body)}")

    try:
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        create(
            "/apis/storage.k8s.io/v1/storageclasses",
            {
                "metadata": {"name": APPLIED, "annotations": default},
                "provisioner": "files.example.com/shared",
            },
        )
        for claim, (size, mode) in VOLUMES.items():
            folder = folder_of(kubernetes, claim)
            folder.mkdir()
            os.chown(folder, 1000, 1000)
            spec = {
                "capacity": {"storage": size},
                "accessModes": [mode],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": APPLIED,
                "hostPath": {"path": str(folder), "type": "Directory"},
            }
            name = f"{APPLIED}-{claim}"
            create("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
        yield
    finally:
        for path in reversed(made):
            plane.ask("DELETE", path)


@contextmanager
def created(kubernetes: Testbed, objects: tuple[Object, ...]) -> Iterator[None]:
    """Apply the objects; at the end delete those without a namespace, and the namespace."""
    try:
        for each in objects:
            apply(kubernetes, each)
        yield
    finally:
        clusters = of_kind(objects, "RayCluster")
        for each in (*clusters, *(each for each in objects if each["kind"] in NO_NAMESPACE)):
            kubernetes.plane.ask("DELETE", path_of(each))
        until(lambda: is_missing(kubernetes, f"/api/v1/namespaces/{APPLIED}"), READY_S,
              lambda: pods(kubernetes))  # fmt: skip


def is_missing(kubernetes: Testbed, path: str) -> bool:
    try:
        kubernetes.plane.ask("GET", path)
    except HTTPError as error:
        return error.code == 404
    return False


def pods(kubernetes: Testbed) -> list[tuple[str, Any]]:
    """The name and the state of each pod."""
    listed = kubernetes.plane.ask("GET", f"/api/v1/namespaces/{APPLIED}/pods")["items"]
    return [(name_of(pod), pod["status"]) for pod in listed]


def all_ready(kubernetes: Testbed) -> bool:
    """Whether the head, both workers and the MLflow server are."""
    ready = [
        name
        for name, status in pods(kubernetes)
        for condition in status.get("conditions", ())
        if (condition["type"], condition["status"]) == ("Ready", "True")
    ]
    return len([name for name in ready if name.startswith(("demo-", "mlflow-"))]) == 4


def is_over(job: Object) -> bool:
    return bool(job.get("status", {}).get("succeeded") or job.get("status", {}).get("failed"))


def log_of(kubernetes: Testbed, job: str) -> str:
    path = f"/api/v1/namespaces/{APPLIED}/pods"
    [pod] = [name for name, _ in pods(kubernetes) if name.startswith(f"{job}-")]
    return str(kubernetes.plane.ask("GET", f"{path}/{pod}/log"))


def until(found: Callable[[], bool], timeout_s: float, what: Callable[[], object]) -> None:
    deadline = time.monotonic() + timeout_s
    while not found():
        assert time.monotonic() < deadline, what()
        time.sleep(1)


def until_a_rank_steps(where: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The dashboard of a new head on a busy machine may not answer in time."""
    deadline = time.monotonic() + 300
    while True:
        capsys.readouterr()
        code = main(("ranks", "-o", "json", *where))
        printed = capsys.readouterr()
        assert code in (ExitCode.DONE, ExitCode.UNREACHABLE), printed.err
        ranks = json.loads(printed.out) if code == ExitCode.DONE else []
        if any((rank.get("step") or 0) > 100 for rank in ranks):
            return
        assert time.monotonic() < deadline, printed
        time.sleep(1)


def in_pod(kubernetes: Testbed, verb: str) -> Any:
    """The JSON that the verb prints in a pod of `cockpit`, with its account's permissions."""
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    container = {
        "name": "cockpit",
        "image": f"{COCKPIT}:{VERSION}",
        "imagePullPolicy": "Never",
        "args": [verb, "--cluster=demo", "-o", "json"],
        "securityContext": {"runAsNonRoot": True},
        # The pods of Ray have all CPUs of a node with two.
        "resources": {"requests": {"cpu": "0", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
    }
    spec = {"serviceAccountName": "cockpit", "restartPolicy": "Never", "containers": [container]}
    name = f"cockpit-{verb}"
    kubernetes.plane.ask("POST", pods, {"metadata": {"name": name}, "spec": spec})
    deadline = time.monotonic() + 120
    while (found := phase(kubernetes, f"{pods}/{name}")) not in ("Succeeded", "Failed"):
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    printed = kubernetes.plane.ask("GET", f"{pods}/{name}/log")
    assert found == "Succeeded", printed
    kubernetes.plane.ask("DELETE", f"{pods}/{name}")
    return printed


def phase(kubernetes: Testbed, path: str) -> Any:
    try:
        return kubernetes.plane.ask("GET", path)["status"].get("phase")
    except HTTPError as error:
        raise AssertionError(error.read().decode()) from error
