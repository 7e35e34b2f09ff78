"""The commands of kubectl in the pages, run by the real kubectl on a real API server."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.cli.main import main
from tests.cluster.build import program
from tests.cluster.fixtures import need_nightly
from tests.cluster.module_crds import monitors_and_rules, rayservices_and_cronjobs
from tests.cluster.testbed import Testbed
from tests.manifests.test_road import add_storage
from tests.page import section, unmarked_commands

ROOT = Path(__file__).parents[2]
PAGES = ("kubernetes.md", "monitoring.md", "drills.md")
OF_A_BUCKET = (["create", "namespace"], ["create", "secret"])
"""They create the namespace that is there for the other commands."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

# The same objects, as kustomize builds them: test_api_server.py.
pytestmark = pytest.mark.nightly


class Kubectl:
    """On a test cluster, in the root of the repository."""

    def __init__(self, testbed: Testbed) -> None:
        self._environment = os.environ | {"KUBECONFIG": str(testbed.kubeconfig)}

    def run(self, *words: str, code: int = 0) -> str:
        """What it printed; the test fails with its errors if it ends with another code."""
        done = subprocess.run(
            [program("kubectl"), *words],
            env=self._environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"kubectl {shlex.join(words)}: {done.stderr}"
        return done.stdout

    def may(self, user: str, verb: str, kind: str, *where: str) -> bool:
        answer = ("auth", "can-i", verb, kind, *where, "--as", user)
        return self.run(*answer, code=0 if user == "jane" else 1).strip() == "yes"


@pytest.fixture(scope="module")
def testbed(programs: None) -> Iterator[Testbed]:
    """An API server with the real definitions, whose objects no operator handles."""
    need_nightly("kubectl")
    made = Testbed.up(real_definitions=True)
    try:
        for definition in (*rayservices_and_cronjobs(), *monitors_and_rules()):
            made.plane.ask("POST", DEFINITIONS, definition)
        for definition in (*rayservices_and_cronjobs(), *monitors_and_rules()):
            spec = definition["spec"]
            made.plane.wait_for(f"/apis/{spec['group']}/v1/{spec['names']['plural']}")
        yield made
        ended = made.plane.space.ended()
    finally:
        made.down()
    assert not ended


def test_commands_of_the_pages_are_accepted_and_grant_what_they_say(testbed: Testbed) -> None:
    kubectl = Kubectl(testbed)
    ran = []
    for page in PAGES:
        for words in unmarked_commands((ROOT / "docs" / page).read_text()):
            if words[0] == "kubectl" and words[1:3] not in OF_A_BUCKET:
                kubectl.run(*("ml" if word == "NAMESPACE" else word for word in words[1:]))
                ran.append(words[1])
    assert ran.count("apply") == 6
    assert ran.count("create") == 5
    assert kubectl.run("get", "rayclusters", "-n", "ml", "-o", "name").split() == [
        "raycluster.ray.io/demo"
    ]
    assert len(kubectl.run("get", "rayjobs", "-n", "ml", "-o", "name").split()) == 1
    for user in ("jane", "eve"):
        assert kubectl.may(user, "patch", "rayclusters.ray.io", "-n", "ml") is (user == "jane")
        assert kubectl.may(user, "get", "secrets/demo", "-n", "ml") is (user == "jane")
        assert kubectl.may(user, "list", "nodes") is (user == "jane")
    for folder in ("cronjob", "service"):
        kubectl.run("apply", "-k", f"manifests/kubernetes/{folder}")


def test_apply_of_the_same_overlay_changes_nothing_of_up(
    testbed: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl = Kubectl(testbed)
    kubectl.run("delete", "namespace", "ml", "--ignore-not-found")
    add_storage(testbed)
    where = ("--kubeconfig", str(testbed.kubeconfig), "-n", "ml", "--cluster", "demo")
    up = ("up", "--on", "kubernetes", "--yes", "--no-wait", *where)
    assert main(up) == 0, capsys.readouterr().err
    cluster = ("get", "rayclusters", "demo", "-n", "ml", "-o", "jsonpath={.metadata.generation}")
    assert kubectl.run(*cluster) == "1"

    kubectl.run("apply", "-k", "manifests/kubernetes/overlays/recovery")

    assert kubectl.run(*cluster) == "1", "the specification is the same"
    assert main(up) == 0
    assert "everything is as in the manifests" in capsys.readouterr().err
    assert main(("down", "--on", "kubernetes", "--yes", *where)) == 0, capsys.readouterr().err
    kubectl.run("get", "namespace", "ml", code=1)


def test_keys_of_a_bucket_reach_the_pods_and_no_volume_is_claimed(
    testbed: Testbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl = Kubectl(testbed)
    kubectl.run("delete", "namespace", "ml", "--ignore-not-found")
    keys = tmp_path / "keys"
    keys.write_text("AWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=secret\n")
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    namespace, secret, up, *_ = unmarked_commands(section(page, "Checkpoints in a bucket"))
    kubectl.run(*namespace[1:])
    kubectl.run(*(word.replace("FILE", str(keys)) for word in secret[1:]))

    address = ("--kubeconfig", str(testbed.kubeconfig), "-n", "ml", "--cluster", "demo")
    words = [word.replace("BUCKET", "bucket") for word in up[1:]]
    assert main((*words, "--no-wait", "--yes", *address)) == 0, capsys.readouterr().err

    assert kubectl.run("get", "pvc", "-n", "ml", "-o", "name") == ""
    of_head = "{.spec.headGroupSpec.template.spec.containers[0].envFrom[*].secretRef.name}"
    cluster = ("get", "rayclusters", "demo", "-n", "ml", "-o")
    assert kubectl.run(*cluster, f"jsonpath={of_head}") == "s3"
    assert main(("down", "--on", "kubernetes", "--yes", *address)) == 0, capsys.readouterr().err
    kubectl.run("get", "namespace", "ml")
    kubectl.run("delete", "namespace", "ml")
