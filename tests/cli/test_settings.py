"""Flags beat environment beats profile, and what belongs to another place is left out."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.cli import main as cli
from cockpit.cli.options.settings import settle_all
from cockpit.cli.read import config_check
from cockpit.config import file
from cockpit.config.cluster_flags import Place, settle
from cockpit.model.cluster import ClusterRef, is_protected
from cockpit.model.error import UsageError

PROD = Place(context="prod", namespace="ml", cluster="big", dashboard_url="http://x")


@pytest.mark.parametrize(
    ("levels", "settled"),
    [
        ([Place(), Place(), PROD], PROD),
        ([Place(cluster="small"), PROD], Place(context="prod", namespace="ml", cluster="small")),
        ([Place(namespace="dev"), PROD], Place(context="prod", namespace="dev")),
        ([Place(context="lab"), PROD], Place(context="lab")),
        ([Place(local=True), PROD], Place(local=True)),
        ([Place(address="http://h:8265"), PROD], Place(address="http://h:8265")),
        ([Place(context="prod"), PROD], PROD),
        ([Place(context="lab"), Place(namespace="mine"), PROD],
         Place(context="lab", namespace="mine")),
        ([Place(cluster="x"), Place(local=True)], Place(local=True, cluster="x")),
        ([Place(kubeconfig="/a"), Place(context="b", kubeconfig="/c")], Place(kubeconfig="/a")),
    ],
)  # fmt: skip
def test_settings_of_another_cluster_are_ignored(levels: list[Place], settled: Place) -> None:
    assert settle(levels) == settled


def write(text: str) -> Path:
    where = file.path()
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(text)
    return where


CONFIG = """
profile = "prod"
theme = "cockpit-light"

[profiles.prod]
context = "prod"
namespace = "ml"
read_only = true

[profiles.here]
local = true
theme = "ansi-16"
"""


def test_flags_beat_the_environment_and_that_beats_the_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(CONFIG)
    found = settle_all({}, file.read())
    assert (found.where, found.read_only) == (Place(context="prod", namespace="ml"), True)
    assert found.set_by["namespace"] == "profile"
    monkeypatch.setenv("COCKPIT_NAMESPACE", "env")
    monkeypatch.setenv("COCKPIT_READ_ONLY", "0")
    found = settle_all({"namespace": "flag"}, file.read())
    assert found.where == Place(context="prod", namespace="flag")
    assert (found.set_by["namespace"], found.set_by["context"]) == ("flag", "profile")
    assert (found.read_only, found.set_by["read_only"]) == (True, "profile")
    monkeypatch.delenv("COCKPIT_NAMESPACE")
    monkeypatch.setenv("COCKPIT_PROFILE", "here")
    found = settle_all({}, file.read())
    assert (found.where, found.theme) == (Place(local=True), "ansi-16")
    assert settle_all({"profile": "prod"}, file.read()).theme == "cockpit-light"


@pytest.mark.parametrize(
    ("flag", "variable", "profile", "read_only", "set_by"),
    [
        (True, "0", False, True, "flag"),
        (False, "1", False, True, "environment"),
        (False, "0", True, True, "profile"),
        (False, "off", None, False, "environment"),
        (False, "", False, False, "profile"),
        (False, "", None, False, None),
    ],
)
def test_read_only_holds_as_soon_as_one_level_sets_it(
    flag: bool,
    variable: str,
    profile: bool | None,
    read_only: bool,
    set_by: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("" if profile is None else f"read_only = {str(profile).lower()}")
    monkeypatch.setenv("COCKPIT_READ_ONLY", variable)
    found = settle_all({"read_only": True} if flag else {}, file.read())
    assert (found.read_only, found.set_by.get("read_only")) == (read_only, set_by)


@pytest.mark.parametrize("name", ["COCKPIT_READ_ONLY", "COCKPIT_LOCAL"])
@pytest.mark.parametrize("text", ["y", "YES", "true ", "on", "1"])
def test_boolean_variable_is_read_regardless_of_its_case_and_spaces(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, text)
    found = settle_all({}, file.read())
    assert found.read_only is (name == "COCKPIT_READ_ONLY")
    assert found.where.local is (name == "COCKPIT_LOCAL")


def test_variable_that_is_false_overrides_a_local_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    write(f"{CONFIG}cluster = 'demo'")
    monkeypatch.setenv("COCKPIT_PROFILE", "here")
    assert settle_all({}, file.read()).where == Place(local=True, cluster="demo")
    monkeypatch.setenv("COCKPIT_LOCAL", "false")
    found = settle_all({}, file.read())
    assert (found.where, found.theme) == (Place(), "ansi-16")
    assert not {"local", "cluster"} & found.set_by.keys()
    assert settle_all({"local": True}, file.read()).where == Place(local=True)
    monkeypatch.setenv("COCKPIT_PROFILE", "prod")
    assert settle_all({}, file.read()).where == Place(context="prod", namespace="ml")


@pytest.mark.parametrize("name", ["COCKPIT_READ_ONLY", "COCKPIT_LOCAL"])
@pytest.mark.parametrize("text", ["enabled", "2", " ", "tru", "yes please"])
def test_unknown_boolean_is_an_error_of_usage(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, text)
    assert cli.main(["kill", "some-pod", "--yes"]) == 2
    assert f"{name} is" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["stack", "0"], ["profile", "0"], ["profile", "0", "--memory"]])
def test_read_only_refuses_what_pauses_a_rank(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*argv, "--read-only"]) == 4
    assert "pauses the rank's process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("profile = ", "It is not TOML"),
        ('contxt = "x"', "contxt is not a setting"),
        ('[profiles.a]\nnamespce = "x"', "profiles.a.namespce is not a setting"),
        ("[profiles.a]\nnamespace = 3", "profiles.a.namespace must be a string"),
        ('[profiles.a]\nlocal = "yes"', "profiles.a.local must be true or false"),
        ('profiles = "a"', "profiles must be tables"),
        ('[profiles.a]\nprotected = "yes"', "profiles.a.protected must be true, false or patterns"),
        ('protected = { contxt = "x" }', "protected.contxt is not a setting"),
        ("protected = {}", "protected names no pattern"),
        ("protected = [{ context = 1 }]", "protected must be true, false or patterns"),
        ('profile = "gone"', "There is no profile 'gone'"),
        ('[profiles.a]\nlocal = true\ncontext = "x"', "--local and --context at once"),
    ],
)
def test_a_configuration_that_is_not_understood_names_the_place(
    text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(text)
    assert cli.main(["status"]) == 2
    reported = capsys.readouterr().err
    assert words in reported
    assert len(reported.splitlines()) <= 3
    assert cli.main(["config", "path"]) == 0, "a broken file can still be found and mended"


@pytest.mark.parametrize(
    "argv",
    [
        ["--local", "--context", "x", "pods"],
        ["pods", "--address", "http://h:8265", "-n", "ml"],
    ],
)
def test_two_kinds_of_cluster_at_once_are_refused(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 2
    assert "at once" in capsys.readouterr().err


def test_config_show_lists_settings_with_their_origin(capsys: pytest.CaptureFixture[str]) -> None:
    where = write(CONFIG)
    assert cli.main(["config", "show", "-n", "mine", "-o", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["namespace"] == {"name": "namespace", "value": "mine", "set_by": "flag"}
    assert rows["context"]["set_by"] == "profile"
    assert rows["cluster"]["set_by"] == "default"
    assert cli.main(["config"]) == 0
    assert str(where) in capsys.readouterr().out


def test_editing_begins_with_a_template_and_ends_with_a_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["config", "edit"]) == 2, "there is no terminal"
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.delenv("VISUAL", raising=False)
    assert cli.main(["config", "edit"]) == 0
    assert file.path().read_text() == file.TEMPLATE
    assert stat.S_IMODE(file.path().stat().st_mode) == 0o600, "it may get secrets"
    monkeypatch.setenv(
        "EDITOR", f"{sys.executable} -c \"import sys; open(sys.argv[1], 'w').write('x')\""
    )
    assert cli.main(["config", "edit"]) == 2
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert cli.main(["config", "edit"]) == 1
    assert "cannot be started" in capsys.readouterr().err


REF = ClusterRef("kuberay", "trainer", "ml", "prod")


@pytest.mark.parametrize(
    ("text", "flags", "ref", "protected"),
    [
        ("", {}, REF, False),
        ("protected = true", {}, REF, True),
        ('protected = { context = "prod*" }', {}, replace(REF, context="prod-eu"), True),
        ('protected = { context = "prod*" }', {}, replace(REF, context="lab"), False),
        ('protected = [{ cluster = "a" }, { namespace = "m?" }]', {}, REF, True),
        # A profile protects its clusters, whichever profile is in use.
        ('[profiles.p]\ncontext = "prod"\nprotected = true', {}, REF, True),
        ('[profiles.p]\ncontext = "prod"\nnamespace = "x"\nprotected = true', {}, REF, False),
        ('[profiles.p]\ncontext = "p*d"\nprotected = true', {}, REF, False),
        ('[profiles.p]\ncontext = "prod"\nprotected = { namespace = "m*" }', {}, REF, True),
        (
            '[profiles.p]\ncontext = "lab"\nprotected = { namespace = "m*" }', {}, REF, False,
        ),
        # A profile that names no cluster protects the clusters for which it is used.
        ('[profiles.p]\nkubeconfig = "/k"\nprotected = true', {}, REF, False),
        ('[profiles.p]\nkubeconfig = "/k"\nprotected = true', {"profile": "p"}, REF, True),
        ("[profiles.p]\nprotected = true", {"profile": "p"}, ClusterRef("local", "a"), True),
        # In use, it protects its whole context, and nothing else.
        (
            '[profiles.p]\ncontext = "prod"\nnamespace = "x"\nprotected = true',
            {"profile": "p", "namespace": "ml"}, REF, True,
        ),
        (
            '[profiles.p]\ncontext = "prod"\nprotected = true',
            {"profile": "p", "local": True}, ClusterRef("local", "a"), False,
        ),
        (
            '[profiles.p]\naddress = "http://u:p@head:8265/x"\nprotected = true', {},
            ClusterRef("address", "head:8265"), True,
        ),
        ("[profiles.p]\nlocal = true\nprotected = true", {}, ClusterRef("local", "a"), True),
    ],
)  # fmt: skip
def test_clusters_are_protected_by_pattern(
    text: str, flags: dict[str, object], ref: ClusterRef, protected: bool
) -> None:
    write(text)
    assert is_protected(ref, settle_all(flags, file.read()).protected) is protected


def test_the_template_is_a_configuration_when_its_comments_are_taken_away() -> None:
    lines = [line.removeprefix("# ") for line in file.TEMPLATE.splitlines()[2:]]
    write("\n".join(line for line in lines if "=" in line or line.startswith("[")))
    assert set(file.read().profiles) == {"prod", "bench", "here"}


def test_a_configuration_without_a_file_is_empty() -> None:
    assert file.read().profiles == {}
    with pytest.raises(UsageError, match="no profile 'x'"):
        file.read().named("x")


def test_a_file_that_may_not_be_read_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    where = write(CONFIG)
    where.chmod(0)
    if os.access(where, os.R_OK):
        where.unlink()
        where.mkdir()  # root may read everything, but no folder
    assert cli.main(["status"]) in (1, 4)
    assert str(where) in capsys.readouterr().err
    if where.is_file():
        where.chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_themes_by_context_are_checked_and_overridden_by_a_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cockpit.cli.screen.screen import _context_themes

    monkeypatch.delenv("COCKPIT_THEME", raising=False)
    write('[context_themes]\n"prod-*" = "high-contrast"\n')
    args = argparse.Namespace(given={})
    assert _context_themes(args) == {"prod-*": "high-contrast"}
    assert _context_themes(argparse.Namespace(given={"theme": "ansi-16"})) == {}
    write('[context_themes]\nprod = "blue"\n')
    with pytest.raises(UsageError, match="no theme named 'blue'"):
        _context_themes(args)


WRONG = """profile = "gone"
theme = "mine"
colour = "blue"

[profiles.a]
local = true
theme = "blue"

[profiles.b]
read_only = "yes"
guard = { hang = "explode" }

[alerts]
straggler_percent = "many"
stragler = 3

[cost]
budget = -1

[mlflow]
uri = "http://mlflow:5000"
token_file = "/no/such"

[prometheus]
url = "ftp://x"

[grafana]
url = 3

[keys]
kill = "enter"
view_runs = "ctrl+r"

[context_themes]
"prod-*" = "blue"

[recorder]
enabled = 3

[guard]
hang = "reboot"

[drills]
max_share = "x"

[[hooks]]
command = ["notify-send"]

[[hooks]]
url = "https://hooks.example"
severity = "loud"
"""


def test_check_reports_every_error_with_its_line_and_fix(
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = write(WRONG)
    own = where.parent / "themes" / "mine.toml"
    own.parent.mkdir()
    own.write_text('[colors]\nsecondary = "#112233"\n')
    assert cli.main(["config", "check", "-o", "json"]) == 2
    rows = json.loads(capsys.readouterr().out)
    lines = WRONG.splitlines()
    assert {row["name"]: lines[row["line"] - 1] for row in rows} == {
        "profile": 'profile = "gone"',
        "theme": 'theme = "mine"',
        "colour": 'colour = "blue"',
        "profiles.a.theme": 'theme = "blue"',
        "profiles.b.read_only": 'read_only = "yes"',
        "profiles.b.guard.hang": 'guard = { hang = "explode" }',
        "alerts.straggler_percent": 'straggler_percent = "many"',
        "alerts.stragler": "stragler = 3",
        "cost.budget": "budget = -1",
        "mlflow.token_file": 'token_file = "/no/such"',
        "prometheus.url": 'url = "ftp://x"',
        "grafana.url": "url = 3",
        "keys.kill": 'kill = "enter"',
        "context_themes.prod-*": '"prod-*" = "blue"',
        "recorder.enabled": "enabled = 3",
        "guard.hang": 'hang = "reboot"',
        "drills.max_share": 'max_share = "x"',
        "hooks.1.severity": 'severity = "loud"',
    }
    assert [row["line"] for row in rows] == sorted(row["line"] for row in rows)
    assert all(row["what"] and row["fix"] for row in rows)
    assert cli.main(["config", "check"]) == 2
    shown = capsys.readouterr().out
    assert f"{where}:14: alerts.straggler_percent is not understood: 'many'.\n  It is a nu" in shown
    assert f"{where}:2: The theme mine cannot be used.\n  {own}: [colors] needs primary." in shown


def test_check_accepts_a_correct_file_and_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "check"]) == 0
    assert "there is no such file" in capsys.readouterr().out
    write(f'{CONFIG}\n[keys]\nkill = "D"\ndrill = "K"\n')  # each alone would be bound twice
    assert cli.main(["config", "check"]) == 0
    assert "no errors" in capsys.readouterr().out


def test_check_names_the_line_of_a_syntax_error(capsys: pytest.CaptureFixture[str]) -> None:
    where = write("theme = 'cockpit-light'\nprofile = \n")
    assert cli.main(["config", "check"]) == 2
    assert f"{where}:2:" in capsys.readouterr().err


def test_every_table_of_the_configuration_is_checked() -> None:
    assert config_check.PARSERS.keys() == set(file.TABLES)


def test_theme_that_cannot_be_loaded_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    own = file.path().parent / "themes" / "mine.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[colors]\nsecondary = "#112233"\n')
    assert cli.main(["themes", "-o", "json"]) == 0
    errors = {row["name"]: row["error"] for row in json.loads(capsys.readouterr().out)}
    assert errors["mine"] == "[colors] needs primary"
    assert errors["cockpit-dark"] == ""
    assert cli.main(["themes"]) == 0
    assert "ERROR" in capsys.readouterr().out
