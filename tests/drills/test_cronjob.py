"""The nightly game day of manifests/: a command that exists, and roles that exist."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from cockpit.cli.drill import drill, plan, undo
from cockpit.cli.options.parser import Parser, common_flags
from cockpit.drills.gamedays.file import game_day
from cockpit.drills.gamedays.gameday import Launch
from tests.cluster.testbed import Testbed
from tests.drills.test_orphans import DAY_S, REPLACE, left

ROOT = Path(__file__).parents[2]
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/default/serviceaccounts",
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
    "CronJob": "/apis/batch/v1/namespaces/default/cronjobs",
}


def documents(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "manifests" / path).read_text()))


@pytest.fixture
def nightly() -> dict[str, Any]:
    return next(one for one in documents("drills/cronjob.yaml") if one["kind"] == "CronJob")


def test_cronjob_command_runs_a_bundled_game_day_with_valid_flags(
    nightly: dict[str, Any],
) -> None:
    pod = nightly["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    program, verb, *text = pod["containers"][0]["command"]
    assert (program, verb) == ("cockpit", "drill")
    parser = Parser(prog="cockpit drill", parents=[common_flags()])
    drill.arguments(parser, "drill")
    args = parser.parse_args(text)
    assert args.what == "run"
    assert args.yes
    plan.require_no_flags_of_a_fault(args)
    day = plan.with_settings(args, game_day(args.name))
    launch = next(step.doing for step in day.steps if isinstance(step.doing, Launch))
    assert launch.settings["storage_path"] == "$(STORAGE_PATH)"
    [variable] = [each for each in pod["containers"][0]["env"] if each["name"] == "STORAGE_PATH"]
    source = variable["valueFrom"]["configMapKeyRef"]
    [settings] = documents("kubernetes/base/settings.yaml")
    assert source == {"name": settings["metadata"]["name"], "key": "STORAGE_PATH"}
    assert settings["data"]["STORAGE_PATH"] == "/shared/checkpoints"


def test_pod_of_the_cronjob_first_undoes_what_the_pod_of_another_night_has_left(
    nightly: dict[str, Any],
) -> None:
    pod = nightly["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [first], [container] = pod["initContainers"], pod["containers"]
    program, verb, *text = first["command"]
    assert (program, verb, text[0]) == ("cockpit", "drill", "undo")
    parser = Parser(prog="cockpit drill", parents=[common_flags()])
    drill.arguments(parser, "drill")
    args = parser.parse_args(text)
    of_another_host = left(REPLACE, age_s=DAY_S)
    assert undo._agreed(args, [of_another_host], time.time()) == [of_another_host]
    for shared in ("image", "env", "volumeMounts", "securityContext"):
        assert first[shared] == container[shared], "the same journal"


def test_cronjob_has_its_own_service_account_with_the_operator_roles(
    nightly: dict[str, Any],
) -> None:
    found = documents("drills/cronjob.yaml")
    account = next(one for one in found if one["kind"] == "ServiceAccount")["metadata"]["name"]
    pod = nightly["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account
    bindings = [one for one in found if one["kind"] == "RoleBinding"]
    roles = {
        (one["kind"], one["metadata"]["name"]) for one in documents("kubernetes/base/rbac.yaml")
    }
    for binding in bindings:
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in roles
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert {one["roleRef"]["name"] for one in bindings} == {
        "cockpit-viewer", "cockpit-operator", "cockpit-ray-token",
    }  # fmt: skip


def test_history_and_journal_of_the_cronjob_are_on_a_volume(nightly: dict[str, Any]) -> None:
    pod = nightly["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    kept = {item["name"]: item.get("value") for item in container["env"]}
    claims = {one["name"] for one in pod["volumes"] if "persistentVolumeClaim" in one}
    mounts = {one["mountPath"] for one in container["volumeMounts"] if one["name"] in claims}
    assert kept["XDG_STATE_HOME"] in mounts
    junit = next(text for text in container["command"] if text.startswith("--junit="))
    assert str(Path(junit.partition("=")[2]).parent) in mounts


def test_an_api_server_takes_all_of_it(control_plane: Testbed) -> None:
    for document in documents("drills/cronjob.yaml"):
        made = control_plane.plane.ask(
            "POST", f"{PATHS[document['kind']]}?dryRun=All&fieldValidation=Strict", document
        )
        assert made["metadata"]["name"] == document["metadata"]["name"]
