"""Which files of a folder are uploaded with a job."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from cockpit.cli import main as cli
from cockpit.cli.options import connect
from cockpit.launch.folder import ASK_ABOVE_BYTES, Folder, Why, folder, is_secret
from cockpit.launch.package import package_directory, package_together, package_training
from cockpit.launch.rayjob import RayJobOptions, rayjob_spec
from cockpit.launch.submission import script_spec
from cockpit.model.cluster import WorkerGroup
from cockpit.model.error import UsageError
from cockpit.model.event import GroupsListed
from tests.simulated_backend import ScriptedBackend

SECRET = b"s3same-0pen"


def write(root: Path, *names: str, text: bytes = b"x") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def names(chosen: Folder) -> list[str]:
    return [file.name for file in chosen.files]


def left_out(chosen: Folder, why: Why) -> list[str]:
    return [item.name for item in chosen.left_out if item.why is why]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    write(root, "train.py", "deep/model.py")
    return root


def test_ignore_files_are_honoured_as_git_does(code: Path) -> None:
    write(code, "data/a.bin", "deep/data/b.bin", "x.ckpt", "deep/keep.ckpt", "deep/y.ckpt", "z.log")
    write(code, "deep/only.txt", "only.txt", "notes.md", ".gitignore", "deep/.gitignore")
    (code / ".gitignore").write_text("# weights\ndata/\n*.ckpt\n/only.txt\n")
    (code / "deep/.gitignore").write_bytes(b"\xef\xbb\xbf!keep.ckpt\r\n")
    (code / ".rayignore").write_text("*.log\nnotes.*\n")
    chosen = folder(code)
    assert names(chosen) == [
        ".gitignore", ".rayignore", "train.py",
        "deep/.gitignore", "deep/keep.ckpt", "deep/model.py", "deep/only.txt",
    ]  # fmt: skip
    assert left_out(chosen, Why.IGNORED) == [
        "data/", "notes.md", "only.txt", "x.ckpt", "z.log", "deep/data/", "deep/y.ckpt",
    ]  # fmt: skip
    assert names(folder(code, ignore_files=False))[-1] == "deep/data/b.bin"


def test_file_in_an_ignored_folder_is_not_included_again(code: Path) -> None:
    write(code, "data/a.bin")
    (code / ".gitignore").write_text("data/\n!data/a.bin\n")
    assert "data/a.bin" not in names(folder(code))


def test_ignore_files_of_the_repository_above_count(code: Path) -> None:
    (code.parent / ".git").mkdir()
    write(code, "a.ckpt")
    (code.parent / ".gitignore").write_text("*.ckpt\n")
    assert names(folder(code)) == ["train.py", "deep/model.py"]
    # A folder that the repository ignores can still be launched.
    (code.parent / ".gitignore").write_text("code/\n*.ckpt\n")
    assert names(folder(code)) == ["a.ckpt", "train.py", "deep/model.py"]


def test_rays_variable_switches_gitignore_off(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(code, "a.ckpt", "b.log")
    (code / ".gitignore").write_text("*.ckpt\n")
    (code / ".rayignore").write_text("*.log\n")
    monkeypatch.setenv("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")
    assert "a.ckpt" in names(folder(code))
    assert "b.log" not in names(folder(code))


def test_ignore_file_that_is_not_understood_is_named(code: Path) -> None:
    (code / ".gitignore").write_text("ok\n!\n")
    with pytest.raises(UsageError, match=r"\.gitignore is not understood"):
        folder(code)
    (code / ".gitignore").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"\.gitignore cannot be read"):
        folder(code)


HELD_SECRETS = (
    ".env", ".env.local", "prod.env", ".ENV", ".envrc", ".aws/credentials", ".ssh/known_hosts",
    ".netrc", ".kube/config", ".git-credentials", ".config/gcloud/token", ".docker/config.json",
    "tls.pem", "server.key", "id_rsa", "id_ed25519.bak", "cert.p12", "kubeconfig",
    ".ray/auth_token", "a.kubeconfig", ".bash_history", "service-account-1.json", "secrets.toml",
    ".pypirc", "client_secret_1.json", "secret.yaml", "credentials.json", "gcp-credentials.json",
    ".kaggle/kaggle.json", "terraform.tfstate.backup", "prod.tfvars", "aws/credentials",
    ".env-prod", ".secrets/db", ".secret", ".token", ".hf_token", "hf_token", "api-token.txt",
    "rclone.conf", ".cargo/config", ".password-store/x", "kubeconfig.yaml",
    ".env~", "#.env#", "server.key.old", "credentials.json.bak",
)  # fmt: skip


@pytest.mark.parametrize("name", HELD_SECRETS)
def test_file_that_usually_holds_credentials_is_never_uploaded(code: Path, name: str) -> None:
    write(code, name, f"deep/{name}", text=SECRET)
    (code / ".rayignore").write_text("!*\n")
    chosen = folder(code)
    assert names(chosen) == [".rayignore", "train.py", "deep/model.py"]
    assert len(left_out(chosen, Why.SECRET)) == 2
    package = package_directory(code)
    with zipfile.ZipFile(package.path) as archive:
        assert not [each for each in archive.namelist() if SECRET in archive.read(each)]


@pytest.mark.parametrize(
    "name",
    [
        ".env.example",
        "train.py~",
        "environment.py",
        "keys.py",
        "env",
        "monkey.py",
        "id_map.json",
        "credentials",
        "secrets.py",
        "tokens",
        "tokens.txt",
        "token.py",
    ],
)
def test_file_with_a_similar_name_is_uploaded(name: str) -> None:
    assert not is_secret(name)


def test_links_that_leave_the_folder_or_lead_to_a_secret_are_not_followed(code: Path) -> None:
    outside = code.parent / "outside"
    write(outside, "token", text=SECRET)
    write(code, ".env", ".git/config", "venv/x", text=SECRET)
    (code / "away").symlink_to(outside / "token")
    (code / "up").symlink_to("../outside/token")
    (code / "chain").symlink_to("up")
    (code / "folder").symlink_to(outside)
    (code / "inner").symlink_to("deep")
    (code / "settings").symlink_to(".env")
    (code / "repository").symlink_to(".git/config")
    (code / "nothing").symlink_to("missing")
    (code / "same").symlink_to("deep/model.py")
    chosen = folder(code)
    assert names(chosen) == ["same", "train.py", "deep/model.py"]
    assert sorted(left_out(chosen, Why.LINK)) == ["away", "chain", "folder/", "inner/", "up"]
    assert left_out(chosen, Why.SECRET) == [".env", "repository", "settings"]


def test_links_to_files_that_are_ignored_are_not_followed(code: Path) -> None:
    write(code, "private/rows.csv", "z/own/rows.csv", "z/b.log", text=SECRET)
    (code / ".gitignore").write_text("private/\n*.log\n")
    (code / "z/.gitignore").write_text("own\n")
    (code / "a").symlink_to("private/rows.csv")
    (code / "b").symlink_to("z/own/rows.csv")
    (code / "c").symlink_to("z/b.log")
    chosen = folder(code)
    assert names(chosen) == [".gitignore", "train.py", "deep/model.py", "z/.gitignore"]
    assert {"a", "b", "c"} < set(left_out(chosen, Why.IGNORED))
    assert "a" in names(folder(code, ignore_files=False))


def test_launching_through_a_link_to_the_folder_uploads_the_same(code: Path) -> None:
    link = code.parent / "link"
    link.symlink_to(code)
    assert names(folder(link)) == names(folder(code))
    assert package_directory(link).name == package_directory(code).name


def test_pipes_and_sockets_are_not_read(code: Path) -> None:
    os.mkfifo(code / "pipe")
    assert names(folder(code)) == ["train.py", "deep/model.py"]


def test_a_name_that_no_package_can_have_is_reported_and_may_be_excluded(code: Path) -> None:
    write(code, os.fsdecode(b"data/caf\xe9.csv"))
    with pytest.raises(UsageError, match="is not UTF-8"):
        package_directory(code)
    (code / ".rayignore").write_text("data/\n")
    assert names(folder(code)) == [".rayignore", "train.py", "deep/model.py"]


def test_links_in_a_circle_are_no_files(code: Path) -> None:
    (code / "a").symlink_to("b")
    (code / "b").symlink_to("a")
    assert names(folder(code)) == ["train.py", "deep/model.py"]


def test_package_for_a_cluster_of_its_own_leaves_out_the_same(code: Path) -> None:
    write(code, ".env", "data/x", text=SECRET)
    (code / ".gitignore").write_text("data/\n")
    spec = script_spec(("python", "train.py"), code)
    made = rayjob_spec(spec, RayJobOptions(own_cluster=True))
    path = code.parent / "own.zip"
    path.write_bytes(made.package)
    with zipfile.ZipFile(path) as archive:
        held = [name.partition("/")[2] for name in archive.namelist()]
        assert not [each for each in archive.namelist() if SECRET in archive.read(each)]
    assert "train.py" in held
    assert "training/telemetry/callback.py" in held
    assert package_together(folder(code), with_training=True).read()


def test_training_package_is_whole_wherever_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment is usually in the .gitignore of the repository around it."""
    place = tmp_path / ".venv/site-packages/training"
    write(place, "telemetry/callback.py")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text(".venv/\n*.py\n")
    monkeypatch.setattr("cockpit.launch.package.training_directory", lambda: place)
    with zipfile.ZipFile(package_training().path) as archive:
        assert archive.namelist() == ["training/telemetry/callback.py"]


def launched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: str
) -> tuple[int, str]:
    """Exit code and standard error of a launch from the current folder."""
    groups = (WorkerGroup("cpu", 1, 1, 0, 4),)  # a dry run waits for them
    scripted = ScriptedBackend((GroupsListed(at_s=0.0, source="backend", groups=groups),))
    monkeypatch.setattr(connect, "backend", lambda args, **how: scripted)
    code = cli.main(["launch", "--no-preflight", *argv, "--", "python", "train.py"])
    return code, capsys.readouterr().err


def test_dry_run_lists_what_is_uploaded_and_what_is_not(
    code: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(code, ".env", "a.log")
    (code / ".gitignore").write_text("*.log\n")
    monkeypatch.chdir(code)
    done, said = launched(monkeypatch, capsys, "--dry-run")
    assert done == 0
    lines = said.splitlines()
    assert any(line.startswith("Upload 3 files (8 B) of ") for line in lines)
    assert "Left out 1 (may hold credentials): .env" in lines
    assert "  1 B  deep/model.py" in lines
    assert "  not uploaded (.gitignore or .rayignore): a.log" in lines
    assert "ConfigMap" not in said
    _, said = launched(monkeypatch, capsys, "--dry-run", "--via", "rayjob", "--own-cluster")
    assert "into the ConfigMap train-" in said


def test_folder_above_ten_megabytes_is_confirmed_first(
    code: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code / "weights.bin").touch()
    monkeypatch.chdir(code)
    os.truncate(code / "weights.bin", ASK_ABOVE_BYTES - 100)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    done, said = launched(monkeypatch, capsys)
    assert (done, "more than" in said) == (3, False)  # nothing answers there
    os.truncate(code / "weights.bin", ASK_ABOVE_BYTES + 1)
    done, said = launched(monkeypatch, capsys)
    assert done == 2
    assert "That is more than 10 MB" in said
    assert "Add --yes" in said
    done, said = launched(monkeypatch, capsys, "--yes")
    assert done == 3
