"""What is checked on hosts before a pod is started there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.backends.ssh import host_check
from cockpit.backends.ssh.description import Host
from cockpit.backends.ssh.host_check import Checked, different_versions, unfit, warnings

GIB = 1 << 30
HOST = Host("gpu-1", "10.0.0.2", "gpu-1", "gpu", python="/opt/ray/bin/python", gpus=2.0)
WELL = Checked("3.11.7", "2.60.0", 0.0, (), (), "", "", 100 * GIB, 50 * GIB, gpus=("A10", "A10"))


def test_host_as_described_is_fit() -> None:
    assert (unfit(HOST, WELL), list(warnings(HOST, WELL))) == ("", [])


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (replace(WELL, ray=""), "/opt/ray/bin/python has no Ray: install it"),
        (replace(WELL, ray="2.9.3"), "it has Ray 2.9.3, which has no token: install 2.52 or newer"),
        (replace(WELL, ray="nightly"), "it has Ray nightly, which has no token"),
        (replace(WELL, address="Cannot assign"), "Ray cannot listen at 10.0.0.2: Cannot assign"),
        (replace(WELL, others=("a-x1",)), "pod a-x1 of another cluster runs at 10.0.0.2"),
        (replace(WELL, disk_free_bytes=4 * GIB), "its /tmp has 4.0 GiB left of 100 GiB"),
        (replace(WELL, disk_bytes=GIB, disk_free_bytes=GIB // 4), "its /tmp has 256 MiB left"),
        (replace(WELL, gpus=("A10",)), "it has 1 GPUs by nvidia-smi, and 2 are asked for"),
    ],
)
def test_unfit_host_is_refused_with_the_reason(found: Checked, why: str) -> None:
    assert why in unfit(HOST, found)


def test_clock_and_driver_are_reported() -> None:
    found = replace(WELL, skew_s=-90.0, problems=("nvidia-smi: no\x1b[2J devices",))
    clock, driver = warnings(HOST, found)
    assert clock.startswith("host gpu-1: its clock differs by 90 s")
    assert clock.endswith("To fix it, run NTP on it.")
    assert driver.startswith("host gpu-1: nvidia-smi: no")
    assert "\x1b" not in driver
    assert list(warnings(HOST, replace(WELL, skew_s=host_check.SKEW_S))) == []


@pytest.mark.parametrize(("most", "is_low"), [(1024, True), (4096, False), (0, False)])
def test_low_limit_of_open_files_is_reported(most: int, is_low: bool) -> None:
    found = replace(WELL, open_files=most)
    low = ["host gpu-1: a process may open 1024 files only."]
    assert [line.partition(" To fix")[0] for line in warnings(HOST, found)] == low * is_low
    assert unfit(HOST, found) == ""


def test_what_a_pod_leaves_open_is_a_finding_that_does_not_prevent_it() -> None:
    """Ray's other ports are open at all addresses, which cannot be configured."""
    found = replace(WELL, open_ports=(6379, 8265), private_ports=(8265, 10001), tokenless=("ray",))
    assert unfit(HOST, found) == ""
    assert [(one.subject, one.problem) for one in host_check.findings(HOST, found)] == [
        ("token", "processes without Ray's token: ray"),
        ("ports", "Ray's port 8265 is open at all addresses, not at 10.0.0.2 only"),
    ]
    assert list(host_check.findings(HOST, replace(found, open_ports=(6379,), tokenless=()))) == []


def test_every_finding_has_a_known_subject_and_a_host_reports_all_of_them() -> None:
    bad = replace(
        WELL,
        ray="2.9",
        address="no",
        others=("a-x1",),
        disk_free_bytes=0,
        gpus=(),
        skew_s=9.0,
        problems=("nvidia-smi: no",),
        unit="it has no systemd-run",
        open_files=1024,
        tokenless=("ray",),
        open_ports=(1,),
        private_ports=(1,),
    )
    host = replace(HOST, is_unit=True)
    assert tuple(one.subject for one in host_check.findings(host, bad)) == host_check.SUBJECTS
    assert "supervisor" not in {one.subject for one in host_check.findings(HOST, bad)}


def test_hosts_with_different_versions_of_ray_or_python_are_listed() -> None:
    hosts = {"head": WELL, "gpu-1": replace(WELL, ray="2.59.1"), "gpu-2": WELL}
    assert different_versions(hosts) == "Ray 2.59.1: gpu-1; Ray 2.60.0: head, gpu-2"
    hosts["gpu-1"] = replace(WELL, python="3.11.9")
    assert different_versions(hosts) == "Python 3.11.7: head, gpu-2; Python 3.11.9: gpu-1"
    assert different_versions({"head": WELL}) == ""
