"""`cockpit up` and `cockpit down`, on an API server in memory."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from cockpit.actions import audit
from cockpit.backends.kuberay.api import client
from cockpit.backends.kuberay.provision import apply
from cockpit.cli import main as cli
from cockpit.cli.cluster import readiness
from cockpit.cli.cluster.up import plan_lines
from cockpit.config import file
from cockpit.model.cluster import ClusterHealth, ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.event import ClusterSeen, Event, SourceHealth
from cockpit.session.session import Session
from tests.backends.provision.api_server import KUBECONFIG, ApiServer
from tests.simulated_backend import ScriptedBackend

NS = "/api/v1/namespaces/ml"
CLUSTER = "/apis/ray.io/v1/namespaces/ml/rayclusters/demo"
SETTINGS = f"{NS}/configmaps/ray-settings"
CLAIM = f"{NS}/persistentvolumeclaims/shared"
WHERE = "Cluster: context lab, namespace ml, RayCluster demo."
UP = ("up", "--on", "kubernetes", "--no-wait", "--yes")
DOWN = ("down", "--on", "kubernetes", "--cluster", "demo", "--yes")

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def api() -> ApiServer:
    return ApiServer()


@pytest.fixture
def run(
    api: ApiServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run cockpit: its exit code and what it prints on standard error."""
    monkeypatch.setattr(client, "KubeClient", api.client())
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))

    def run(*argv: str) -> tuple[int, str]:
        code = cli.main([*argv, "--kubeconfig", str(kubeconfig)])
        return code, capsys.readouterr().err

    return run


def lines(text: str, code: int) -> list[str]:
    """An error has at most three lines."""
    found = text.splitlines()
    assert code
    assert len(found) == 3, text
    return found


def audited() -> list[Any]:
    return [json.loads(line) for line in audit.path().read_text().splitlines()]


def test_up_creates_everything_in_order_and_records_it(api: ApiServer, run: Run) -> None:
    code, said = run(*UP, "--overlay", "cpu")
    assert code == 0, said
    plan = said.splitlines()
    assert plan[0] == WHERE
    assert plan[1] == "Create RayCluster demo: a head and 2 pods in group workers; " \
        "cockpit-train:0.1.0."  # fmt: skip
    assert plan[2].startswith("Create Namespace ml, ")
    assert "2 PriorityClasses" in plan[2]
    assert "5 NetworkPolicies" in plan[2]
    assert api.applied[0] == NS
    assert api.applied[-1] == CLUSTER
    assert "-n ml --cluster demo" in plan[-1]
    assert all(
        each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "cockpit"
        for each in api.objects.values()
    )
    [line] = audited()
    assert (line["action"], line["target"], line["result"]) == ("up", "demo", "done")
    assert (line["context"], line["namespace"]) == ("lab", "ml")


def test_up_with_a_bucket_makes_no_claim_and_names_the_missing_secret(
    api: ApiServer, run: Run
) -> None:
    no_default_class(api)  # which the claim would need
    code, said = run(*UP, *BUCKET)
    assert code == 0, said
    assert CLAIM not in api.objects
    assert api.objects[SETTINGS]["data"]["AWS_ENDPOINT_URL"] == "http://minio:9000"
    assert "Pods wait for the Secret keys: kubectl create secret generic keys -n ml --from" in said
    assert "--set storage_path=s3://bucket/runs -n ml --cluster demo" in said
    api.add(f"{NS}/secrets/keys", kind="Secret")
    code, said = run(*UP, *BUCKET)
    assert code == 0
    assert "Pods wait for the Secret" not in said


def test_up_again_changes_nothing(api: ApiServer, run: Run) -> None:
    run(*UP)
    made = len(api.applied)
    code, said = run(*UP)
    assert (code, len(api.applied)) == (0, made)
    assert "everything is as in the manifests" in said


def test_changed_size_needs_the_name_and_changes_only_the_cluster(api: ApiServer, run: Run) -> None:
    run(*UP)
    made = len(api.applied)
    code, said = run(*UP, "--size", "4")
    assert (code, len(api.applied)) == (2, made)
    assert "no flag, variable or profile names one" in said
    code, said = run(*UP, "--size", "4", "--cluster", "demo")
    assert code == 0
    assert set(api.applied[made:]) == {CLUSTER}
    assert "Change RayCluster demo: a head and 5 pods in group workers" in said


def test_dry_run_and_read_only_change_nothing(api: ApiServer, run: Run) -> None:
    code, said = run(*UP, "--dry-run")
    assert (code, api.objects) == (0, {})
    assert said.splitlines()[0] == WHERE
    assert "Dry run: nothing was changed." in said
    code, said = run(*UP, "--read-only")
    assert (code, api.objects) == (4, {})
    assert "read-only" in said
    run(*UP)
    held = dict(api.objects)
    assert run(*DOWN, "--dry-run")[0] == 0
    assert run(*DOWN, "--read-only")[0] == 4
    assert api.objects == held


def test_yaml_needs_no_cluster_and_is_what_would_be_applied(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    argv = ["up", "--on", "kubernetes", "--dry-run", "-o", "yaml", "-n", "team", "--gpu"]
    assert cli.main(argv) == 0
    made = list(yaml.safe_load_all(capsys.readouterr().out))
    assert {each["kind"] for each in made} >= {"Namespace", "RayCluster"}
    cluster = made[-1]
    assert cluster["metadata"]["namespace"] == "team"
    assert [group["groupName"] for group in cluster["spec"]["workerGroupSpecs"]] == [
        "workers",
        "gpu",
    ]


def test_without_terminal_and_yes_nothing_is_created(api: ApiServer, run: Run) -> None:
    code, said = run("up", "--on", "kubernetes", "--no-wait")
    assert (code, api.objects) == (2, {})
    assert "Add --yes" in said


# -- errors of up


def foreign_namespace(api: ApiServer) -> None:
    api.add(NS, kind="Namespace")


def namespace_that_ends(api: ApiServer) -> None:
    api.add(NS, kind="Namespace", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})


def foreign_cluster(api: ApiServer) -> None:
    api.add(CLUSTER, kind="RayCluster", apiVersion="ray.io/v1")


def other_cluster(api: ApiServer) -> None:
    marks = {"app.kubernetes.io/managed-by": "cockpit", "cockpit.ray.io/cluster": "llm"}
    api.add(CLUSTER.replace("demo", "llm"), kind="RayCluster", metadata={"labels": marks})


def no_kuberay(api: ApiServer) -> None:
    api.missing.add("ray.io")


def no_prometheus_operator(api: ApiServer) -> None:
    api.missing.add("monitoring.coreos.com")


def no_rights(api: ApiServer) -> None:
    api.denied |= {("create", "namespaces"), ("patch", "priorityclasses")}


def no_right_to_claims(api: ApiServer) -> None:
    api.denied |= {("create", "rayclusters")}


def no_default_class(api: ApiServer) -> None:
    api.classes = [{"metadata": {"name": "slow"}, "provisioner": "nfs.csi.k8s.io"}]


def class_for_one_node(api: ApiServer) -> None:
    api.classes[0] = {**api.classes[0], "provisioner": "rancher.io/local-path"}


def small_quota(api: ApiServer) -> None:
    quota = {"spec": {"hard": {"limits.memory": "16Gi", "cpu": "24"}},
             "status": {"used": {"limits.memory": "6Gi", "cpu": "1"}}}  # fmt: skip
    api.add(f"{NS}/resourcequotas/team", **quota)


def other_policy(api: ApiServer) -> None:
    path = "/apis/networking.k8s.io/v1/namespaces/ml/networkpolicies/ray"
    api.add(path, kind="NetworkPolicy", apiVersion="networking.k8s.io/v1", spec={"x": 1})


BUCKET = ("--s3", "s3://bucket/runs", "--s3-secret", "keys", "--s3-endpoint", "http://minio:9000")
IN_NAMESPACE = ("--without", "namespace", "--without", "quota")
NO_ROOM = "The quota team of namespace ml is too small for this cluster."
ERRORS: dict[str, tuple[Callable[[ApiServer], None], tuple[str, ...], int, str, str, str]] = {
    "namespace": (foreign_namespace, (), 2,
                  "Namespace ml exists, and cockpit did not create it.",
                  "context lab", "--without namespace"),
    "no namespace": (lambda api: None, ("--without", "namespace"), 2,
                     "There is no namespace ml in context lab.", "uses one that exists", "-n"),
    "namespace ends": (namespace_that_ends, (), 2, "Namespace ml is being deleted.",
                       "context lab", "Run the command again"),
    "cluster": (foreign_cluster, (), 2, "RayCluster demo exists in namespace ml",
                "does not change it", "another namespace with -n"),
    "two clusters": (other_cluster, (), 2, "Namespace ml has RayCluster llm of cockpit up already.",
                     "are for that cluster", "-n"),
    "kuberay": (no_kuberay, (), 3,
                "Context lab has no RayClusters: KubeRay is not installed there.",
                "rayclusters.ray.io", "Install KubeRay"),
    "prometheus": (no_prometheus_operator, ("--overlay", "monitoring"), 3,
                   "Context lab has no podmonitors.monitoring.coreos.com",
                   "does not know", "Install the Prometheus operator"),
    "rights": (no_rights, (), 4, "You cannot create this cluster in namespace ml.",
               "create namespaces, patch priorityclasses.scheduling.k8s.io (user jane)",
               "--without namespace --without priorities"),
    "right that is needed": (no_right_to_claims, (), 4, "You cannot create this cluster",
                             "create rayclusters.ray.io (user jane)", "Ask an administrator"),
    "no class": (no_default_class, (), 1, "There is no storage for the claim shared",
                 "no default storage class; there is: slow", "--storage-class NAME"),
    "wrong class": (no_default_class, ("--storage-class", "fast"), 1, "There is no storage",
                    "There is no storage class fast; there is: slow.", "--nfs"),
    "class for one node": (class_for_one_node, (), 1, "There is no storage for the claim shared",
                           "Volumes of the class shared (rancher.io/local-path) are for one node",
                           "--host-path PATH"),
    "no secret": (lambda api: None, ("--without", "namespace", *BUCKET), 1,
                  "Namespace ml has no Secret keys, which --s3-secret names.",
                  "Pods start only with it.", "kubectl create secret generic keys -n ml"),
    "s3 flags": (lambda api: None, ("--s3-secret", "keys"), 2,
                 "--s3-secret, --s3-region and --s3-endpoint are for --s3.",
                 "on the volume of the claim", "For example: --s3 s3://BUCKET/runs"),
    "quota": (small_quota, (*IN_NAMESPACE,), 1, NO_ROOM,
              "limits.memory 13.0 GiB of 10.0 GiB left", "smaller --size"),
    "policy": (other_policy, (*IN_NAMESPACE,), 2,
               "NetworkPolicy ray exists, cockpit did not create it, and it differs",
               "namespace ml of context lab", "--without network"),
}  # fmt: skip
"""By case: what the API server has, flags, exit code, and a part of each line of the error."""


@pytest.mark.parametrize("case", ERRORS)
def test_each_obstacle_is_an_error_of_three_lines_and_nothing_is_created(
    case: str, api: ApiServer, run: Run
) -> None:
    prepare, flags, code, *parts = ERRORS[case]
    prepare(api)
    if "--without" in flags and case != "no namespace":
        foreign_namespace(api)
    found, said = run(*UP, *flags)
    assert found == code, said
    for line, part in zip(lines(said, found), parts, strict=True):
        assert part in line
    assert api.applied == []
    assert not audit.path().exists()


def test_field_of_another_manager_is_a_conflict_until_it_is_forced(
    api: ApiServer, run: Run
) -> None:
    run(*UP)
    made = len(api.applied)
    api.conflicts[SETTINGS] = 'conflict with "kubectl-edit" using v1: .data.RAY_X'
    code, said = run(*UP, "--size", "3", "--cluster", "demo")
    what, why, todo = lines(said, code)
    assert what == "ConfigMap ray-settings was changed by another client, so nothing was applied."
    assert 'conflict with "kubectl-edit"' in why
    assert "--force-conflicts" in todo
    assert len(api.applied) == made
    assert run(*UP, "--size", "3", "--cluster", "demo", "--force-conflicts")[0] == 0


def test_write_that_meets_one_of_a_controller_is_repeated(
    api: ApiServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "RETRY_S", 0.0)
    api.busy = {SETTINGS: 3}
    assert run(*UP)[0] == 0
    api.busy = {SETTINGS: 100}
    code, said = run(*UP)
    assert code == 1
    assert "ConfigMap ray-settings was replaced or changed since the plan" in lines(said, code)[0]


def test_up_that_fails_in_the_middle_is_continued_by_up_and_removed_by_down(
    api: ApiServer, run: Run
) -> None:
    api.lost = {SETTINGS}
    code, said = run(*UP)
    error = said.splitlines()[-3:]
    assert code == 1
    assert error[0] == "The API server refuses ConfigMap ray-settings."
    assert "cockpit down -n ml --cluster demo" in error[2]
    assert CLUSTER not in api.objects
    assert audited()[-1]["result"] == "failed"
    assert "created Namespace ml" in audited()[-1]["after"]
    api.lost = set()
    assert run(*UP)[0] == 0
    assert CLUSTER in api.objects
    del api.objects[CLUSTER]
    assert run(*DOWN)[0] == 0
    assert api.objects == {}


def test_objects_of_others_are_used_and_neither_changed_nor_deleted(
    api: ApiServer, run: Run
) -> None:
    foreign_namespace(api)
    theirs = api.add(CLAIM, kind="PersistentVolumeClaim", spec={"volumeName": "of-the-team"})
    code, said = run(*UP, "--without", "namespace")
    assert code == 0
    assert "Use PersistentVolumeClaim shared, which cockpit did not create." in said
    assert CLAIM not in api.applied
    assert run(*DOWN)[0] == 0
    assert api.objects == {NS: api.objects[NS], CLAIM: theirs}


def test_up_after_kubectl_apply_uses_what_is_the_same(
    api: ApiServer, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["up", "--on", "kubernetes", "--dry-run", "-o", "yaml"]) == 0
    for each in yaml.safe_load_all(capsys.readouterr().out):
        if each["kind"] == "ConfigMap":
            each["metadata"]["labels"] = {"team": "a"}
            api.add(SETTINGS, **each)
    foreign_namespace(api)
    code, said = run(*UP, "--without", "namespace")
    assert code == 0
    assert "Use ConfigMap ray-settings, which cockpit did not create." in said


# -- down


def test_down_deletes_all_of_it_the_namespace_last(api: ApiServer, run: Run) -> None:
    run(*UP)
    code, said = run(*DOWN)
    assert code == 0
    assert api.objects == {}
    assert api.deleted[0] == CLUSTER
    assert api.deleted.index(CLAIM) > 0
    assert said.splitlines()[0] == WHERE
    assert "Delete RayCluster demo, its 0 pods and every run on them." in said
    assert "its checkpoints are lost" in said
    assert "Delete Namespace ml." in said
    down = audited()[-1]
    assert (down["action"], down["result"]) == ("down", "done")
    assert "RayCluster demo" in down["before"]
    assert run(*DOWN)[0] == 3


def test_down_keeps_the_namespace_while_it_has_objects_of_others(api: ApiServer, run: Run) -> None:
    run(*UP)
    api.add(f"{NS}/configmaps/kube-root-ca.crt")
    api.add(f"{NS}/configmaps/of-an-owner", metadata={"ownerReferences": [{"uid": "u-1"}]})
    theirs = api.add(f"{NS}/configmaps/notes")
    code, said = run(*DOWN)
    assert code == 0
    assert "Keep Namespace ml: ConfigMap notes in it was not created by cockpit up." in said
    assert theirs in api.objects.values()
    assert NS in api.objects
    del api.objects[f"{NS}/configmaps/notes"]
    assert run(*DOWN)[0] == 0
    assert api.objects == {}


def test_down_keeps_what_a_cluster_in_another_namespace_uses(api: ApiServer, run: Run) -> None:
    run(*UP)
    run(*UP, "-n", "dev")
    shared = [path for path in api.objects if "clusterroles" in path or "priorityclasses" in path]
    assert shared
    code, said = run(*DOWN, "-n", "ml")
    assert code == 0
    assert "RayCluster demo in namespace dev uses it" in said
    assert all(path in api.objects for path in shared)
    assert run(*DOWN, "-n", "dev")[0] == 0
    assert api.objects == {}


def test_down_keeps_the_claim_on_request(api: ApiServer, run: Run) -> None:
    run(*UP)
    code, said = run(*DOWN, "--keep-claim")
    assert code == 0
    assert set(api.objects) == {NS, CLAIM}
    assert "Keep PersistentVolumeClaim shared: --keep-claim." in said


def test_volume_of_a_flag_is_deleted_and_its_files_stay(api: ApiServer, run: Run) -> None:
    assert run(*UP, "--nfs", "nfs.example.com:/exports/ml")[0] == 0
    assert "/api/v1/persistentvolumes/ml-shared-nfs" in api.objects
    code, said = run(*DOWN)
    assert code == 0
    assert "the files on its volume stay" in said
    assert api.objects == {}


def test_down_with_yes_needs_the_name_and_obeys_protection(api: ApiServer, run: Run) -> None:
    run(*UP)
    held = dict(api.objects)
    code, said = run("down", "--on", "kubernetes", "--yes")
    assert code == 2
    assert "--context lab -n ml --cluster demo" in said
    where = file.path()
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text('[profiles.prod]\ncontext = "lab"\nprotected = true')
    code, said = run(*DOWN)
    assert code == 4
    assert "Add --i-mean demo" in said
    assert api.objects == held
    assert run(*DOWN, "--i-mean", "demo")[0] == 0
    assert api.objects == {}


def test_down_asks_and_no_leaves_all_of_it(
    api: ApiServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    run(*UP)
    held = dict(api.objects)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert run("down", "--on", "kubernetes")[0] == 1
    assert api.objects == held
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert run("down", "--on", "kubernetes")[0] == 0
    assert api.objects == {}


def test_down_does_not_delete_a_replaced_object(
    api: ApiServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its UID is in the request: the fake asserts that it is the present one."""
    run(*UP)
    assert run(*DOWN)[0] == 0
    assert len(api.deleted) == len(set(api.deleted))


def test_down_names_the_choices_of_several_clusters(api: ApiServer, run: Run) -> None:
    run(*UP)
    run(*UP, "-n", "dev")
    code, said = run("down", "--on", "kubernetes")
    assert code == 2
    assert "-n ml --cluster demo" in said
    assert "-n dev --cluster demo" in said


# -- where


@pytest.mark.parametrize("verb", ["up", "down"])
def test_place_is_required_and_flags_may_not_contradict_it(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([verb]) == 2
    assert "--on local, --on hosts FILE or --on lambda FILE" in capsys.readouterr().err
    assert cli.main([verb, "--on", "local", "--context", "lab"]) == 2
    assert "cannot be combined" in capsys.readouterr().err


def test_up_on_local_is_cockpit_local_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--on", "local", "--size", "3", "--dry-run"]) == 0
    assert "Start local cluster local: a head and 3 workers." in capsys.readouterr().err
    for flag in ("--gpu", "--no-wait", "--force-conflicts"):
        assert cli.main(["up", "--on", "local", flag]) == 2
        assert f"{flag} is for --on kubernetes" in capsys.readouterr().err
    assert cli.main(["down", "--on", "local", "--cluster", "none", "--yes"]) == 3
    assert "no local cluster 'none'" in capsys.readouterr().err


def test_gpu_and_another_overlay_contradict_each_other(run: Run) -> None:
    code, said = run(*UP, "--gpu", "--overlay", "cpu")
    assert code == 2
    assert "--gpu and --overlay cpu cannot be combined" in said


# -- the wait

REF = ClusterRef("kuberay", "demo", "ml", "lab")


def seen(*states: tuple[ClusterHealth, str]) -> list[Event]:
    at: dict[str, Any] = {"at_s": 1.0, "source": "backend"}
    healthy = SourceHealth(ok=True, **at)
    found: list[Event] = [healthy]
    for health, message in states:
        found += [ClusterSeen(ref=REF, health=health, message=message, **at), healthy]
    return found


def test_images_of_a_plan_are_in_order() -> None:
    images = [f"train:{number}" for number in range(9)]
    head, *groups = ({"template": {"spec": {"containers": [{"image": image}]}}} for image in images)
    workers = [group | {"groupName": "g", "replicas": 1} for group in groups]
    spec = {"headGroupSpec": head, "workerGroupSpecs": workers}
    of = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "demo"}}
    [line] = plan_lines([apply.Planned(apply.Step.CREATE, of | {"spec": spec})])
    assert line.endswith(f"; {', '.join(images)}.")


def test_wait_prints_each_state_and_ends_when_the_cluster_is_ready(
    capsys: pytest.CaptureFixture[str],
) -> None:
    starting = ClusterHealth.STARTING

    class Stepping(ScriptedBackend):
        """The next state only when the last one was printed."""

    backend = Stepping(seen((starting, "the head has no pod yet")), REF)
    with Session(backend) as session:
        session.wait(lambda store: store.health is starting, 5)
        for event in seen((ClusterHealth.READY, "")):
            session.dispatch(event)
        readiness.wait(session, 5, lambda: "")
    assert "no pod yet" not in capsys.readouterr().err  # it was ready at the first glance


def test_wait_prints_a_repeated_event_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "SLOW_S", 0.05)
    probe = "head: Readiness probe failed: connection refused"
    states = [(ClusterHealth.STARTING, probe)]
    with Session(ScriptedBackend(seen(*states), REF)) as session:
        printed: list[str] = []

        def next_state() -> str:
            """Called when nothing new was reported."""
            printed.append(capsys.readouterr().err)
            count = len(printed) + 1
            health = ClusterHealth.READY if count > 3 else ClusterHealth.STARTING
            for event in seen((health, f"{probe} (×{count})")):
                session.dispatch(event)
            return ""

        readiness.wait(session, 10, next_state)
    assert printed[0] == f"Waiting for RayCluster demo: {probe}\n"
    assert "".join(printed[1:]) == ""


def test_wait_that_is_too_long_reports_the_state_and_the_claim(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "SLOW_S", 0.05)
    now_s = [0.0]
    monkeypatch.setattr(readiness, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    def claim() -> str:
        now_s[0] = 0.3  # the time is up after this
        return "the claim shared waits for a volume: none"

    backend = ScriptedBackend(seen((ClusterHealth.STARTING, "head: its volume")), REF)
    with Session(backend) as session:
        assert session.wait(lambda store: bool(store.health_message), 60)
        with pytest.raises(CockpitError) as late:
            readiness.wait(session, 0.3, claim)
    said = capsys.readouterr().err
    assert said.splitlines() == [
        "Waiting for RayCluster demo: head: its volume",
        "Waiting for RayCluster demo: the claim shared waits for a volume: none",
    ]
    what, why, todo = str(late.value).splitlines()
    assert what == "RayCluster demo is not ready after 0.3 s, and stays as it is."
    assert why.startswith("It is starting: head: its volume; the claim shared waits")
    assert "-n ml --cluster demo" in todo
