"""manifests/kubernetes/kuberay-operator.yaml, on a real API server: it adds, and takes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.cluster.testbed import Testbed

PATCH = Path(__file__).parents[2] / "manifests" / "kubernetes" / "kuberay-operator.yaml"
PLACE = "/apis/apps/v1/namespaces/{}/deployments"
LABELS = {"app.kubernetes.io/name": "kuberay-operator"}


def operator() -> dict[str, Any]:
    """A deployment with the names of KubeRay's chart, and a setting of the user."""
    container = {
        "name": "kuberay-operator",
        "image": "none",
        "env": [{"name": "ENABLE_ZERO_DOWNTIME", "value": "true"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kuberay-operator"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}},
        },
    }


def test_values_of_the_chart_set_the_same_variables_as_the_patch() -> None:
    values = yaml.safe_load(PATCH.with_name("kuberay-values.yaml").read_text())
    (container,) = yaml.safe_load(PATCH.read_text())["spec"]["template"]["spec"]["containers"]
    assert values["env"] == container["env"]


def test_operator_is_configured_without_its_init_container(control_plane: Testbed) -> None:
    place = PLACE.format(control_plane.namespace("operator-patch"))
    ask = control_plane.plane.ask
    ask("POST", place, operator())
    patched = ask(
        "PATCH",
        f"{place}/kuberay-operator",
        yaml.safe_load(PATCH.read_text()),
        content="application/strategic-merge-patch+json",
    )
    (container,) = patched["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "none"
    assert {item["name"]: item["value"] for item in container["env"]} == {
        "ENABLE_ZERO_DOWNTIME": "true",
        "ENABLE_INIT_CONTAINER_INJECTION": "false",
    }
