"""Objects as YAML that may be shown."""

from __future__ import annotations

from typing import Any

import yaml

from cockpit.backends.kuberay.resources.safe_yaml import as_yaml, shown

POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": '{"env": "hunter2"}',
            "big": "x" * 100_000,
        },
    },
    "spec": {
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "ray",
                "env": [
                    {"name": "WANDB_API_KEY", "value": "hunter2"},
                    {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": "demo"}}},
                    {"name": "HF", "value": "hf_abcdefghijklmnopqrstuv"},
                    {"name": "DB", "value": "postgres://me:hunter2@db/x"},
                    {"name": "OMP_NUM_THREADS", "value": "4"},
                ],
                "args": ["export DB_PASSWORD=hunter2\nray start --head"],
            }
        ],
    },
}


def test_secrets_are_masked_and_the_rest_is_there() -> None:
    text = as_yaml(POD)
    assert "hunter2" not in text
    assert "hf_abc" not in text
    assert text.count("***") == 4
    read = yaml.safe_load(text)
    env = {each["name"]: each for each in read["spec"]["containers"][0]["env"]}
    assert env["OMP_NUM_THREADS"]["value"] == "4"
    assert env["RAY_AUTH_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "demo"}}
    assert read["spec"]["automountServiceAccountToken"] is False
    assert "ray start --head" in text


def test_a_runtime_environments_secrets_are_masked_too() -> None:
    spec = {"runtimeEnvYAML": "env_vars:\n  HF_TOKEN: hunter2\n  EPOCHS: '3'\n"}
    text = as_yaml({"kind": "RayJob", "metadata": {"name": "j"}, "spec": spec})
    assert "hunter2" not in text
    assert "EPOCHS: '3'" in text


def test_a_secrets_data_is_never_shown() -> None:
    made = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"auth_token": "aHVudGVyMg=="}}
    assert "aHVudGVyMg" not in as_yaml(made)


def test_manifest_omits_managed_fields_and_cuts_huge_values() -> None:
    text = as_yaml(POD)
    assert "managedFields" not in text
    assert "last-applied" not in text
    assert "more characters)" in text
    assert len(text) < 3_000


def test_no_control_character_is_shown_in_keys_or_values() -> None:
    evil = "e\x1b[2J\x1b]0;t\x07v\x9bil\u202e\x00\r\n\x1b[31mline"
    text = as_yaml({evil: evil, "list": [evil, {evil: [evil]}], "metadata": {evil: evil}})
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert "\\e" not in text


def test_nesting_without_end_and_odd_types_are_survived() -> None:
    deep: Any = "bottom"
    for _ in range(500):
        deep = {"a": deep}
    assert "bottom" not in as_yaml(deep)
    assert shown(None) is None
    assert as_yaml({"metadata": "text", "spec": None, "n": 1.5}).count("\n") == 3
