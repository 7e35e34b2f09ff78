"""The environment of a job, from flags and files, as Ray's runtime environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpit.launch import environment
from cockpit.launch.environment import JobEnvironment, packages, read_file, size_bytes, variables
from cockpit.model.error import UsageError

ALIASES = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
MULTIPLIED = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *ALIASES])
"""9**9 values in 500 bytes."""


def test_variables_come_from_flags_files_and_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "job.env"
    file.write_text("# of the team\nexport NCCL_DEBUG=INFO\nNAME='two words'\nEMPTY=\n")
    monkeypatch.setenv("HOST_TOKEN", "abc")
    found = variables(["NCCL_DEBUG=WARN", "HOST_TOKEN", "URL=a=b"], [str(file)])
    assert found == {
        "NCCL_DEBUG": "WARN",
        "NAME": "two words",
        "EMPTY": "",
        "HOST_TOKEN": "abc",
        "URL": "a=b",
    }


def test_a_line_that_is_not_a_variable_is_reported_without_its_text(tmp_path: Path) -> None:
    file = tmp_path / "job.env"
    file.write_text("A=1\nhunter2\n")
    with pytest.raises(UsageError) as raised:
        variables([], [str(file)])
    assert raised.value.what == f"Line 2 of {file} is not KEY=VALUE."


@pytest.mark.parametrize(
    ("pair", "words"),
    [("NOT_SET_HERE", "has no value"), ("a b=1", "not the name"), ("=1", "not the name")],
)
def test_a_wrong_variable_is_refused(pair: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        variables([pair], [])


def test_requirements_files_are_read_here(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("# ours\ntorchmetrics==1.9.0  # metrics\n\neinops>=0.8\n")
    assert packages(["rich"], [str(file)]) == ["rich", "torchmetrics==1.9.0", "einops>=0.8"]


@pytest.mark.parametrize("line", ["-r other.txt", "-e .", "./wheel.whl", "--constraint c.txt"])
def test_a_requirement_that_only_this_host_has_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"rich\n{line}\n")
    with pytest.raises(UsageError, match=r"Line 2 of .* names a file of this host"):
        packages((), [str(file)])


def test_a_file_is_a_runtime_environment_as_ray_has_it(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("einops\n")
    file = tmp_path / "env.yaml"
    file.write_text(
        f"working_dir: s3://bucket/code.zip\npy_modules: [s3://bucket/lib.zip]\n"
        f"env_vars: {{A: '1'}}\npip: {{packages: {tmp_path}/requirements.txt, pip_check: false}}\n"
        "config: {setup_timeout_seconds: 60}\n"
    )
    assert read_file(str(file)) == JobEnvironment(
        {"A": "1"},
        "s3://bucket/code.zip",
        ("s3://bucket/lib.zip",),
        {
            "pip": {"packages": ["einops"], "pip_check": False},
            "config": {"setup_timeout_seconds": 60},
        },
    )
    file.write_text(json.dumps({"conda": {"dependencies": ["python"]}}))
    assert read_file(str(file)).others == {"conda": {"dependencies": ["python"]}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is not YAML or JSON"),
        ("- a", "is not a runtime environment"),
        ("env_vars: {A: 1}", "not a map of strings"),
        ("py_modules: [lib]", "not a list of URIs"),
        ("excludes: [data]", "is not read"),
        ("working_dir: [a]", "not a folder or a URI"),
        ("pip: 7", "is not a list of packages"),
        ("{pip: [a], uv: [b]}", "cannot be combined"),
        ("env_vars: " + "[" * 20_000 + "]" * 20_000, "is not a runtime environment"),
        (MULTIPLIED, "is not a runtime environment"),
        ("config: &a [*a]", "is not a runtime environment"),
        (f"env_vars: {{A: {'9' * 5_000}}}", "is not YAML or JSON"),
        ("env_vars: {A: 2020-99-99}", "is not YAML or JSON"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "env.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_file(str(file))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("4Gi", 4 << 30),
        ("500M", 500_000_000),
        ("1000", 1000),
        ("1.5KiB", 1536),
        ("2GB", 2 * 10**9),
        ("500k", 500_000),
    ],
)
def test_sizes_are_written_as_kubernetes_has_them(text: str, wanted: int) -> None:
    assert size_bytes(text, "--driver-memory") == wanted


def test_a_size_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a size"):
        size_bytes("lots", "--driver-memory")


@pytest.mark.parametrize("pair", ["slot", "slot=x", "slot=0", "CPU=1"])
def test_a_wrong_resource_of_the_driver_is_refused(pair: str) -> None:
    with pytest.raises(UsageError):
        environment.driver_resources([pair])
