"""The wheel: what it contains, what works with it alone, and the plugin for krew."""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from cockpit import __version__
from cockpit.cli.verbs import VERBS
from cockpit.config.bundled import PROJECT_FILES
from tests.wheel import ROOT, built, called, install
from training.jobs import JOBS

INSTALLED_LIMIT_BYTES = 75_000_000
"""Of the packages without pip and setuptools; measured: 65 MB."""
KEYS_OF_PLUGIN = {"apiVersion", "kind", "metadata", "spec"}
KEYS_OF_SPEC = {
    "version", "shortDescription", "description", "caveats", "homepage", "platforms",
}  # fmt: skip
KEYS_OF_PLATFORM = {"uri", "sha256", "selector", "files", "license", "bin"}
"""The fields of krew's types (krew/pkg/index/types.go, v0.4.3)."""
VERSIONS = range(11, 15)
"""The minor versions of Python 3 that are tested where the machine has them."""
LIGHT = ("ray", "torch", "kubernetes", "aiohttp", "pandas", "pydantic")
"""Packages that nothing of the base installation needs."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


def test_wheel_contains_themes_manifests_jobs_and_license(wheel: Path) -> None:
    assert wheel.name == f"cockpit-{__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    for theme in (ROOT / "themes").glob("*.toml"):
        assert f"cockpit/themes/{theme.name}" in names
    for name in listed("manifests"):
        assert name.startswith("manifests/krew/") or f"cockpit/{name}" in names
    for name in PROJECT_FILES:
        assert f"cockpit/project/{name}" in names
    for job in JOBS:
        assert f"{job.module.replace('.', '/')}.py" in names
    assert {"training/jobs/catalogue.json", "training/data/digits.npz"} <= names
    assert {"cockpit/py.typed", "training/py.typed", "cockpit/report/style.css"} <= names
    assert f"cockpit-{__version__}.dist-info/licenses/LICENSE" in names
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


def test_wheel_contains_each_file_of_both_packages(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert not [name for name in listed("cockpit", "training") if name not in names]


def listed(*folders: str) -> list[str]:
    """The files of the repository below these folders, those that are not committed yet too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [name for name in found.stdout.splitlines() if (ROOT / name).exists()]


def test_wheel_shows_and_writes_the_manifests_and_the_sources_of_images(
    wheel: Path, tmp_path: Path
) -> None:
    """The image of cockpit is built from what was written: here, its wheel."""
    unzipped, folder = tmp_path / "site-packages", tmp_path / "written"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unzipped)

    def cockpit(*argv: str) -> str:
        done = called([sys.executable, "-m", "cockpit", *argv], tmp_path, PYTHONPATH=str(unzipped))
        assert done.returncode == 0, done.stderr
        return done.stdout

    rows = json.loads(cockpit("manifests", "-o", "json"))
    assert {str(unzipped)} == {row["path"].partition("/cockpit/manifests/")[0] for row in rows}
    rbac = (ROOT / "manifests/kubernetes/base/rbac.yaml").read_text()
    assert cockpit("manifests", "show", "kubernetes/base/rbac.yaml") == rbac
    planned = cockpit("up", "--on", "kubernetes", "--overlay", "gpu", "--dry-run", "-o", "yaml")
    assert "nvidia.com/gpu" in planned
    assert str(unzipped) in cockpit("themes")

    assert f"Wrote {folder}." in cockpit("manifests", "write", str(folder))
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    expected = {
        name
        for name in listed("cockpit", "training", "themes", "manifests", *PROJECT_FILES)
        if not name.startswith("manifests/krew/")
    }
    assert written == expected
    assert os.access(folder / "manifests/image/build.sh", os.X_OK)
    again = runpy.run_path(str(ROOT / "manifests/krew/build.py"))["wheel"](tmp_path, folder)
    with zipfile.ZipFile(again) as ours, zipfile.ZipFile(wheel) as theirs:
        assert set(ours.namelist()) == set(theirs.namelist())


def test_base_installation_requires_no_heavy_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"cockpit-{__version__}.dist-info/METADATA").decode()
    required = HeaderParser().parsestr(text).get_all("Requires-Dist", [])
    base = {re.split(r"[^\w-]", line)[0] for line in required if "extra ==" not in line}
    assert not base & set(LIGHT)
    assert {"textual", "httpx", "msgspec"} <= base


def krew_plugin(wheel: Path, folder: Path) -> tuple[Mapping[str, Any], Path]:
    """The manifest and the archive that manifests/krew/build.py writes."""
    command = [sys.executable, str(ROOT / "manifests/krew/build.py"), "--wheel", str(wheel)]
    command += ["--uri", "https://example.com/cockpit.tar.gz", "--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load((folder / "cockpit.yaml").read_text()), folder / "cockpit.tar.gz"


def test_krew_manifest_passes_the_rules_of_krew(wheel: Path, tmp_path: Path) -> None:
    """As krew checks a manifest (krew/internal/index/validation/validate.go, v0.4.3)."""
    plugin, archive = krew_plugin(wheel, tmp_path)
    assert set(plugin) == KEYS_OF_PLUGIN
    assert plugin["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert plugin["kind"] == "Plugin"
    name, spec = plugin["metadata"]["name"], plugin["spec"]
    assert re.fullmatch(r"[\w-]+", name)
    assert f"{name}.yaml" == "cockpit.yaml", "krew expects the file to have the plugin's name"
    assert set(spec) <= KEYS_OF_SPEC
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[\w.]+)?(\+[\w.]+)?", spec["version"])
    assert spec["shortDescription"]
    assert "\n" not in spec["shortDescription"]
    assert spec["platforms"]
    with tarfile.open(archive) as tar:
        packed = tar.getnames()
    for platform in spec["platforms"]:
        assert set(platform) <= KEYS_OF_PLATFORM
        assert platform["uri"]
        assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
        assert platform["bin"] in packed
        assert set(platform["selector"]) <= {"matchLabels", "matchExpressions"}
        assert set(platform["selector"]["matchLabels"]) <= {"os", "arch"}
        assert platform["selector"]["matchLabels"]


def test_krew_archive_is_the_same_for_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    first, second = (krew_plugin(wheel, tmp_path / name)[1] for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        modes = {entry.name: entry.mode for entry in archive}
    assert modes["kubectl-cockpit"] == 0o755
    assert set(modes) == {"kubectl-cockpit", "constraints.txt", "LICENSE", wheel.name}


def test_krew_launcher_refuses_a_python_that_is_too_old(wheel: Path, tmp_path: Path) -> None:
    plugin = unpacked(wheel, tmp_path)
    (tmp_path / "old").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "old").chmod(0o755)
    done = called([str(plugin)], tmp_path, KUBECTL_COCKPIT_PYTHON=str(tmp_path / "old"))
    assert done.returncode == 3
    assert "needs Python 3.11 or newer" in done.stderr
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("during_installation", "code", "stdout", "left"),
    [
        # Another first call is faster.
        ('mkdir -p "$PLACE/bin" && cp "$OTHER" "$PLACE/bin/cockpit"', 0, "other\n", {"cockpit-0"}),
        ("kill -TERM $PPID", 130, "", set()),
    ],
    ids=["after-another-first-call", "after-an-interruption"],
)
def test_krew_launcher_leaves_no_second_environment(
    during_installation: str, code: int, stdout: str, left: set[str], tmp_path: Path
) -> None:
    plugin = tmp_path / "store/kubectl-cockpit"
    plugin.parent.mkdir()
    shutil.copy(ROOT / "manifests/krew/kubectl-cockpit", plugin)
    (plugin.parent / "cockpit-0.whl").touch()
    script(tmp_path / "other", "echo other")
    script(tmp_path / "pip", during_installation)
    # The launcher calls `python -c`, `python -m venv` and, in the environment, `python -m pip`.
    make_venv = f'mkdir -p "$3/bin" && cp {tmp_path}/pip "$3/bin/python"'
    script(tmp_path / "python", f'[ "$2" != venv ] || {{ {make_venv}; }}')
    place = tmp_path / "cache/cockpit/kubectl-plugin/cockpit-0"
    done = called(
        [str(plugin)],
        tmp_path,
        KUBECTL_COCKPIT_PYTHON=str(tmp_path / "python"),
        PLACE=str(place),
        OTHER=str(tmp_path / "other"),
    )
    assert (done.returncode, done.stdout) == (code, stdout), done.stderr
    assert {each.name for each in place.parent.iterdir()} == left


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def unpacked(wheel: Path, folder: Path) -> Path:
    """The launcher in a folder, as krew places it."""
    _, archive = krew_plugin(wheel, folder / "krew")
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "store", filter="data")
    return folder / "store/kubectl-cockpit"


def interpreters() -> dict[str, str]:
    """The Python of each supported version that is on this machine: in PATH, or of pyenv."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    if pyenv := shutil.which("pyenv"):
        folders += sorted((Path(pyenv).resolve().parents[1] / "versions").glob("*/bin"))
    found: dict[str, str] = {}
    for name in (f"python3.{minor}" for minor in VERSIONS):
        for path in (folder / name for folder in folders):
            # A shim of pyenv exists, but fails for a version that is not selected.
            if name not in found and os.access(path, os.X_OK):
                asked = subprocess.run(
                    [path, "-c", "import venv"], capture_output=True, check=False
                )
                if asked.returncode == 0:
                    found[name] = str(path)
    return found


# Nightly, since it installs packages (some 10 s of CPU for each Python, and minutes beside other
# tests); in the quick lane, the tests above check the contents and requirements of the wheel.
@pytest.mark.nightly
def test_wheel_works_alone_in_clean_environments(wheel: Path, tmp_path: Path) -> None:
    pythons = interpreters()
    assert f"python3.{sys.version_info.minor}" in pythons
    for name, python in pythons.items():
        place = tmp_path / name
        install(python, wheel, place)
        works_alone(place, tmp_path)


def works_alone(place: Path, home: Path) -> None:
    """The packages of this environment are few, and the verbs that need no Ray work."""
    installed = next(place.glob("lib/python3.*/site-packages"))
    ours = [
        path for path in installed.iterdir()
        if path.name.partition("-")[0] not in ("pip", "setuptools", "pkg_resources")
    ]  # fmt: skip
    files = (file for path in ours for file in (path, *path.rglob("*")) if file.is_file())
    assert sum(file.stat().st_size for file in files) < INSTALLED_LIMIT_BYTES
    assert not [name for name in LIGHT if (installed / name).exists()]

    def cockpit(*argv: str, program: str = "cockpit") -> subprocess.CompletedProcess[str]:
        return called([str(place / "bin" / program), *argv], home)

    assert cockpit("version").stdout.startswith(f"cockpit {__version__}\n")
    assert cockpit("version", program="kubectl-cockpit").returncode == 0
    helped = cockpit("--help")
    assert helped.returncode == 0
    assert all(f"cockpit {verb.name} " in helped.stdout for verb in VERBS)
    planned = cockpit("up", "--on", "kubernetes", "--dry-run", "-o", "yaml")
    kinds = {each["kind"] for each in yaml.safe_load_all(planned.stdout)}
    assert {"Namespace", "RayCluster", "Role"} <= kinds
    assert "kind: CronJob" in cockpit("manifests", "show", "drills/cronjob.yaml").stdout
    written = home / f"{place.name}-written"
    assert cockpit("manifests", "write", str(written)).returncode == 0
    assert os.access(written / "manifests/image/build.sh", os.X_OK)
    assert str(installed) in cockpit("themes").stdout
    assert "checkpointed" in cockpit("launch", "--list").stdout
    assert "pod-kill" in cockpit("drill", "list").stdout
    # Only the demo and local clusters need Ray.
    demo = cockpit("demo", "--headless", "--seconds", "5")
    assert demo.returncode == 1
    assert "pip install 'cockpit[train]'" in demo.stderr
    unreachable = cockpit("status", "--address", "http://127.0.0.1:9")
    assert unreachable.returncode == 3
    assert "defect" not in unreachable.stderr


# Nightly, since it installs packages; test_krew_manifest_passes_the_rules_of_krew and
# test_krew_launcher_refuses_a_python_that_is_too_old are in the quick lane.
@pytest.mark.nightly
def test_krew_launcher_installs_the_wheel_once(wheel: Path, tmp_path: Path) -> None:
    plugin = unpacked(wheel, tmp_path)
    link = tmp_path / "kubectl-cockpit"
    link.symlink_to(plugin)  # as krew does
    first = called([str(link), "version"], tmp_path, KUBECTL_COCKPIT_PYTHON=sys.executable)
    assert first.returncode == 0, first.stderr
    assert "Installing cockpit" in first.stderr
    assert first.stdout.startswith(f"cockpit {__version__}\n")
    again = called([str(link), "version"], tmp_path)
    assert (again.stdout, again.stderr) == (first.stdout, "")
    places = list((tmp_path / "cache/cockpit/kubectl-plugin").iterdir())
    assert [place.name for place in places] == [wheel.stem]
