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

CREDENTIALS = Credentials(KubeContext("here", "ml", "http://127.0.0.1:9", "u", {}, {}))


class Api(KubeClient):
    """One pod, whose UID is the next of `uids` each time that it is read or patched."""

    def __init__(self, *uids: str) -> None:
        super().__init__(CREDENTIALS)
        self.uids = list(uids)
        self.made: list[Any] = []

    def _uid(self) -> str:
        return self.uids.pop(0) if len(self.uids) > 1 else self.uids[0]

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        return {"metadata": {"uid": self._uid(), "labels": {"ray.io/cluster": "demo"}}}

    async def patch(
        self, path: str, body: Any, *, kind: PatchKind, params: Mapping[str, str] | None = None
    ) -> Any:
        if body["metadata"]["uid"] != self._uid():  # as the real one does: the field is immutable
            raise KubeError("metadata.uid: field is immutable", status=422)
        self.made.append(body)

    async def create(self, path: str, body: Any) -> Any:
        self.made.append(body)


async def isolated(api: Api) -> None:
    backend = KubeRayBackend(CREDENTIALS, ClusterRef("kuberay", "demo", "ml", "here"))
    backend.client = api
    await backend.isolate("w-1", "no-net", uid="shown")


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
