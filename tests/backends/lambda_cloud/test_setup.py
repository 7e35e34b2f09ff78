"""What is set up on each instance, over a real sshd."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.backends.lambda_cloud import setup
from cockpit.backends.lambda_cloud.description import Cloud
from cockpit.backends.ssh.description import Hosts
from cockpit.config import bundled
from cockpit.model.error import CockpitError
from tests.ssh_cluster import description
from tests.sshd import Sshd, hosts


@pytest.fixture(scope="module")
def host() -> Iterator[tuple[Hosts, Sshd]]:
    with hosts() as listed:
        yield description(listed), listed[0]


async def run(cloud: Cloud, hosts: Hosts) -> list[str]:
    said: list[str] = []
    await setup.run(cloud, hosts, hosts.hosts, 60.0, said.append)
    return said


@pytest.fixture
def programs(host: tuple[Hosts, Sshd], tmp_path: Path) -> Path:
    """A directory of programs that come first on the host."""
    config = host[1].folder / "sshd_config"
    before = config.read_text()
    host[1].stop()
    assert before.count("SetEnv ") == 1  # sshd uses the first one only
    config.write_text(before.replace("SetEnv ", f"SetEnv PATH={tmp_path}:/usr/bin:/bin "))
    host[1].start()
    config.write_text(before)
    return tmp_path


async def test_packages_are_installed_once_by_constraints(
    host: tuple[Hosts, Sshd], programs: Path, described: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = programs / "venv"
    monkeypatch.setattr(Cloud, "venv", property(lambda cloud: str(venv)))
    (programs / "uv").write_text(
        f'#!/bin/sh\necho "$@" >>{programs}/asked\nmkdir -p {venv}\n'
        '[ "$1" = venv ] || [ ! -e ' + str(programs / "fail") + " ] || { echo no route; exit 1; }\n"
    )
    (programs / "uv").chmod(0o755)
    cloud = replace(described, user=getpass.getuser(), packages=("six>=1",))
    (programs / "fail").touch()
    with pytest.raises(CockpitError, match="Host host-0 could not be set up: install 1 package"
    ) as raised:  # fmt: skip
        await run(cloud, host[0])
    assert raised.value.why == "no route"
    (programs / "fail").unlink()
    assert "Set up host-0." in await run(cloud, host[0])
    asked = (programs / "asked").read_text().splitlines()
    assert asked[-1] == (
        f"pip install -q --python {venv}/bin/python -c {venv}/constraints.txt six>=1"
    )
    constraints = bundled.project_file("constraints.txt").read_bytes()
    assert (venv / "constraints.txt").read_bytes() == constraints
    await run(cloud, host[0])
    assert (programs / "asked").read_text().splitlines() == asked  # not again
    await run(replace(cloud, packages=("six>=2",)), host[0])
    assert len((programs / "asked").read_text().splitlines()) == len(asked) + 2


async def test_driver_clock_and_limits_are_checked(
    host: tuple[Hosts, Sshd], programs: Path, described: Cloud
) -> None:
    cloud = replace(described, python="/usr/bin/python3")
    with_gpu = replace(host[0], hosts=(replace(host[0].head, gpus=1.0),))
    smi = programs / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho couldn\\'t communicate with the NVIDIA driver\nexit 9\n")
    smi.chmod(0o755)
    with pytest.raises(CockpitError, match="check the driver of the GPUs failed") as raised:
        await run(cloud, with_gpu)
    assert "couldn't communicate" in raised.value.why
    smi.write_text("#!/bin/sh\necho NVIDIA A10, 570.1\n")
    (programs / "timedatectl").write_text("#!/bin/sh\necho no\n")
    (programs / "timedatectl").chmod(0o755)
    said = await run(cloud, with_gpu)
    assert "host-0: warning: the clock is not synchronized by NTP (no)" in said
