"""Names in the pages exist, and verbs, flags and keys are documented."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from msgspec import Struct

from cockpit.backends.kuberay.provision.overlay import Wanted, needed, objects
from cockpit.cli.drill.progress import as_row
from cockpit.cli.main import main
from cockpit.cli.options.parser import Parser, common_flags
from cockpit.cli.verbs import BY_NAME, VERBS
from cockpit.model.cluster import Node, Pod, WorkerGroup
from cockpit.model.drill import Drill, Recovery
from cockpit.model.event import Notice
from cockpit.model.run import Job, RankSample
from cockpit.store.store import SourceState
from cockpit.tui.commands import commands
from cockpit.tui.keys import KEYS, VIEWS
from tests.manifests.test_road import readme_commands
from tests.page import unmarked_commands

ROOT = Path(__file__).parents[1]
PAGES = (
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "manifests/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
)
COMMANDS = ROOT / "docs/commands.md"

_FENCE = re.compile(r"^ *```.*?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_VARIABLE = re.compile(r"\bCOCKPIT_[A-Z_]+\b")


def pages() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])


def command_lines(page: Path) -> Iterator[list[str]]:
    """The arguments after `cockpit` of each command on the page."""
    text = page.read_text()
    inside = _FENCE.findall(text)
    snippets = [line for block in inside for line in block.splitlines()]
    snippets += _SPAN.findall(_FENCE.sub("", text))
    for snippet in snippets:
        for part in re.split(r"&&|[|;#…]", snippet):
            match = re.match(r"\s*(?:\$ )?(?:\S+=\S+ )*(?:\S*bin/)?cockpit( .*|$)", part)
            if match and not match[1].startswith("  "):  # a line of the help, not a command
                yield shlex.split(match[1].replace("'", ""))


def verb_of(words: list[str]) -> tuple[str, list[str]]:
    """The verb, if one follows the flags before it, and all flags."""
    plain: list[str] = []
    flags: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        if word.startswith("-"):
            flags.append(word.partition("=")[0].strip("[]"))
            common = common_flags()._option_string_actions.get(word)
            if common is not None and common.nargs is None:  # it takes a value
                next(rest, None)
        else:
            plain.append(word)
    return (plain[0] if plain else ""), flags


def names(verb: str) -> list[str]:
    """`stop|delete|resume` names three."""
    return [name for name in verb.split("|") if name]


@pages()
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(_FENCE.sub("", page.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pages()
def test_every_path_of_the_repository_exists(page: Path) -> None:
    text = _FENCE.sub("", page.read_text())
    for path in re.findall(r"`((?:cockpit|training|tests|manifests|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


def anchors(page: Path) -> set[str]:
    """As forges make them of headings."""
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pages()
def test_every_command_that_is_shown_exists_with_its_flags(page: Path) -> None:
    for words in command_lines(page):
        verb, flags = verb_of(words)
        for name in names(verb):
            if not re.fullmatch(r"[a-z]+", name):
                continue  # a placeholder, such as VERB
            assert name in BY_NAME, words
            known = parser(name)._option_string_actions
            for flag in flags:
                assert flag in known, words
        if not verb:
            for flag in flags:
                assert flag in {*common_flags()._option_string_actions, "--help", "--version"}, (
                    words
                )


def parser(verb: str) -> Parser:
    made = Parser(prog=verb, parents=[common_flags()])
    import_module(f"cockpit.cli.{BY_NAME[verb].module}").arguments(made, verb)
    return made


def test_every_verb_and_every_flag_of_it_is_documented() -> None:
    text = COMMANDS.read_text()
    shown = {name for words in command_lines(COMMANDS) for name in names(verb_of(words)[0])}
    for verb in VERBS:
        assert verb.name in shown
        for flag in parser(verb.name)._option_string_actions:
            if flag.startswith("--"):
                assert f"{flag}" in text, f"{verb.name} {flag}"


def test_the_environment_variables_are_those_that_are_documented() -> None:
    sources = [path for part in ("cockpit", "training") for path in (ROOT / part).rglob("*.py")]
    read = {
        name for path in sources for name in re.findall(r'"(COCKPIT_[A-Z_]+)"', path.read_text())
    }
    named = {name for page in PAGES for name in _VARIABLE.findall(page.read_text())}
    assert named == read


def test_the_keys_are_those_that_are_documented() -> None:
    text = (ROOT / "docs/screens.md").read_text()
    for key in KEYS:
        assert re.search(rf"^{re.escape(key.shown)} +{key.id} +{re.escape(key.help)}$", text, re.M)


def test_every_command_of_the_screen_is_documented() -> None:
    text = (ROOT / "docs/screens.md").read_text()
    for command in commands.COMMANDS:
        assert command.name in VIEWS or re.search(rf"`{command.name}[` ]", text), command.name


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        if page.name != "README.md":
            assert f"({page.name})" in index


@pytest.mark.parametrize("kind", [Job, Node, Notice, Pod, RankSample, SourceState, WorkerGroup])
def test_every_key_that_a_verb_prints_is_documented(kind: type[Struct]) -> None:
    named = set(re.findall(r"`(\w+)`", COMMANDS.read_text()))
    assert set(kind.__struct_fields__) <= named


def test_every_number_of_a_kill_is_documented() -> None:
    drill = Drill("d", "pod-kill", "pod", (0,), 0.0, 0.0)
    named = set(re.findall(r"`(\w+)`", COMMANDS.read_text().partition("#### What a kill")[2]))
    assert as_row(Recovery(drill)).keys() <= named


ELSEWHERE = {
    "cockpit -n ml --cluster demo": "tests/tui/test_app_kubernetes.py",
    "cockpit preflight --network": "tests/preflight/test_on_kubernetes.py",
    "cockpit preflight checkpointed": "tests/preflight/test_bucket.py",
    "cockpit launch checkpointed": "tests/training/test_jobs_on_s3.py",
    "cockpit up --on kubernetes": "tests/manifests/test_kubectl.py",
    "cockpit config rules": "tests/alerts/test_prometheus_rules.py",
}
"""The tests of commands that no test reads from their page, by the beginning of the command."""


@pytest.mark.parametrize("name", ["kubernetes.md", "monitoring.md", "drills.md"])
def test_each_command_on_kubernetes_is_run_by_a_test_or_marked(name: str) -> None:
    """Those of kubectl are run from the page by test_kubectl.py, the README's by test_road.py."""
    page = ROOT / "docs" / name
    road = [words[1:] for words in unmarked_commands((ROOT / "README.md").read_text())]
    for words in unmarked_commands(page.read_text()):
        line = shlex.join(words)
        if name == "drills.md" and words[0] != "kubectl":
            continue  # of any cluster
        if words[0] != "kubectl" and words[1:] not in road:
            [test] = [test for start, test in ELSEWHERE.items() if line.startswith(start)]
            assert (ROOT / test).exists(), test


def test_each_command_for_a_kubernetes_cluster_is_run_or_marked_as_needing_a_cloud(
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands = unmarked_commands((ROOT / "docs/kubernetes-clusters.md").read_text())
    assert len(commands) == 5, "one for each kind of cluster"
    for program, *words in commands:
        assert (program, words[0]) == ("cockpit", "up"), f"{words}: not run by this test"
        assert main([*words, "--dry-run", "-o", "yaml"]) == 0, capsys.readouterr().err
        made = {each["kind"]: each for each in yaml.safe_load_all(capsys.readouterr().out)}
        head = made["RayCluster"]["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
        assert head["image"] == words[words.index("--image") + 1]
        claim = made["PersistentVolumeClaim"]["spec"]
        if "--storage-class" in words:
            assert claim["storageClassName"] == words[words.index("--storage-class") + 1]
        else:
            assert claim["volumeName"] == made["PersistentVolume"]["metadata"]["name"]


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ("`cpu`, `monitoring`", Wanted()),
        ("`recovery`", Wanted(overlay="recovery")),
        ("`recovery --small`", Wanted(overlay="recovery", small=True)),
        ("`gpu`", Wanted(overlay="gpu")),
    ],
)
def test_documented_sizes_are_those_of_the_manifests(row: str, wanted: Wanted) -> None:
    text = (ROOT / "docs/kubernetes-clusters.md").read_text()
    [cells] = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", text, re.MULTILINE)
    _, cpus, memory, gpus = cells.split(" | ")
    [cluster] = [each for each in objects(wanted) if each["kind"] == "RayCluster"]
    need = needed(cluster)
    assert float(cpus) == pytest.approx(need["requests.cpu"])
    assert memory == f"{need['requests.memory'] / 2**30:g} GiB"
    assert gpus == f"{need.get('requests.nvidia.com/gpu', 0):g}".replace("0", "–")


def test_readme_has_the_three_commands_that_the_nightly_lane_runs() -> None:
    assert [words[0] for words in readme_commands()] == ["up", "launch", "kill"]
