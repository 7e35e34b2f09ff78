"""What `up` installs on hosts that have Python alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.description import Hosts, read
from cockpit.backends.ssh.fleet import Fleet
from cockpit.cli.main import main
from cockpit.model.error import CockpitError
from tests import local_wheels
from tests.ssh_cluster import description
from tests.sshd import Sshd, hosts

PINNED = "1.17.0"
"""Of six, in constraints.txt."""


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with hosts() as listed:
        wheels = listed[0].folder / "wheels"
        wheels.mkdir()
        for number in (PINNED, "99.0"):
            text = f"__version__ = {number!r}\n"
            local_wheels.add_wheel(wheels, "six", number, {"six.py": text})
        local_wheels.use(listed[0].folder / "home", wheels)
        yield listed[0]


def described(sshd: Sshd, packages: str) -> Hosts:
    """The host with packages in a virtual environment that does not exist at first."""
    path = Path(description([sshd]).path)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("python")]
    added = [f'venv = "{sshd.folder}/bare venv"', f"packages = {packages}"]
    path.write_text("\n".join([*added, *lines]) + "\n")
    return read(str(path))


async def set_up(hosts: Hosts) -> list[str]:
    said: list[str] = []
    fleet = Fleet(hosts)
    try:
        await lifecycle.set_up(hosts, fleet, 120.0, said.append)
    finally:
        await fleet.aclose()
    return said


@pytest.mark.slow
def test_packages_are_installed_with_pip_in_the_versions_of_the_constraints(sshd: Sshd) -> None:
    hosts = described(sshd, '["six"]')
    with pytest.raises(CockpitError, match="has no Python at") as raised:
        asyncio.run(lifecycle.up(described(sshd, "[]"), "fast", 60.0, print))
    assert "bare venv/bin/python" in raised.value.what
    said = asyncio.run(set_up(hosts))
    assert said[-1] == "Set up host-0."
    (installed,) = (sshd.folder / "bare venv").glob("lib/python3*/site-packages/six.py")
    assert PINNED in installed.read_text()
    at = installed.stat().st_mtime_ns
    asyncio.run(set_up(hosts))
    assert installed.stat().st_mtime_ns == at, "not installed again"


@pytest.mark.slow
def test_package_that_is_not_found_is_named_with_the_host(sshd: Sshd) -> None:
    with pytest.raises(CockpitError, match="Host host-0 could not be set up") as raised:
        asyncio.run(set_up(described(sshd, '["no-such-package"]')))
    assert "no-such-package" in raised.value.why


def test_plan_lists_what_is_installed_on_which_host(
    sshd: Sshd, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = described(sshd, '["six", "torch"]')
    assert main(["plan", "--on", "hosts", hosts.path]) == 0
    printed = capsys.readouterr().out
    assert (
        f"On host-0: install 2 packages in {sshd.folder}/bare venv by constraints.txt." in printed
    )
    assert "On host-0: check the driver of the GPUs, if it has any." in printed
    assert main(["up", "--on", "hosts", hosts.path, "--dry-run"]) == 0
    assert "install 2 packages" in capsys.readouterr().err
