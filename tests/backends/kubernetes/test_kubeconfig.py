from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.backends.kuberay.api import kubeconfig
from cockpit.backends.kuberay.api.kubeconfig import IN_CLUSTER, read
from cockpit.model.error import UnreachableError, UsageError

PROD = """
current-context: prod
clusters:
- {name: prod, cluster: {server: 'https://prod.example:6443/', certificate-authority: pki/ca.crt}}
users:
- {name: jane, user: {token: sesame, client-key: pki/jane.key}}
contexts:
- {name: prod, context: {cluster: prod, user: jane, namespace: ml}}
"""
STAGE = """
current-context: stage
clusters:
- {name: stage, cluster: {server: 'https://stage.example:6443'}}
- {name: prod, cluster: {server: 'https://other.example'}}
users:
- {name: joe, user: {exec: {command: ./bin/login, apiVersion: client.authentication.k8s.io/v1}}}
contexts:
- {name: stage, context: {cluster: stage, user: joe}}
"""


@pytest.fixture(autouse=True)
def outside_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path / "serviceaccount")


def file(folder: Path, text: str, name: str = "config") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_context_has_its_server_user_and_namespace(tmp_path: Path) -> None:
    context = read([file(tmp_path, PROD)]).context()
    assert (context.name, context.namespace, context.user) == ("prod", "ml", "jane")
    assert context.server == "https://prod.example:6443"


def test_a_context_without_a_namespace_is_in_default(tmp_path: Path) -> None:
    assert read([file(tmp_path, STAGE)]).context().namespace == "default"


def test_paths_are_relative_to_the_folder_of_their_file(tmp_path: Path) -> None:
    prod = read([file(tmp_path / "a", PROD)]).context()
    assert prod.cluster["certificate-authority"] == str(tmp_path / "a/pki/ca.crt")
    assert prod.credential["client-key"] == str(tmp_path / "a/pki/jane.key")
    stage = read([file(tmp_path / "b", STAGE)]).context()
    assert stage.credential["exec"]["command"] == str(tmp_path / "b/bin/login")


def test_several_files_are_one_and_the_first_to_name_something_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [file(tmp_path, PROD, "one"), tmp_path / "missing", file(tmp_path, STAGE, "two")]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    config = read()
    assert [context.name for context in config.contexts] == ["prod", "stage"]
    assert config.current == "prod"
    assert config.context("prod").server == "https://prod.example:6443"


def test_without_a_variable_the_file_is_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file(tmp_path / ".kube", PROD)
    assert read().current == "prod"


def test_no_kubeconfig_at_all_reports_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError) as caught:
        read([tmp_path / "config"])
    assert str(tmp_path / "config") in caught.value.why
    assert "KUBECONFIG" in caught.value.todo


def test_broken_yaml_names_the_file_and_the_line(tmp_path: Path) -> None:
    broken = file(tmp_path, "apiVersion: v1\nclusters:\n- {name: prod\nusers: [}\n")
    with pytest.raises(UsageError, match=r"line [45]") as caught:
        read([broken])
    assert str(broken) in caught.value.what
    assert "--kubeconfig" in caught.value.todo


@pytest.mark.parametrize(
    "text",
    [
        "just words",
        "- a\n- list",
        "clusters: 3",
        "users: [3]",
        "contexts:\n- {name: a, context: 3}",
    ],
)
def test_file_that_is_no_kubeconfig_is_reported(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read([file(tmp_path, text)])
    assert str(tmp_path) in caught.value.what


def test_a_file_that_is_no_text_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(UsageError, match="cannot be read"):
        read([path])


def test_an_empty_file_among_others_counts_as_none(tmp_path: Path) -> None:
    assert read([file(tmp_path, "", "empty"), file(tmp_path, PROD)]).current == "prod"


def test_an_unknown_context_names_the_near_ones(tmp_path: Path) -> None:
    config = read([file(tmp_path, PROD), file(tmp_path, STAGE, "two")])
    with pytest.raises(UsageError) as caught:
        config.context("prodd")
    assert "prod" in caught.value.why
    assert "stage" not in caught.value.why


def test_no_current_context_lists_what_there_is(tmp_path: Path) -> None:
    config = read([file(tmp_path, PROD.replace("current-context: prod", ""))])
    with pytest.raises(UsageError) as caught:
        config.context()
    assert "prod" in caught.value.why


def test_a_pod_is_in_its_own_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "serviceaccount"
    file(folder, "a.token", "token")
    file(folder, "ml", "namespace")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    context = read([tmp_path / "missing"]).context()
    assert (context.name, context.namespace) == (IN_CLUSTER, "ml")
    assert context.server == "https://[fd00::1]:443"
    assert context.credential["tokenFile"] == str(folder / "token")


def test_no_secret_is_in_what_is_printed(tmp_path: Path) -> None:
    assert "sesame" not in repr(read([file(tmp_path, PROD)]))


def test_a_hostile_name_reaches_no_message_as_it_is(tmp_path: Path) -> None:
    config = read([file(tmp_path, PROD)])
    with pytest.raises(UsageError) as caught:
        config.context("\x1b[31mred\n")
    assert "\x1b" not in str(caught.value)


def test_the_modules_load_nothing_heavy() -> None:
    program = (
        "import sys; from cockpit.backends.kuberay.api import client, credentials, exec,"
        " kubeconfig, port_forward, reflector;"
        "print(sorted(sys.modules.keys() & {'httpx', 'yaml', 'kubernetes', 'websockets'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
