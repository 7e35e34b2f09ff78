"""What shells ask for: completion with names of the cluster, the manual page, versions."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from argcomplete.finders import CompletionFinder

from cockpit import __version__
from cockpit.cli.main import main
from cockpit.cli.options import connect
from cockpit.cli.read import clusters
from cockpit.cli.read.clusters import Answer
from cockpit.cli.shell import completion, manual
from cockpit.cli.shell.names import KINDS, LOCAL
from cockpit.cli.shell.parsers import parser_of
from cockpit.cli.verbs import BY_NAME, VERBS, Verb
from cockpit.model.cluster import ClusterHealth, ClusterRef, ClusterSummary, WorkerGroup
from cockpit.model.error import UnreachableError
from cockpit.model.event import GroupsListed, RunSeen, SourceHealth
from cockpit.model.run import RunState
from tests.cli.test_experiments import use_mlflow
from tests.simulated_backend import ScriptedBackend

REF = ClusterRef("kuberay", "trainer", "ml", "prod")


@pytest.fixture(autouse=True)
def no_debug_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take the file descriptor 9, which is one of pytest's."""
    monkeypatch.setattr(CompletionFinder, "_init_debug_stream", lambda finder: None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is one that a shell runs to complete a line."""
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setenv("_ARGCOMPLETE_IFS", completion.SEPARATOR)


def completed(monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line.encode())))
    found = io.StringIO()
    completion.complete(line, len(line.encode()), found)
    return [name.rstrip() for name in found.getvalue().split(completion.SEPARATOR) if name]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cockpit pre", ["preflight"]),
        ("cockpit --context prod sc", ["scale"]),
        ("cockpit drill r", ["run", "report"]),
        ("cockpit drill run rank-k", ["rank-kill"]),
        ("cockpit launch fs", ["fsdp2"]),
        ("cockpit preflight fs", ["fsdp2"]),
        ("cockpit launch fsdp2 --set batch", ["batch_size="]),
        ("cockpit preflight fsdp2 --set learning", ["learning_rate="]),
        ("cockpit launch nonsense --set b", []),
        ("cockpit launch fsdp2 --set cpu_offload=t", ["cpu_offload=true"]),
        ("cockpit launch fsdp2 --set gpu=a", ["gpu=auto"]),
        ("cockpit launch fsdp2 --set epochs=", []),
        ("cockpit drill run network-loss --set peers=r", ["peers=ranks"]),
        ("cockpit drill run network-delay --set del", ["delay_ms="]),
        ("cockpit describe n", ["node/"]),
        ("cockpit why gr", ["group/"]),
        ("cockpit status --wat", ["--watch"]),
        ("cockpit nonsense x", []),
    ],
)
def test_line_is_completed_without_a_cluster(
    line: str, expected: list[str], asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = completed(monkeypatch, line)
    assert set(expected) <= set(found)
    assert bool(expected) == bool(found)
    assert all(name.startswith(line.split()[-1]) for name in found)


def test_names_are_those_of_the_cluster(asked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    group = WorkerGroup("gpu-a100", desired=2, ready=2, min=0, max=4)
    events = (
        GroupsListed(at_s=1.0, source="kuberay", groups=(group,)),
        SourceHealth(at_s=1.0, source="backend", ok=True),
    )
    monkeypatch.setattr(connect, "backend", lambda *_, **__: ScriptedBackend(events, ref=REF))
    assert completed(monkeypatch, "cockpit scale gp") == ["gpu-a100"]
    assert completed(monkeypatch, "cockpit drill run pod-kill --group ") == ["gpu-a100"]
    assert "group:gpu-a100" in completed(monkeypatch, "cockpit drill run pod-kill --target ")
    assert completed(monkeypatch, "cockpit preflight --group ") == ["gpu-a100"]
    assert completed(monkeypatch, "cockpit why group/") == ["group/gpu-a100"]


def test_cluster_without_an_answer_completes_nothing(
    asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise UnreachableError("The API server does not answer.")

    monkeypatch.setattr(connect, "backend", unreachable)
    assert completed(monkeypatch, "cockpit kill ") == []


KUBECONFIG = """
contexts: [{name: prod, context: {cluster: c, user: u, namespace: team-a}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


def test_namespaces_are_those_of_the_contexts_and_of_the_clusters(
    asked: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    answer = Answer("prod", (ClusterSummary(REF, ClusterHealth.READY),))
    monkeypatch.setattr(clusters, "listed", lambda where: ([], [answer]))
    assert set(completed(monkeypatch, "cockpit pods -n ")) == {"team-a", REF.namespace}
    assert completed(monkeypatch, "cockpit pods --context prod --namespace te") == ["team-a"]


def test_experiments_completes_the_names_of_mlflow_runs(
    asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_mlflow(monkeypatch)
    assert "night" in completed(monkeypatch, "cockpit experiments ")


NOT_COMPLETED = {
    # Typed again to confirm: a completed name would confirm nothing.
    "i_mean",
    # New names, and names of what cockpit does not list.
    *("address", "dashboard_url", "token_secret", "command", "image", "queue", "storage_class"),
    *("nfs", "s3", "s3_secret", "s3_region", "s3_endpoint", "service", "env", "pip", "uv"),
    *("module", "working_dir", "storage", "out", "tag", "experiment", "replicas", "without"),
    # Expressions, sizes and times.
    *("selector", "grep", "filter", "since", "around", "at", "size", "views", "sort", "probe"),
    *("probe_during", "abort_unless", "driver_memory", "driver_resource"),
}
"""Arguments with a value that have no completer and no choices, for every verb."""
NOT_COMPLETED_OF = {("demo", "name"), ("local", "group"), ("why", "session")}
"""As above, for one verb."""


def test_every_argument_is_completed_or_exempt() -> None:
    missing = set()
    for verb in VERBS:
        for action in completion._completed(f"cockpit {verb.name} ")._actions:
            known = action.choices or action.type in (int, float) or hasattr(action, "completer")
            if action.nargs != 0 and not known:
                missing.add((verb.name, action.dest))
    assert {one for one in missing if one[1] not in NOT_COMPLETED} == NOT_COMPLETED_OF
    assert {argument for _, argument in missing} >= NOT_COMPLETED, "an exemption is not needed"


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_completed_argument_exists(verb: str) -> None:
    arguments = {action.dest for action in parser_of(BY_NAME[verb])._actions}
    assert {argument for name, argument in KINDS if name == verb} <= arguments
    assert arguments >= LOCAL.keys()


def test_completed_arguments_belong_to_verbs() -> None:
    assert {verb for verb, _ in KINDS} <= BY_NAME.keys()


def test_kubectl_gets_names_and_that_there_are_no_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("_ARGCOMPLETE", "_ARGCOMPLETE_IFS", "COMP_LINE", "COMP_POINT"):
        monkeypatch.setenv(name, "")  # restored at the end, since the program sets them
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-cockpit", "drill", "plan", "raylet"])
    assert completion.kubectl() == 0
    assert capsys.readouterr().out.splitlines() == ["raylet-kill", ":4"]


SCRIPTS = {
    "bash": """
source <(cockpit completion bash)
COMP_LINE="cockpit laun" COMP_POINT=12 COMP_TYPE=9 COMP_WORDS=(cockpit laun) COMP_CWORD=1
_python_argcomplete cockpit laun cockpit
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "fish": """
cockpit completion fish | source
complete -C "cockpit laun"
""",
}
"""What prints the completions of a line. zsh completes on a terminal only."""


@pytest.mark.parametrize("shell", [name for name in SCRIPTS if shutil.which(name)])
def test_shell_completes_with_the_printed_script(shell: str, tmp_path: Path) -> None:
    program = tmp_path / "cockpit"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cockpit "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        [shell, "-c", SCRIPTS[shell]],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["launch"], done.stderr


def test_manual_page_has_every_verb_and_every_flag() -> None:
    lines = list(manual.page())
    text = "\n".join(lines)
    assert lines[0].startswith(".TH COCKPIT 1")
    for verb in VERBS:
        assert f"cockpit {verb.name}".replace("-", "\\-") in text
        for action in parser_of(verb)._actions:
            for flag in action.option_strings:
                assert flag.replace("-", "\\-") in text, (verb.name, flag)
    requests = {line.split()[0] for line in lines if line.startswith(".")}
    assert requests <= {".TH", ".SH", ".SS", ".TP", ".B"}, "a text became a request of troff"


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_argument_of_a_verb_has_help(verb: Verb) -> None:
    without = [action.dest for action in parser_of(verb)._actions if not action.help]
    assert not without


def test_versions_are_printed_for_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"cockpit {__version__}\ntelemetry format ")
    assert main(["version", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cockpit"] == __version__
    assert isinstance(found["recording_format"], int)
    assert found["textual"]


def test_run_and_rank_names_come_from_telemetry(
    asked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = RunSeen(at_s=1.0, source="telemetry", run_id="r1", name="night", state=RunState.RUNNING)
    monkeypatch.setattr(connect, "backend", lambda *_, **__: ScriptedBackend((seen,), ref=REF))
    for verb in ("hang", "guard", "timeline", "why"):
        assert completed(monkeypatch, f"cockpit {verb} ni") == ["night"]
