"""The images, really built with buildah from a Debian of debootstrap, and run on a real node.

A build takes minutes, a registry for Python packages, and 25 GB of disk.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from cockpit.cli.main import main
from tests.cluster.node import ctr
from tests.cluster.testbed import Testbed
from tests.manifests.test_image import FOLDER, VERSION

BASE = "localhost/debian-python:test"
TRAIN, COCKPIT = "localhost/cockpit-train", "localhost/cockpit"
FREE_BYTES = 25 << 30
LARGEST_BYTES = 150_000_000
"""Of the image `cockpit`, unpacked."""
NAMESPACE = "images"

pytestmark = pytest.mark.nightly


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
    root = folder / "root"
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
    try:
        for what, name in (("train", TRAIN), ("cockpit", COCKPIT)):
            made.run(
                *(FOLDER / "build.sh", what, "--builder", "buildah", "--from", BASE),
                *("--name", name, "--pip-conf", folder / "pip.conf"),
            )
        yield made
    finally:
        made.run("buildah", "rm", "--all")
        made.run("buildah", "rmi", "--all", "--force")
        shutil.rmtree(folder, ignore_errors=True)


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
    store: Store, kubernetes: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    plane = kubernetes.plane
    for image in (TRAIN, COCKPIT):
        plane.space.run(*ctr(), "images", "import", store.archive(image))
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


def until_a_rank_steps(where: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    deadline = time.monotonic() + 300
    while True:
        capsys.readouterr()
        assert main(("ranks", "-o", "json", *where)) == 0
        ranks = json.loads(capsys.readouterr().out)
        if any((rank.get("step") or 0) > 100 for rank in ranks):
            return
        assert time.monotonic() < deadline, ranks
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
