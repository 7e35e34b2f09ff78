"""Which cluster is selected, and the message if none can be."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.backends.kuberay.api.client import ForbiddenError, KubeClient, KubeError
from cockpit.cli import main as cli
from cockpit.cli.options import cluster_choice, connect, kubernetes
from cockpit.cli.options.cluster_choice import SeveralError
from cockpit.cli.read.clusters import Answer, none
from cockpit.config.cluster_flags import Place
from cockpit.model.cluster import ClusterHealth, ClusterRef, ClusterSummary
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError

KUBECONFIG = {
    "current-context": "prod",
    "clusters": [
        {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}},
    ],
    "users": [{"name": "u", "user": {"token": "not-shown"}}],
    "contexts": [
        {"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "ml"}},
        {"name": "lab", "context": {"cluster": "c", "user": "u"}},
    ],
}


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(KUBECONFIG))  # JSON is YAML too
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


class There:
    """RayClusters by namespace; a namespace of no entry does not exist."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clusters: Mapping[str, tuple[str, ...]] = {"ml": (), "default": ()}
        self.error: CockpitError | None = None
        self.all_allowed = True
        self.asked: list[str | None] = []
        monkeypatch.setattr(kubernetes, "clusters_of", self.of)
        monkeypatch.setattr(KubeClient, "get", self.get)

    async def of(
        self, client: KubeClient, context: str, namespace: str | None, selector: str = ""
    ) -> tuple[ClusterSummary, ...]:
        self.asked.append(namespace)
        if self.error:
            raise self.error
        if namespace is None and not self.all_allowed:
            raise ForbiddenError("No.", "you may not list rayclusters", status=403)
        wanted = (
            self.clusters if namespace is None else {namespace: self.clusters.get(namespace, ())}
        )
        return tuple(
            ClusterSummary(ClusterRef("kuberay", name, where, context), ClusterHealth.READY)
            for where, names in wanted.items()
            for name in names
        )

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        if path.rpartition("/")[2] not in self.clusters:
            raise KubeError("not found", status=404)
        return {}


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> There:
    return There(monkeypatch)


def chosen(**where: Any) -> ClusterRef:
    place = Place(**where)
    return kubernetes.chosen(place, kubernetes.config(place))


def test_the_only_cluster_of_the_current_namespace_is_taken(there: There) -> None:
    there.clusters = {"ml": ("trainer",), "other": ("x",)}
    assert str(chosen()) == "kuberay:prod/ml/trainer"
    assert there.asked == ["ml"]


def test_a_cluster_that_is_named_is_not_looked_for(there: There) -> None:
    assert str(chosen(cluster="a", namespace="b", context="lab")) == "kuberay:lab/b/a"
    assert there.asked == []


def test_several_clusters_are_listed_with_the_flags_to_type(there: There) -> None:
    there.clusters = {"ml": ("a", "b")}
    with pytest.raises(SeveralError) as caught:
        chosen()
    assert "2 RayClusters in namespace ml of context prod" in caught.value.what
    assert "--cluster a; --cluster b" in caught.value.why
    assert [ref.name for ref in caught.value.refs] == ["a", "b"]
    assert caught.value.code == 2


def test_clusters_of_other_namespaces_are_named_when_this_one_is_empty(there: There) -> None:
    there.clusters = {"default": (), "ml": ("trainer",), "b": ("trainer",)}
    with pytest.raises(SeveralError) as caught:
        chosen(context="lab")
    assert "Available: -n ml --cluster trainer; -n b --cluster trainer." in str(caught.value)


def test_an_error_names_some_of_very_many_clusters(there: There) -> None:
    there.clusters = {"ml": tuple(f"c{number:03}" for number in range(200))}
    with pytest.raises(SeveralError, match="200 RayClusters") as caught:
        chosen()
    assert "and 192 more" in caught.value.why


def test_nothing_anywhere_suggests_what_to_do(there: There) -> None:
    with pytest.raises(UnreachableError, match="no RayCluster in namespace ml") as caught:
        chosen()
    assert "cockpit clusters" in caught.value.todo
    there.all_allowed = False
    with pytest.raises(UnreachableError, match="no RayCluster in namespace ml"):
        chosen()


def test_a_namespace_that_does_not_exist_is_distinguished_from_an_empty_one(there: There) -> None:
    with pytest.raises(UsageError, match="no namespace 'mll' in context prod"):
        chosen(namespace="mll")


def test_a_place_without_kuberay_reports_it(
    monkeypatch: pytest.MonkeyPatch, kubeconfig: Path
) -> None:
    async def missing(*_: object) -> None:
        raise KubeError("the server could not find it", status=404)

    modules = {
        "cockpit.backends.kuberay.resources.clusters": SimpleNamespace(list_clusters=missing)
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(UnreachableError, match="KubeRay is not installed there"):
        chosen()


def args(**where: Any) -> argparse.Namespace:
    return argparse.Namespace(where=Place(**where))


def local(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    clusters = [SimpleNamespace(name=name) for name in names]
    monkeypatch.setattr("cockpit.backends.local.list_clusters", lambda: clusters)


def test_a_local_cluster_that_runs_is_taken_and_that_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local(monkeypatch, "demo")
    lines: list[str] = []
    assert str(connect.backend(args(), log=lines.append).ref) == "local:demo"
    assert "Using local cluster demo" in lines[0]
    assert "--context" in lines[0]
    lines.clear()
    assert str(connect.backend(args(local=True), log=lines.append).ref) == "local:demo"
    assert lines == [], "it was asked for"


def test_kubernetes_is_taken_when_it_is_named_or_nothing_else_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local(monkeypatch, "demo")
    assert isinstance(connect.found(args(context="prod")), connect.OnKubernetes)
    assert isinstance(connect.found(args(namespace="ml")), connect.OnKubernetes)
    assert isinstance(connect.found(args(cluster="trainer")), connect.OnKubernetes)
    local(monkeypatch)
    assert isinstance(connect.found(args()), connect.OnKubernetes)


def test_of_two_local_clusters_none_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    local(monkeypatch, "a", "b")
    with pytest.raises(UsageError, match="2 local clusters: a, b"):
        connect.backend(args())
    assert str(connect.backend(args(cluster="b"), log=lambda line: None).ref) == "local:b"


def test_an_address_needs_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(connect.backend(args(address="http://head:8265")).ref) == "address:head:8265"


def test_nothing_at_all_explains_how_to_begin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert not cluster_choice.kubernetes_is_configured()
    with pytest.raises(UnreachableError, match="No cluster was found"):
        connect.backend(args())
    with pytest.raises(UnreachableError, match="no local cluster 'x'"):
        connect.backend(args(cluster="x"))


@pytest.mark.parametrize("verb", [["status", "--local"], ["--help"], ["local", "status"]])
def test_local_cluster_imports_no_kubernetes_module(verb: list[str]) -> None:
    program = (
        "import sys; from cockpit.cli.main import main; main(sys.argv[1:]);"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "{'kubernetes', 'yaml', 'websockets', 'tomllib'} or 'kuberay' in m))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *verb], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_contexts_are_listed_without_a_request_and_without_secrets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["contexts", "-o", "json"]) == 0
    text = capsys.readouterr().out
    assert [(row["name"], row["current"]) for row in json.loads(text)] == [
        ("prod", True),
        ("lab", False),
    ]
    assert "not-shown" not in text
    assert cli.main(["contexts", "--context", "lab"]) == 0


def test_a_context_that_may_not_be_listed_is_one_row_and_the_others_are_there(
    there: There, capsys: pytest.CaptureFixture[str]
) -> None:
    there.clusters = {"ml": ("trainer",)}

    async def of(
        client: KubeClient, context: str, namespace: str | None, selector: str = ""
    ) -> Any:
        if context == "lab":
            raise NotAllowedError("lab refused you.", "expired")
        return await There.of(there, client, context, namespace)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes, "clusters_of", of)
        assert cli.main(["clusters", "-o", "json"]) == 0
        text = capsys.readouterr()
        rows = json.loads(text.out)
        assert [(row["name"], row["context"]) for row in rows] == [("trainer", "prod"), ("", "lab")]
        assert "expired" in rows[1]["error"]
        assert "Context lab: lab refused you. expired.\n" in text.err
        assert cli.main(["clusters", "--context", "lab"]) == 4


def test_every_context_that_is_down_is_reported_and_that_is_a_failure(
    there: There, capsys: pytest.CaptureFixture[str]
) -> None:
    there.error = UnreachableError("No way.", "refused")
    assert cli.main(["clusters"]) == 3
    text = capsys.readouterr()
    assert text.err.count("No way. refused") == 2
    assert text.out == "No clusters are known: no context has answered. See: cockpit doctor\n"


def test_empty_list_of_clusters_describes_what_to_do() -> None:
    answered, failed = Answer("prod"), Answer("lab", error=UnreachableError("No way."))
    assert "cockpit local up" in none([])
    assert "cockpit up --on kubernetes" in none([answered])
    assert none([answered, failed]) == "No clusters in the contexts that have answered."
