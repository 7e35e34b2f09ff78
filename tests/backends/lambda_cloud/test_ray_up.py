"""The configuration for `ray up`."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from cockpit.backends.lambda_cloud import ray_up
from cockpit.backends.ssh.description import parse
from cockpit.cli.main import main

EXAMPLES = Path(__file__).parents[3] / "manifests/vm"
RAY = find_spec("ray")


@pytest.mark.skipif(RAY is None, reason="needs the extra train")
def test_configuration_fits_rays_own_schema(capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema")  # a dependency of Ray
    assert RAY is not None
    assert RAY.origin is not None
    schema = json.loads((Path(RAY.origin).parent / "autoscaler/ray-schema.json").read_text())
    assert main(["plan", "--on", "hosts", str(EXAMPLES / "hosts.toml"), "-o", "ray-up"]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    jsonschema.validate(made, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**made, "unknown": 1}, schema)
    # The spare is left out, as `up` does at first.
    assert made["provider"]["worker_ips"] == ["10.0.0.11"]
    assert made["auth"] == {"ssh_user": "ubuntu"}
    stop, start = made["head_start_ray_commands"]
    assert stop == "/opt/ray/bin/ray stop"
    assert start.startswith("/opt/ray/bin/ray start --head ")


def test_ray_of_a_virtual_environment_is_added_to_the_path_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ray down` runs `ray stop` on the head, and does not fail if there is none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    venv = tmp_path / "a venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/ray").write_text("#!/bin/sh\necho found\n")
    (venv / "bin/ray").chmod(0o755)
    text = f'venv = "{venv}"\n[[host]]\nname = "head"\naddress = "10.0.0.1"\nhead = true\n'
    made = yaml.safe_load(ray_up.text(parse(text, tmp_path / "lab.toml")))
    (command,) = made["head_setup_commands"]
    for _ in range(2):
        subprocess.run(["sh", "-c", command], check=True)
    assert len((tmp_path / ".bashrc").read_text().splitlines()) == 1
    done = subprocess.run(
        ["bash", "-c", "source ~/.bashrc; ray stop"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "found\n")


def test_ray_of_the_path_is_used_as_it_is() -> None:
    text = '[[host]]\nname = "head"\naddress = "10.0.0.1"\nhead = true\n'
    made = yaml.safe_load(ray_up.text(parse(text, Path("/lab.toml"))))
    assert "head_setup_commands" not in made
    assert made["head_start_ray_commands"][0] == "ray stop"


def test_head_is_reached_by_its_public_address() -> None:
    hosts = parse((EXAMPLES / "hosts.toml").read_text(), Path("/lab.toml"))
    made = yaml.safe_load(ray_up.text(hosts, "/id", "203.0.113.1"))
    assert made["provider"]["head_ip"] == "10.0.0.10"
    assert made["provider"]["external_head_ip"] == "203.0.113.1"
    assert made["auth"]["ssh_private_key"] == "/id"
