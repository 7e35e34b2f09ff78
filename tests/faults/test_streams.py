"""The effects of the shell, the locale and the machine on streams and directories."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.command import COCKPIT, Said, run

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale that Python does not convert to UTF-8."""

NOWHERE: dict[str, str | None] = {"HOME": None, "XDG_STATE_HOME": None}


def shell(line: str, **env: str) -> Said:
    """A line of bash, in which "$@" is cockpit."""
    return run(command=("bash", "-c", line, "bash", *COCKPIT), env=env)


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- <&- 2>&-"])
def test_a_closed_stream_is_no_defect(closed: str) -> None:
    done = shell(f'"$@" local status {closed}')
    assert (done.code, done.err) == (0, "")
    done = shell(f'"$@" local up ../evil {closed}')
    assert done.code == 2
    assert "Traceback" not in done.err


def test_descriptor_of_a_closed_stream_is_not_reused_for_a_file(tmp_path: Path) -> None:
    """Otherwise the audit log, for example, would be opened as number 1 and printed into."""
    done = shell('"$@" --help >&- 2>&-', XDG_STATE_HOME=str(tmp_path))
    assert done.code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["--help", "keys", "local status"])
def test_a_full_disk_behind_a_redirection_is_a_sentence(verb: str) -> None:
    done = shell(f'"$@" {verb} >/dev/full')
    done.is_a_sentence(1, "cannot be written", "No space left")


def test_the_screen_in_a_pipe_reports_what_to_use_instead() -> None:
    for line in ('"$@" | cat; exit ${PIPESTATUS[0]}', '"$@" demo </dev/null'):
        shell(line).is_a_sentence(2, "needs a terminal", "--headless")


def test_a_verb_needs_no_more_than_a_dumb_terminal() -> None:
    shell('TERM=dumb "$@" status').is_a_sentence(3, "No cluster was found", "cockpit local up")


def test_a_locale_without_our_characters_gets_plain_ones() -> None:
    done = run("local", "up", "../evil", env=ASCII)
    done.is_a_sentence(2, "of a-z, 0-9")
    for argv in (["--help"], ["keys"], ["launch", "--list"], ["doctor"], ["themes"]):
        done = run(*argv, env=ASCII)
        assert done.code in (0, 1), done.err
        assert done.err == ""
        assert done.out.isascii()


def test_without_home_the_list_of_users_is_asked() -> None:
    done = run("local", "status", env=NOWHERE)
    assert done.code == 0, done.err


def test_user_without_a_passwd_entry_is_asked_to_set_home() -> None:
    # The interpreter's modules are read as the current user: only the look-up is another user's.
    script = "import os, sys; os.getuid = lambda: 54321; from cockpit.cli.main import main; "
    script += "sys.exit(main(['local', 'status']))"
    done = run(command=(sys.executable, "-c", script), env=NOWHERE)
    done.is_a_sentence(1, "no home directory", "XDG_STATE_HOME")


def test_a_state_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    for argv in (["local", "up", "x"], ["demo", "--headless"]):
        done = run(*argv, env={"XDG_STATE_HOME": str(tmp_path / "state")})
        done.is_a_sentence(1, str(tmp_path / "state"), "Not a directory", "XDG_STATE_HOME")


def test_a_state_directory_that_cannot_be_written_is_not_allowed(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    # root may write anywhere, unless that capability is taken from it
    less = ("setpriv", "--bounding-set=-dac_override") if os.getuid() == 0 else ()
    try:
        for argv in (["local", "up", "x"], ["demo", "--headless"]):
            done = run(*argv, command=(*less, *COCKPIT), env={"XDG_STATE_HOME": str(tmp_path)})
            done.is_a_sentence(4, str(tmp_path), "Permission denied")
    finally:
        tmp_path.chmod(0o700)


def test_no_room_for_the_state_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    """`ulimit -f 0` simulates a full disk: no file may grow by a byte."""
    for argv in ("local up x", "demo --headless --name x"):
        done = shell(f'ulimit -f 0; "$@" {argv}', XDG_STATE_HOME=str(tmp_path))
        # The first line can report that the audit log lacks the failed change.
        done.is_a_sentence(1, "cannot be written", "spec.json", plan=1)
    [left] = (tmp_path / "cockpit").rglob("*")
    assert (left.name, left.stat().st_size) == ("audit.jsonl", 0), "it is opened before the start"


def test_without_ray_it_is_reported_what_to_install(tmp_path: Path) -> None:
    """A Python with everything that this one has, but Ray."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    for package in Path(pytest.__file__).parents[1].iterdir():
        if package.name != "ray" and not (site / package.name).exists():
            (site / package.name).symlink_to(package)
    (site / "here.pth").write_text(str(Path(__file__).parents[2]))
    command = (str(tmp_path / "venv" / "bin" / "python"), "-m", "cockpit")
    for argv in (["local", "up"], ["demo", "--headless"]):
        done = run(*argv, command=command)
        done.is_a_sentence(1, "Ray is not installed", "pip install 'cockpit[train]'")
    assert "ray" in run("doctor", command=command).out
