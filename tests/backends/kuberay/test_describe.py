"""The output of `cockpit describe` for a RayJob that does not start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.backends.kuberay.resources.describe import describe
from cockpit.model.cluster import ClusterRef

JOB = {
    "metadata": {"name": "train", "namespace": "ml"},
    "spec": {"entrypoint": "python train.py"},
    "status": {
        "jobDeploymentStatus": "Running",
        "rayClusterName": "train-x",
        "jobStatusCheckFailureStartTime": "2026-01-01T00:00:00Z",
        "rayClusterStatus": {
            "conditions": [
                {"type": "HeadPodReady", "status": "False", "reason": "ErrImagePull",
                 "message": "no such image"}
            ]
        },
    },
}  # fmt: skip


class Canned(KubeClient):
    """A RayJob, and one Event on it and on its cluster."""

    def __init__(self) -> None:
        super().__init__(Credentials(KubeContext("c", "ml", "http://127.0.0.1:9", "u", {}, {})))

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        if not path.endswith("/events"):
            return JOB
        on_cluster = "kind=RayCluster" in (params or {})["fieldSelector"]
        reason = "FailedToCreatePod" if on_cluster else "FailedToSubmit"
        return {"items": [{"reason": reason, "message": "exceeded quota", "type": "Warning"}]}


async def test_rayjob_that_does_not_start_shows_its_clusters_conditions_and_events() -> None:
    text = await describe(Canned(), ClusterRef("kuberay", "demo", "ml", "c"), "rayjob", "train")
    assert "HeadPodReady is False  ErrImagePull no such image" in text
    assert "of Ray about the job since 2026-01-01T00:00:00Z" in text
    assert text.index("FailedToSubmit") < text.index("RayCluster train-x\nEvents")
    assert "FailedToCreatePod" in text
