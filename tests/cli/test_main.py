"""The output of the command line without any cluster."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit import __version__
from cockpit.cli import main as cli
from cockpit.cli.verbs import VERBS
from cockpit.model.error import ExitCode


def run(*argv: str) -> int:
    return cli.main(list(argv))


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.strip()


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    text = capsys.readouterr().out
    assert all(f"cockpit {verb.name} " in text for verb in VERBS)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(verb, "--help")
    assert ended.value.code == 0
    assert f"cockpit {verb}" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--version")
    assert capsys.readouterr().out.strip() == f"cockpit {__version__}"


def test_a_verb_that_does_not_exist_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("stauts") == 2
    assert "Did you mean: cockpit status" in said(capsys)
    assert run("xyzzy") == 2
    assert "cockpit --help" in said(capsys)


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["status"], 3, "No cluster was found"),
        (["--local", "--cluster", "nope", "pods"], 3, "no local cluster 'nope'"),
        (["pods", "--local", "--cluster", "nope"], 3, "no local cluster 'nope'"),
        (["local", "down"], 3, "no local cluster to delete"),
        (["local", "down", "nope"], 3, "no local cluster 'nope'"),
        (["local", "status", "nope"], 3, "no local cluster 'nope'"),
        (["local", "up", "../evil"], 2, "'../evil'"),
        (["local", "up", "x", "--group", "gpu"], 2, "not NAME=N"),
        (["local", "up", "x", "--workers", "-1"], 2, "--workers must be 0 or more"),
        (["local", "sideways"], 2, "invalid choice"),
        (["status", "-o", "xml"], 2, "no format 'xml'"),
        (["status", "--nonsense"], 2, "unrecognized arguments"),
        (["launch"], 2, "needs a job or a command"),
        (["launch", "nosuchjob"], 2, "nosuchjob"),
        (["launch", "checkpointed", "--set", "epochs"], 2, "not KEY=VALUE"),
        (["launch", "checkpointed", "--set", "epoch=3"], 2, "epoch"),
        (["launch", "checkpointed", "--set", "epochs=many"], 2, "epochs"),
        (["logs", "x", "--grep", "("], 2, "regular expression"),
        (["demo", "--workers", "0", "--headless"], 2, "at least 1"),
        (["--read-only", "demo", "--headless"], 4, "read-only"),
        (["local", "up", "--read-only"], 4, "read-only"),
        (["demo"], 2, "needs a terminal"),
        (["exec", "a", "rm", "--", "ls"], 2, "unrecognized arguments: rm"),
        ([], 2, "needs a terminal"),
    ],
)
def test_bad_input_gets_a_sentence_and_the_right_code(
    argv: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*argv) == code
    text = said(capsys)
    assert words in text
    assert len(text.splitlines()) <= 3
    assert "Traceback" not in text


def test_a_defect_is_one_sentence_and_with_debug_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("cockpit.cli.read.config.run", broken)
    assert run("keys") == 1
    assert "ZeroDivisionError: boom" in said(capsys)
    with pytest.raises(ZeroDivisionError):
        run("--debug", "keys")
    monkeypatch.setattr("cockpit.cli.change.exec.run", broken)
    assert run("exec", "a-pod", "--", "app", "--debug") == 1, "the command's flag, not cockpit's"


def test_interrupting_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cockpit.cli.read.config.run", interrupted)
    assert run("keys") == 130
    assert said(capsys) == "Interrupted."


def test_a_reader_that_has_enough_is_no_error() -> None:
    script = f"{sys.executable} -m cockpit --help | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_the_catalogue_is_an_array_of_named_objects(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("launch", "--list", "-o", "json") == 0
    jobs = json.loads(capsys.readouterr().out)
    assert "checkpointed" in [job["name"] for job in jobs]
    assert run("launch", "--list") == 0
    assert "checkpointed" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["keys", "themes"])
def test_every_list_has_json_output(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(verb, "-o", "jsonl") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(row["name"] for row in rows)
    assert run(verb) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 1


def test_no_local_cluster_is_a_normal_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("local", "status") == 0
    assert capsys.readouterr().out == "No local cluster.\n"
    assert run("local", "status", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_dry_run_starts_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("local", "up", "x", "--group", "gpu=2", "--dry-run") == 0
    assert "2 gpu" in said(capsys)
    assert run("local", "status", "x") == 3


def test_the_environment_chooses_what_no_flag_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COCKPIT_CLUSTER", "from-env")
    assert run("pods") == 3
    assert "from-env" in said(capsys)
    assert run("pods", "--cluster", "from-flag") == 3
    assert "from-flag" in said(capsys)
    monkeypatch.setenv("COCKPIT_READ_ONLY", "1")
    assert run("local", "up") == 4


def test_a_terminal_that_cannot_move_its_cursor_gets_no_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cockpit.cli.output import streams
    from cockpit.model.error import UsageError

    with pytest.raises(UsageError, match="input or output is not one"):
        streams.require_terminal("Without one: …")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    streams.require_terminal("Without one: …")
    monkeypatch.setenv("TERM", "dumb")
    with pytest.raises(UsageError, match="TERM is dumb") as caught:
        streams.require_terminal("Without one: …")
    assert caught.value.todo == "Without one: …"


def test_help_of_a_verb_begins_with_what_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("kill", "--help")
    usage = capsys.readouterr().out.partition("\n\n")[0]
    assert usage.startswith("usage: cockpit kill ")
    assert "POD|RANK" in usage
    assert "--grace S" in usage
    assert "--kubeconfig" not in usage, "the flags of every verb stand below"
    assert usage.endswith("[cluster options] [global options]")


def test_usage_fits_the_screen_and_marks_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for verb in VERBS:
        with pytest.raises(SystemExit):
            run(verb.name, "--help")
        usage = capsys.readouterr().out.partition("\n\n")[0]
        assert max(map(len, usage.splitlines())) <= 80, usage
        assert "[cluster options] [global options]" in usage


def test_doctor_explains_how_to_fix_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cockpit.cli.cluster.doctor.NEEDED_SHM_BYTES", 1 << 60)
    assert run("doctor", "-o", "json") == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert not checks["shared memory"]["ok"]
    assert "Free" in checks["shared memory"]["fix"]
    assert checks["python"]["ok"]
    assert checks["python"]["fix"] == "", "a passed check needs no fix"


@pytest.mark.parametrize("argv", [["doctor"], ["doctor", "--context", "prod"]])
def test_doctor_without_ray_reports_the_missing_kubeconfig(
    argv: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr("cockpit.cli.cluster.doctor.find_spec", lambda name: None)
    assert run(*argv, "-o", "json") == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert str(tmp_path) in checks["kubeconfig"]["found"]
    assert "--kubeconfig" in checks["kubeconfig"]["fix"]
    assert ("ray" in checks) == (len(argv) == 1), "only a local cluster needs Ray here"


def test_a_change_asks_and_no_is_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import argparse

    from cockpit.cli.options.confirm import confirmed
    from cockpit.model.error import NotAllowedError, UsageError

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    args = argparse.Namespace(yes=False, dry_run=False, read_only=False, verb="kill", i_mean=None)
    for answer, wanted in (("y\n", True), ("\n", False), ("no\n", False), ("", False)):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        assert confirmed(args, ["Kill it."]) is wanted
        assert "Kill it." in said(capsys)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError):
        confirmed(args, ["Kill it."])
    args.yes = True
    assert confirmed(args, ["Kill it."])
    args.read_only = True
    with pytest.raises(NotAllowedError):
        confirmed(args, ["Kill it."])
    args.dry_run = True
    assert not confirmed(args, ["Kill it."])


def test_a_command_after_dashes_may_follow_flags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, list[str], str]] = []

    def remember(args: argparse.Namespace) -> int:
        asked.append((args.pod, args.command, args.where.namespace))
        return 0

    monkeypatch.setattr("cockpit.cli.change.exec.run", remember)
    assert run("exec", "a-pod", "-n", "ml", "--", "ls", "-n", "x") == 0
    assert asked == [("a-pod", ["ls", "-n", "x"], "ml")]


def test_a_script_may_have_flags_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, list[str], bool]] = []

    def remember(args: argparse.Namespace) -> int:
        asked.append((args.job, args.command, args.follow))
        return 0

    monkeypatch.setattr("cockpit.cli.change.launch.run", remember)
    assert run("launch", "--", "python", "train.py", "--lr", "0.1", "--help") == 0
    assert run("--local", "launch", "-f", "--", "python", "train.py", "-f") == 0
    assert run("launch", "--", "checkpointed") == 0, "a command, not the bundled job"
    assert asked == [
        (None, ["python", "train.py", "--lr", "0.1", "--help"], False),
        (None, ["python", "train.py", "-f"], True),
        (None, ["checkpointed"], False),
    ]


def test_a_kubeconfig_that_is_not_there_is_reported_where_clusters_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    assert run("clusters") == ExitCode.UNREACHABLE
    assert "There is no kubeconfig." in said(capsys)
