"""`cockpit up`, `status` and `down` on a real API server, where no pod runs."""

from __future__ import annotations

import json
from urllib.error import HTTPError

import pytest

from cockpit.backends.kuberay.provision.kinds import KINDS, Object, kind_of, path_of
from cockpit.backends.kuberay.provision.overlay import Volume, Wanted, objects
from cockpit.cli.main import main
from tests.cluster.testbed import Testbed

NAMESPACE = "from-up"
FOLDER = "/var/lib/cockpit/from-up"
WANTED = Wanted(
    namespace=NAMESPACE, cluster="llm", overlay="recovery", volume=Volume(host_path=FOLDER)
)


def exists(testbed: Testbed, path: str) -> bool:
    try:
        testbed.plane.ask("GET", path)
    except HTTPError as error:
        if error.code != 404:
            raise
        return False
    return True


def apply_as_kubectl(testbed: Testbed, each: Object) -> None:
    """As `kubectl apply` without `--server-side`: a patch with an annotation.

    Again while a controller writes the object's status at the same time, as kubectl does.
    """
    path = f"{path_of(each)}?fieldManager=kubectl-client-side-apply"
    note = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(each)}
    body = {**each, "metadata": {**each["metadata"], "annotations": note}}
    while True:
        try:
            testbed.plane.ask("PATCH", path, body, content="application/merge-patch+json")
            return
        except HTTPError as error:
            message = error.read().decode()
            assert "has been modified" in message, message


def test_cluster_is_created_changed_by_others_shown_and_deleted(
    control_plane: Testbed, capsys: pytest.CaptureFixture[str]
) -> None:
    plane = control_plane.plane
    where = ("--kubeconfig", str(control_plane.kubeconfig), "-n", NAMESPACE, "--cluster", "llm")
    up = ("up", "--on", "kubernetes", "--yes", "--no-wait", "--host-path", FOLDER, *where)
    assert main(up) == 0, capsys.readouterr().err
    made = objects(WANTED)
    found = {path_of(each): plane.ask("GET", path_of(each)) for each in made}
    assert {kind_of(each).name for each in made} == {
        kind.name for kind in KINDS if kind.group != "monitoring.coreos.com"
    }
    assert all(each["metadata"]["managedFields"] for each in found.values())

    assert main(["status", "-o", "json", *where]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["cluster"]["health"] == "starting"
    assert [group["desired"] for group in status["groups"]] == [3]

    # `kubectl apply -k` of the same objects is no conflict, and no change.
    for each in made:
        apply_as_kubectl(control_plane, each)
    assert main(up) == 0
    assert "everything is as in the manifests" in capsys.readouterr().err

    settings = f"/api/v1/namespaces/{NAMESPACE}/configmaps/ray-settings"
    edited = {"data": {"RAY_USAGE_STATS_ENABLED": "1"}}
    patch = "application/merge-patch+json"
    plane.ask("PATCH", f"{settings}?fieldManager=kubectl-edit", edited, content=patch)
    assert main(up) == 1
    what, why, todo = capsys.readouterr().err.splitlines()
    assert what == "ConfigMap ray-settings was changed by another client, so nothing was applied."
    assert "kubectl-edit" in why
    assert "--force-conflicts" in todo
    assert main((*up, "--force-conflicts")) == 0
    assert plane.ask("GET", settings)["data"]["RAY_USAGE_STATS_ENABLED"] == "0"

    note = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    plane.ask("POST", note, {"metadata": {"name": "note"}})
    down = ("down", "--on", "kubernetes", "--yes", *where)
    assert main((*down, "--dry-run")) == 0
    assert "Keep Namespace from-up: ConfigMap note in it was not" in capsys.readouterr().err
    plane.ask("DELETE", f"{note}/note")
    assert main(down) == 0, capsys.readouterr().err
    assert not [path for path in found if exists(control_plane, path)]
    assert main(down) == 3
