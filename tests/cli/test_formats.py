"""`-o`, `-A` and `-l`, as kubectl has them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from cockpit.backends.kuberay.api import client
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.cli.main import main
from cockpit.cli.options import kubernetes
from cockpit.cli.options.parser import Parser
from cockpit.cli.output import jsonpath, lists, tables
from cockpit.cli.read import namespaces, snapshot
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import UsageError
from cockpit.session.session import Session
from tests.backends.provision.api_server import KUBECONFIG, ApiServer
from tests.events import before_the_kill, reduced

LISTED = {
    "items": [{"name": "a", "n": 1, "in": {"x.y": True}}, {"name": "b", "n": 2.5, "in": None}]
}
Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.items[*].name}", "a b"),
        ("{.items[0].name}", "a"),
        ("{.items[-1].n}", "2.5"),
        ("{$.items[1]['name']}", "b"),
        (r"{.items[0].in.x\.y}", "true"),
        ("{.items[0].in}", '{"x.y":true}'),
        ("{.items[1].in}", ""),
        ("{.items[0].*}", 'a 1 {"x.y":true}'),
        ("{.items[7].name}{.missing.name}{.items.name}", ""),
        ('names: {.items[0].name}{"\\t"}{.items[1].name}', "names: a\tb"),
        ("{range .items[*]}{.name}={.n}{'\\n'}{end}", "a=1\nb=2.5\n"),
        ("{range .items[*]}{$.items[0].name}{@.name} {end}", "aa ab "),
        ("{range .items[*]}{range .in.*}{@}{end}{end}", "true"),
    ],
)
def test_template_prints_what_it_selects(template: str, text: str) -> None:
    assert jsonpath.rendered(jsonpath.parsed(template), LISTED) == text


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (".items[*].name", "no expression in braces"),
        ("{.items[*].name", "not closed"),
        ("{}", "is empty"),
        ("{range .items[*]}{.name}", "no {end}"),
        ("{.items[?(@.n>1)].name}", "use -o json and jq"),
        ("{..name}", "use -o json and jq"),
        ("{.items[x]}", "cannot be read at '[x]'"),
        ("{.items[0]['name','n']}", "cannot be read at"),
        ("{items}", "cannot be read at 'items'"),
        ("{end}", "cannot be read at 'end'"),
        (r'{"\x"}', "not a valid quoted string"),
    ],
)
def test_template_that_cannot_be_read_is_a_usage_error(template: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        jsonpath.parsed(template)
    assert why in caught.value.why


def parse(verb: str, *argv: str) -> argparse.Namespace:
    parser = Parser(prog="cockpit")
    snapshot.arguments(parser, verb)
    return parser.parse_args(argv)


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("-o", "xml"), "no format 'xml'"),
        (("-o", "jsonpath"), "no format 'jsonpath'"),
        (("-o", "yaml={.a}"), "no format 'yaml={.a}'"),
        (("-o", "jsonpath={.a"), "not valid"),
    ],
)
def test_unknown_format_is_a_usage_error(argv: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse("pods", *argv)
    assert why in str(caught.value)


def test_one_object_has_no_names() -> None:
    with pytest.raises(UsageError, match="no format 'name'; available: table, json"):
        parse("status", "-o", "name")


def printed(capsys: pytest.CaptureFixture[str], verb: str, *argv: str) -> str:
    args = parse(verb, *argv)
    args.verb = verb
    rows = lists.rows_of(verb, reduced(before_the_kill()), 0.0)
    lists.print_list(args, verb, rows)
    return capsys.readouterr().out


def test_a_list_is_printed_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(printed(capsys, "pods", "-o", "json"))
    assert yaml.safe_load(printed(capsys, "pods", "-o=yaml")) == rows
    names = [row["name"] for row in rows]
    assert printed(capsys, "pods", "-o", "name").split() == [f"pod/{name}" for name in names]
    template = "jsonpath={.items[*].name}"
    assert printed(capsys, "pods", "-o", template) == " ".join(names) + "\n"
    table = printed(capsys, "pods").splitlines()
    wide = printed(capsys, "pods", "-o", "wide").splitlines()
    assert "NODE_TYPE  CREATED" in wide[0]
    assert "UID" not in wide[0], "a column that is empty in all rows is hidden"
    assert [line.split()[0] for line in wide] == [line.split()[0] for line in table]


def test_wide_shows_the_values_inside_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("name", "resources.cpus")
    tables.print_table([{"name": "a", "resources": {"cpus": 2}}, {"name": "b"}], columns)
    assert capsys.readouterr().out == "NAME  CPUS\na        2\nb        –\n"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """Two RayClusters in two namespaces, with a pod each, and a RayJob."""
    made = ApiServer()
    for place in (client, kubernetes):
        monkeypatch.setattr(place, "KubeClient", made.client())
    for namespace, name, team in (("ml", "demo", "nlp"), ("cv", "vision", "cv")):
        labels = {"ray.io/cluster": name, "team": team}
        meta = {"namespace": namespace, "labels": labels}
        in_ray, core = f"/apis/ray.io/v1/namespaces/{namespace}", f"/api/v1/namespaces/{namespace}"
        made.add(f"{in_ray}/rayclusters/{name}", metadata=meta)
        made.add(f"{in_ray}/rayjobs/{name}-job", metadata=meta, status={"jobId": f"{name}-7x"})
        made.add(f"{core}/pods/{name}-head", metadata=meta)
    made.add("/api/v1/namespaces/cv/pods/other", metadata={"namespace": "cv"})
    return made


@pytest.fixture
def run(api: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))

    def run(*argv: str) -> tuple[int, str, str]:
        code = main([*argv, "--kubeconfig", str(kubeconfig)])
        text = capsys.readouterr()
        return code, text.out, text.err

    return run


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (("pods", "-A"), ["pod/vision-head", "pod/demo-head"]),
        (("pods", "-A", "-l", "team=nlp"), ["pod/demo-head"]),
        (("jobs", "--all-namespaces"), ["rayjob/vision-job", "rayjob/demo-job"]),
        (("jobs", "-A", "--selector", "team=cv"), ["rayjob/vision-job"]),
        (("clusters", "-A", "-n", "ml"), ["raycluster/vision", "raycluster/demo"]),
        (("clusters", "-n", "ml"), ["raycluster/demo"]),
        (("clusters", "-l", "team=cv"), ["raycluster/vision"]),
        (("clusters", "-n", "ml", "-l", "team=cv"), []),
    ],
)
def test_namespaces_and_labels_select_what_is_listed(
    argv: tuple[str, ...], names: list[str], run: Run
) -> None:
    code, out, err = run(*argv, "-o", "name")
    assert (code, out.split()) == (0, names), err


def test_table_of_all_namespaces_names_them(run: Run) -> None:
    _, out, _ = run("pods", "-A")
    title, first, _ = out.splitlines()
    assert title.startswith("NAMESPACE  CLUSTER  NAME")
    assert first.split()[:3] == ["cv", "vision", "vision-head"]
    _, out, _ = run("jobs", "-A")
    assert out.splitlines()[0].startswith("NAMESPACE  NAME")
    _, out, _ = run("jobs", "-A", "-o", "jsonpath={.items[*].rayjob}")
    assert out == "vision-job demo-job\n"


@pytest.mark.parametrize("verb", ["pods", "jobs", "clusters"])
def test_invalid_selector_reports_what_the_server_answers(verb: str, run: Run) -> None:
    code, _, err = run(verb, "-A", "-l", "team==x=")
    assert "unable to parse requirement" in err
    assert code == 2


@pytest.mark.parametrize("verb", ["pods", "jobs", "clusters"])
def test_a_local_cluster_has_no_namespaces_and_labels(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "-A", "--local"]) == 2
    assert "-A and -l are for Kubernetes" in capsys.readouterr().err
    assert main([verb, "-A", "--hosts", "hosts.toml"]) == 2
    assert "Leave out --hosts." in capsys.readouterr().err


def test_watching_takes_one_cluster_and_no_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pods", "-A", "--watch"]) == 2
    assert main(["pods", "-o", "name", "--watch"]) == 2
    assert "--watch prints a table or lines of JSON" in capsys.readouterr().err


def test_labels_select_among_the_pods_of_one_cluster(api: ApiServer) -> None:
    backend = object.__new__(KubeRayBackend)
    backend._ref = ClusterRef("kuberay", "demo", "ml", "lab")
    backend.client = cast("Any", SimpleNamespace(objects=_objects(api)))
    session = cast("Session", SimpleNamespace(backend=backend, call=_result))
    rows = [{"name": "demo-head"}, {"name": "demo-worker"}]
    args = argparse.Namespace(verb="pods", selector="team=nlp")
    assert namespaces.selected(args, session, rows) == [{"name": "demo-head"}]
    args.selector = "team=cv"
    assert namespaces.selected(args, session, rows) == []


def _objects(api: ApiServer) -> Callable[..., Any]:
    async def objects(path: str, params: dict[str, str]) -> Any:
        return api.handle("GET", path, params, None)[1]["items"]

    return objects


def _result(call: Any) -> Any:
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")
