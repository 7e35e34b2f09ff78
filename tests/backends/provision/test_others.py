"""Objects of others, also those created after the plan, are not changed and not deleted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cockpit.actions import audit, provisioning
from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.backends.kuberay.provision import preconditions, removal
from cockpit.backends.kuberay.provision.apply import Planned, Step
from cockpit.backends.kuberay.provision.kinds import BY_NAME, labels
from cockpit.backends.kuberay.provision.overlay import Wanted, objects
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from tests.backends.provision.api_server import ApiServer

REF = ClusterRef("kuberay", "demo", "ml", "lab")
NS = "/api/v1/namespaces/ml"
NOTES = f"{NS}/configmaps/notes"
MONITORING = "/apis/monitoring.coreos.com"


def client_of(api: ApiServer) -> KubeClient:
    return api.client()(Credentials(KubeContext("lab", "ml", "http://127.0.0.1:9", "u", {}, {})))


def with_namespace(api: ApiServer) -> ApiServer:
    """As cockpit up has created it."""
    api.add(NS, metadata={"labels": labels(BY_NAME["Namespace"], "ml", "demo")})
    return api


class TwoVersions(ApiServer):
    """It serves ScrapeConfigs only in a version that is not preferred, as the operator does."""

    def handle(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if path == "/apis":
            names = [f"monitoring.coreos.com/{version}" for version in ("v1alpha1", "v1")]
            versions = [{"groupVersion": name} for name in names]
            return 200, {"groups": [{"preferredVersion": versions[1], "versions": versions}]}
        if path == f"{MONITORING}/v1alpha1":
            kinds = {"podmonitors": "PodMonitor", "scrapeconfigs": "ScrapeConfig"}
            return 200, {
                "resources": [
                    {"name": name, "kind": kind, "namespaced": True, "verbs": ["list"]}
                    for name, kind in kinds.items()
                ]
            }
        assert path != f"{MONITORING}/v1alpha1/namespaces/ml/podmonitors", "v1 is preferred"
        if path == f"{MONITORING}/v1alpha1/namespaces/ml/scrapeconfigs":
            return 200, {"items": [{"metadata": {"name": "theirs", "uid": "x"}}]}
        return super().handle(method, path, query, body)


async def test_namespace_is_kept_for_an_object_of_another_version() -> None:
    found = await removal.find(client_of(with_namespace(TwoVersions())), REF)
    why = "ScrapeConfig theirs in it was not created by cockpit up"
    assert (found.deleted, found.kept) == ((), (("Namespace ml", why),))


async def test_namespace_is_kept_for_an_object_that_is_created_during_the_removal() -> None:
    api = with_namespace(ApiServer())
    client = client_of(api)
    ours = api.add(
        f"{NS}/configmaps/ours",
        metadata={"namespace": "ml", "labels": labels(BY_NAME["ConfigMap"], "ml", "demo")},
    )
    found = await removal.find(client, REF)
    api.add(NOTES)
    said: list[str] = []
    assert await provisioning.remove(client, REF, found, said.append) == 1
    assert said == ["Keep Namespace ml: ConfigMap notes in it was not created by cockpit up."]
    assert ours not in api.objects.values()
    assert {NS, NOTES} == {*api.objects}
    line = json.loads(audit.path().read_text())
    assert (line["result"], line["after"]) == ("done", "kept Namespace ml")


@pytest.mark.parametrize("priority", ["ray-worker", "theirs"])
async def test_priority_class_is_kept_for_a_cluster_of_kubectl_elsewhere(priority: str) -> None:
    api = with_namespace(ApiServer())
    kind = BY_NAME["PriorityClass"]
    for name in ("ray-head", "ray-worker"):
        api.add(kind.path("", name), metadata={"labels": labels(kind, "ml", "demo")})
    template = {"spec": {"priorityClassName": priority}}
    api.add(
        BY_NAME["RayCluster"].path("dev", "trial"),
        metadata={"namespace": "dev"},
        spec={"workerGroupSpecs": [{"template": template}]},
    )
    found = await removal.find(client_of(api), REF)
    why = "RayCluster trial in namespace dev uses it"
    kept = tuple((f"PriorityClass {name}", why) for name in ("ray-head", "ray-worker"))
    assert found.kept == (kept if priority == "ray-worker" else ())


async def test_namespace_is_kept_with_the_claim_in_it() -> None:
    api = with_namespace(ApiServer())
    kind = BY_NAME["PersistentVolumeClaim"]
    meta = {"namespace": "ml", "labels": labels(kind, "ml", "demo")}
    api.add(kind.path("ml", "shared"), metadata=meta)
    found = await removal.find(client_of(api), REF, keep_claim=True)
    assert dict(found.kept) == {
        "PersistentVolumeClaim shared": "--keep-claim",
        "Namespace ml": "the claim in it is kept",
    }


async def test_object_that_is_created_after_the_plan_is_not_changed() -> None:
    api = ApiServer()
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "ours"}}
    wanted |= {"metadata": {"name": "notes", "namespace": "ml"}}
    theirs = api.add(NOTES, data={"a": "theirs"})
    with pytest.raises(CockpitError, match="ConfigMap notes was created since the plan was shown"):
        await provisioning.create(client_of(api), REF, [Planned(Step.CREATE, wanted)], print)
    assert (api.applied, api.objects) == ([], {NOTES: theirs})


@pytest.mark.parametrize(
    "scope", [{}, {"scopes": ["BestEffort"]}, {"scopeSelector": {"matchExpressions": []}}]
)
async def test_quota_with_a_scope_is_not_compared(scope: dict[str, Any]) -> None:
    api = ApiServer()
    spec = {"hard": {"pods": "1"}, **scope}
    api.add(f"{NS}/resourcequotas/theirs", spec=spec)
    client, made = client_of(api), objects(Wanted(namespace="ml", cluster="demo"))
    if scope:
        await preconditions.require_room(client, REF, made)
        return
    with pytest.raises(CockpitError, match="quota theirs of namespace ml is too small"):
        await preconditions.require_room(client, REF, made)
