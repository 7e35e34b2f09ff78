"""The images: what the build script gives to a builder, and the files that it builds from."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from sqlalchemy import make_url

from tests.manifests.kustomize import IMAGE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "manifests/image"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
BUILDER = """#!/bin/sh
for last; do :; done
printf '%s\\n' "$@" > "$RECORD/arguments"
(cd "$last" && find . -type f | sort) > "$RECORD/files"
(cd "$last" && find training -printf '%m %p\\n' | sort) > "$RECORD/modes"
cp "$last"/requirements*.txt "$RECORD" 2>/dev/null
exit 0
"""
"""Records its arguments and the build context, which is its last argument."""


@dataclass
class Builders:
    """Programs named as the builders are, first in PATH."""

    folder: Path

    def build(
        self, *arguments: str, installed: tuple[str, ...] = ("buildah",), clone: Path = ROOT
    ) -> Any:
        for name in ("docker", "podman", "buildah"):
            program = self.folder / name
            program.unlink(missing_ok=True)
            if name in installed:
                program.write_text(BUILDER)
                program.chmod(0o755)
        tools = ("bash", "sh", "sed", "git", "mktemp", "rm", "tar", "cp", "grep", "find", "sort",
                 "dirname", "env", "printf", "chmod")  # fmt: skip
        for tool in tools:
            link = self.folder / tool
            found = next(
                (Path(p, tool) for p in ("/usr/bin", "/bin") if Path(p, tool).exists()), None
            )
            if found is not None and not link.exists():
                link.symlink_to(found)
        return subprocess.run(
            [clone / "manifests/image/build.sh", *arguments],
            env={"PATH": str(self.folder), "RECORD": str(self.folder), "HOME": os.environ["HOME"]},
            capture_output=True,
            text=True,
            check=False,
        )

    def recorded(self, name: str) -> list[str]:
        return (self.folder / name).read_text().splitlines()

    def flag(self, name: str) -> list[str]:
        words = self.recorded("arguments")
        return [words[at + 1] for at, word in enumerate(words) if word == name]


@pytest.fixture
def builders(tmp_path: Path) -> Builders:
    return Builders(tmp_path)


def test_training_image_has_the_versions_and_the_tag_of_the_manifests(builders: Builders) -> None:
    done = builders.build()
    assert done.returncode == 0, done.stderr
    assert builders.recorded("arguments")[:3] == ["build", "--format", "docker"]
    assert builders.flag("--tag") == [IMAGE] == [f"cockpit-train:{VERSION}"]
    extras = PROJECT["optional-dependencies"]
    extra = extras["train"] + extras["postgres"]
    assert builders.recorded("requirements.txt") == extra
    torch = [line for line in extra if line.startswith("torch")]
    assert builders.recorded("requirements-torch.txt") == torch
    assert "VARIANT=gpu" in builders.flag("--build-arg")
    files = builders.recorded("files")
    assert {"./constraints.txt", "./sbom.py", "./training/jobs/checkpointed.py"} <= set(files)
    assert not [name for name in files if "__pycache__" in name or "/.git" in name]


def test_user_of_the_pods_reads_the_code_of_a_clone_that_only_its_owner_reads(
    builders: Builders, tmp_path: Path
) -> None:
    """As `git clone` makes one with the umask 077."""
    clone = tmp_path / "clone"
    for folder in ("cockpit", "themes", "training/jobs", "manifests"):
        (clone / folder).mkdir(parents=True)
    (clone / "training/jobs/hello.py").touch()
    shutil.copytree(FOLDER, clone / "manifests/image")
    for name in ("constraints.txt", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    for path in (clone, *clone.rglob("*")):
        path.chmod(path.stat().st_mode & 0o700)
    done = builders.build(clone=clone)
    assert done.returncode == 0, done.stderr
    assert builders.recorded("modes") == [
        "644 training/jobs/hello.py",
        "755 training",
        "755 training/jobs",
    ]


def test_training_image_has_the_driver_of_the_database_of_the_mlflow_variant(
    builders: Builders,
) -> None:
    """The address is that of the comment; SQLAlchemy names the driver that it imports."""
    variant = ROOT / "manifests/kubernetes/components/mlflow-postgres/kustomization.yaml"
    [address] = re.findall(r"postgresql\S*://\S+/mlflow", variant.read_text())
    driver = make_url(address.replace("HOST:5432", "db:5432")).get_dialect().driver
    assert builders.build().returncode == 0
    packages = [re.split(r"[\[<>=]", line)[0] for line in builders.recorded("requirements.txt")]
    assert driver in packages
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    assert {driver, f"{driver}-binary"} <= {line.partition("==")[0] for line in constraints}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Ray's own `ray`, which prints its arguments, and `python3`, which writes them to a file."""
    folder, output = tmp_path / "programs", tmp_path / "python"
    folder.mkdir()
    for name, text in {
        "ray": 'echo "Ray\'s own: $*"; echo "$COCKPIT_EARLY_IMPORTS"',
        "python3": f'echo "$*" > {output}.part; mv {output}.part {output}',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def ray(programs: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run the training image's `ray`: the exit code, and the lines that it printed."""
    done = subprocess.run(
        ["bash", "-c", '"$@"', "--", "ray", *arguments],
        env={"PATH": f"{FOLDER / 'bin'}:{programs}:/usr/bin:/bin", "TMPDIR": str(programs.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def test_health_check_of_the_init_container_needs_no_python(programs: Path) -> None:
    """Every other command is that of Ray."""
    assert "COPY manifests/image/bin /opt/cockpit/bin" in (FOLDER / "Dockerfile").read_text()
    with socket.create_server(("127.0.0.1", 0)) as gcs:
        address = f"localhost:{gcs.getsockname()[1]}"
        assert ray(programs, "health-check", "--address", address) == (0, [])
    assert ray(programs, "health-check", "--address", address) == (1, [])
    assert ray(programs, "health-check") == (0, ["Ray's own: health-check", ""])
    assert ray(programs, "start", "--head") == (0, ["Ray's own: start --head", ""])
    assert not (programs.parent / "python").exists()


@pytest.mark.parametrize("address", [("--address=head:6379",), ("--address", "head:6379")])
def test_imports_begin_before_ray_starts_on_a_pod_that_joins(
    programs: Path, address: tuple[str, ...]
) -> None:
    code, [own, directory] = ray(programs, "start", "--block", *address)
    assert (code, own) == (0, f"Ray's own: start --block {' '.join(address)}")
    assert Path(directory).stat().st_mode & 0o777 == 0o700
    output = programs.parent / "python"
    while not output.exists():
        time.sleep(0.02)
    assert output.read_text() == f"-m training.recovery.early_imports head:6379 {directory}\n"


def test_image_of_cockpit_has_the_tag_of_the_nightly_game_day(builders: Builders) -> None:
    assert builders.build("cockpit").returncode == 0
    documents = yaml.safe_load_all((ROOT / "manifests/drills/cronjob.yaml").read_text())
    [job] = [each for each in documents if each["kind"] == "CronJob"]
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert [each["image"] for each in pod["containers"]] == builders.flag("--tag")
    assert builders.flag("--tag") == [f"cockpit:{VERSION}"]
    files = builders.recorded("files")
    assert {"./cockpit/cli/main.py", "./manifests/kubernetes/rendered/cpu.yaml"} <= set(files)


def test_options_reach_the_builder_and_a_secret_only_as_a_file(builders: Builders) -> None:
    done = builders.build(
        *("train", "--builder", "podman", "--from", "debian-python:1", "--pip-conf", "/x/pip.conf"),
        *("--name", "registry.example.com/team/train", "--torch-index", "https://example.com/cpu"),
        *("--", "--no-cache"),
        installed=("docker", "podman"),
    )
    assert done.returncode == 0, done.stderr
    assert builders.recorded("arguments")[0] == "build"
    assert builders.flag("--tag") == [f"registry.example.com/team/train:{VERSION}"]
    assert {"BASE=debian-python:1", "VARIANT=cpu"} <= set(builders.flag("--build-arg"))
    assert builders.flag("--secret") == ["id=pip,src=/x/pip.conf"]
    assert "--no-cache" in builders.recorded("arguments")
    assert builders.recorded("requirements-torch.txt")[0] == "--index-url https://example.com/cpu"


def test_pip_installs_the_torch_of_the_index_in_the_pinned_version(
    builders: Builders, tmp_path: Path
) -> None:
    """A folder is the index, with empty wheels that have the local version of CPU builds."""
    constraints = (ROOT / "constraints.txt").read_text()
    index = tmp_path / "index"
    wanted = {}
    for name in ("torch", "torchvision"):
        [pinned] = re.findall(rf"^{name}==(\S+)$", constraints, re.M)
        wanted[name] = f"{pinned}+cpu"
        wheel(index / name, name, wanted[name])
    assert builders.build("--torch-index", index.as_uri()).returncode == 0
    report = tmp_path / "report.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "-q"),
            *("--ignore-installed", "--report", report, "-c", ROOT / "constraints.txt"),
            *("-r", tmp_path / "requirements-torch.txt"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    chosen = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    assert {each["name"]: each["version"] for each in chosen} == wanted


def wheel(folder: Path, name: str, version: str) -> None:
    folder.mkdir(parents=True)
    file = f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / file, "w") as made:
        made.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        made.writestr(f"{info}/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{quote(file)}">{file}</a>')


@pytest.mark.parametrize(
    ("arguments", "installed", "why"),
    [
        ((), (), "install docker, podman or buildah"),
        (("--builder", "podman"), ("docker",), "podman is not installed"),
        (("--builder", "make"), (), "No builder"),
        (("--size", "1"), ("docker",), "no option --size"),
        (("--torch-index", "https://u:s3cret@example.com/cpu"), ("docker",), "use --pip-conf"),
    ],
)
def test_wrong_option_or_missing_builder_is_an_error(
    arguments: tuple[str, ...], installed: tuple[str, ...], why: str, builders: Builders
) -> None:
    done = builders.build(*arguments, installed=installed)
    assert done.returncode == 2
    assert why in done.stderr
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize("name", ["Dockerfile", "cockpit.Dockerfile"])
def test_image_is_of_python_311_runs_as_user_1000_and_has_labels_and_no_secret(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert text.count("ARG BASE=python:3.11") == 1
    assert re.findall(r"^USER (.+)$", text, re.M) == ["1000:1000"]
    assert "--gid 1000" in text
    for label in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{label}=" in text
    variables = re.findall(r"^(?:ARG|ENV) (\w+)", text, re.M)
    assert not [each for each in variables if re.search("TOKEN|PASS|SECRET|KEY|INDEX", each)]
    pips = re.findall(r"pip install .*", text)
    assert pips
    assert all("-c " in each and "constraints.txt" in each for each in pips)


def test_sbom_lists_each_distribution_once() -> None:
    command = [sys.executable, str(FOLDER / "sbom.py"), "cockpit-train"]
    made = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert (made["spdxVersion"], made["name"]) == ("SPDX-2.3", "cockpit-train")
    packages = {each["SPDXID"]: each for each in made["packages"]}
    assert len(packages) == len(made["packages"])
    locators = {each["externalRefs"][0]["referenceLocator"] for each in packages.values()}
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    assert f"pkg:pypi/pyyaml@{pins['PyYAML']}" in locators
    assert {each["relatedSpdxElement"] for each in made["relationships"]} == packages.keys()
