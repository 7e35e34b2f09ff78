"""A network policy of a drill is for the pod in the plan, and for no other of its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cockpit.backends.kuberay.api.client import KubeClient, KubeError, PatchKind
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import ReplacedError
from tests.backends.kuberay.by_hand import Place

UNMARKED = {"metadata": {"uid": "shown", "labels": {"cockpit.ray.io/drill": None}}}
CREDENTIALS = Credentials(KubeContext("here", "ml", "http://127.0.0.1:9", "u", {}, {}))


class Api(KubeClient):
    """One pod, whose UID is the next of `uids` each time that it is read or patched."""

    def __init__(self, *uids: str) -> None:
        super().__init__(CREDENTIALS)
        self.uids = list(uids)
        self.made: list[Any] = []
        self.deleted: list[str] = []
        self.refusal: KubeError | None = None

    def _uid(self) -> str:
        return self.uids.pop(0) if len(self.uids) > 1 else self.uids[0]

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        if params is not None:
            assert params == {"labelSelector": "cockpit.ray.io/drill=no-net"}
            return {"items": [{"metadata": {"name": "w-1", "uid": self._uid()}}]}
        return {"metadata": {"uid": self._uid(), "labels": {"ray.io/cluster": "demo"}}}

    async def patch(
        self, path: str, body: Any, *, kind: PatchKind, params: Mapping[str, str] | None = None
    ) -> Any:
        if body["metadata"]["uid"] != self._uid():  # as the real one does: the field is immutable
            raise KubeError("metadata.uid: field is immutable", status=422)
        self.made.append(body)

    async def create(self, path: str, body: Any) -> Any:
        if self.refusal is not None:
            raise self.refusal
        self.made.append(body)

    async def delete(self, path: str, body: Any = None) -> Any:
        self.deleted.append(path.rpartition("/")[2])
        if self.refusal is not None:
            raise self.refusal


def backend_of(api: Api) -> KubeRayBackend:
    backend = KubeRayBackend(CREDENTIALS, ClusterRef("kuberay", "demo", "ml", "here"))
    backend.client = api
    return backend


async def isolated(api: Api) -> None:
    await backend_of(api).isolate("w-1", "no-net", uid="shown")


async def test_pod_of_the_plan_gets_a_policy() -> None:
    api = Api("shown")
    await isolated(api)
    assert [one.get("kind") for one in api.made] == [None, "NetworkPolicy"]


@pytest.mark.parametrize("uids", [("other",), ("shown", "other")])
async def test_pod_that_was_replaced_before_or_after_the_check_gets_none(
    uids: tuple[str, ...],
) -> None:
    api = Api(*uids)
    with pytest.raises(ReplacedError, match="Pod w-1 was replaced"):
        await isolated(api)
    assert not api.made


async def test_pod_loses_its_label_if_the_policy_is_not_created() -> None:
    api = Api("shown")
    api.refusal = KubeError("exceeded quota", status=403)
    with pytest.raises(KubeError, match="exceeded quota"):
        await isolated(api)
    assert api.made[1:] == [UNMARKED]


@pytest.mark.parametrize("refusal", [None, KubeError("not found", status=404)])
async def test_label_is_removed_with_the_policy(refusal: KubeError | None) -> None:
    """Policies that allow traffic exclude pods with the label."""
    api = Api("shown")
    api.refusal = refusal
    await backend_of(api).rejoin("no-net")
    assert (api.deleted, api.made) == (["no-net"], [UNMARKED])


async def test_pod_that_was_replaced_meanwhile_is_left_as_it_is() -> None:
    api = Api("shown", "other")
    await backend_of(api).rejoin("no-net")
    assert not api.made


async def test_pod_is_as_before_on_a_real_api_server(place: Place) -> None:
    place.ready_cluster()
    pods = {pod["metadata"]["name"]: pod["metadata"] for pod in place.pods()}
    before = {name: meta["labels"] for name, meta in pods.items()}
    policies = f"/apis/networking.k8s.io/v1/namespaces/{place.namespace}/networkpolicies"

    def labels() -> dict[str, Any]:
        return {pod["metadata"]["name"]: pod["metadata"]["labels"] for pod in place.pods()}

    name = "demo-gpu-worker-aaaa0"
    async with place.backend() as backend:
        await backend.isolate(name, "no-net", uid=pods[name]["uid"])
        assert labels()[name] == before[name] | {"cockpit.ray.io/drill": "no-net"}
        assert place.has(f"{policies}/no-net")
        for _ in range(2):
            await backend.rejoin("no-net")
            assert labels() == before
            assert not place.has(f"{policies}/no-net")
