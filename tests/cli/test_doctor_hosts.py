"""`cockpit doctor` on hosts: one row a subject, or one for each host with a finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.backends.ssh.description import parse
from cockpit.backends.ssh.host_check import Result
from cockpit.backends.ssh.lifecycle import with_hosts
from cockpit.backends.ssh.state import ClusterRecord, HostState
from cockpit.cli.cluster.doctor_hosts import on_hosts, running
from cockpit.cli.main import main
from cockpit.model.error import UnreachableError
from tests.backends.ssh.test_host_check import WELL
from tests.cli.test_hosts import HOSTS

LAB = parse(HOSTS, Path("/lab.toml"))
LOST = UnreachableError("Host gpu-2 cannot be reached with ssh.", "timed out", "Try it by hand.")


def test_healthy_hosts_have_one_row_a_subject() -> None:
    found = {check.name: check for check in on_hosts(LAB, dict.fromkeys(NAMES, WELL))}
    assert all(check.ok for check in found.values())
    assert found["ray"].found == "2.60.0 on Python 3.11.7"
    assert found["room"].found == "at least 50.0 GiB free in /tmp"
    assert found["gpus"].found == "nvidia-smi lists 6, 0 requested"
    assert not {"token", "ports"} & found.keys()  # of pods that run


NAMES = ("head", "gpu-1", "gpu-2")


def test_every_wrong_host_is_named_with_the_fix() -> None:
    results: dict[str, Result] = {
        "head": replace(WELL, pods=("head-x1abc",), open_ports=(1, 2), public=("9.9.9.9",)),
        "gpu-1": replace(WELL, ray="2.59.1", skew_s=-90.0, disk_free_bytes=0),
        "gpu-2": LOST,
    }
    found = {check.name: check for check in on_hosts(LAB, results)}
    assert {name for name, check in found.items() if not check.ok} == {
        "host gpu-2",
        "reached",
        "versions",
        "room on gpu-1",
        "clock on gpu-1",
    }
    assert found["host gpu-2"].found == "Host gpu-2 cannot be reached with ssh. timed out."
    assert found["room on gpu-1"].fix == "remove files"
    assert found["ports"].found == (
        "dashboard and client server listen on the head's address only; up to 2 ports per host "
        "listen on all addresses, also 9.9.9.9 and require the token"
    )


def test_cluster_without_an_operator_or_with_a_host_that_the_file_lacks_is_reported() -> None:
    record = with_hosts(ClusterRecord("lab", "u", 0.0, (), "fast"), LAB)
    assert [check.ok for check in running(LAB, HostState(cluster=record, operator=True))] == [
        True,
        True,
    ]
    more = replace(record, hosts={**record.hosts, "gpu-9": "x"})
    cluster, operator = running(LAB, HostState(cluster=more))
    assert "no longer describes gpu-9" in cluster.found
    assert (operator.ok, operator.fix) == (False, "cockpit up --on hosts /lab.toml")
    assert [check.found for check in running(LAB, HostState())] == ["not started"]


def test_file_that_cannot_be_read_ends_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--hosts", "none.toml"]) == 1
    printed = capsys.readouterr().out
    assert "hosts file" in printed
    assert "cannot be read" in printed
    assert "torch" not in printed
