"""The file that one drill at a time holds."""

from __future__ import annotations

import errno
import json
import os
import time

import pytest

from cockpit.backends import file_lease
from cockpit.drills.engine.lease import holder_of, is_own
from cockpit.model.error import CockpitError, LeaseHeldError


def test_lease_holder_is_reported_until_release_or_expiry() -> None:
    assert file_lease.holder("local/lab") == ""
    file_lease.hold("local/lab", "ana", 60.0)
    assert file_lease.holder("local/lab") == "ana"
    assert file_lease.holder("local/other") == ""
    with pytest.raises(CockpitError, match="Another drill runs"):
        file_lease.hold("local/lab", "bob", 60.0)
    file_lease.release("local/lab", "bob")
    assert file_lease.holder("local/lab") == "ana"
    file_lease.release("local/lab", "ana")
    assert file_lease.holder("local/lab") == ""
    file_lease.hold("local/lab", "ana", 0.0)
    assert file_lease.holder("local/lab") == ""


def test_incomplete_lease_file_has_no_holder() -> None:
    file_lease.hold("local/lab", "ana", 60.0)
    path = file_lease._path("local/lab")
    path.write_text(path.read_text()[:-4])
    assert file_lease.holder("local/lab") == ""


def test_a_drill_of_another_process_is_not_ones_own() -> None:
    assert is_own(holder_of("drill-1", os.getpid()))
    assert not is_own(holder_of("drill-1", 1))


def held_elsewhere(**changes: object) -> None:
    """By a process of another node that shares this home."""
    file_lease.hold("local/lab", "bob", 60.0)
    path = file_lease._path("local/lab")
    lease = json.loads(path.read_text())
    lease["process"] |= {"host": "login-2", "boot": "another kernel"}
    path.write_text(json.dumps(lease | changes))


def refused(expired: str = "") -> LeaseHeldError:
    with pytest.raises(LeaseHeldError) as caught:
        file_lease.hold("local/lab", "ana", 60.0, expired)
    return caught.value


@pytest.mark.parametrize(
    "renewed_s",
    [0.0, time.time() - 61, time.time() + 3600],
    ids=["never", "a minute ago", "in an hour"],
)
def test_a_lease_of_another_node_is_not_taken_by_the_times_in_it(renewed_s: float) -> None:
    held_elsewhere(renewed_s=renewed_s)
    error = refused()
    assert not error.current
    assert error.ttl_s == 60.0
    assert refused("an earlier renewal").renewal == error.renewal
    file_lease.hold("local/lab", "ana", 60.0, error.renewal)
    assert file_lease.holder("local/lab") == "ana"


def test_each_renewal_differs() -> None:
    held_elsewhere()
    first = refused()
    assert first.current
    file_lease.hold("local/lab", "bob", 60.0)
    assert refused().renewal != first.renewal


def test_a_lease_of_a_process_that_has_ended_is_free() -> None:
    file_lease.hold("local/lab", "bob", 60.0)
    path = file_lease._path("local/lab")
    lease = json.loads(path.read_text())
    lease["process"]["born"] = "1"
    path.write_text(json.dumps(lease))
    assert file_lease.holder("local/lab") == ""
    file_lease.hold("local/lab", "ana", 60.0)
    assert file_lease.holder("local/lab") == "ana"


def test_a_renewal_that_does_not_fit_on_the_disk_frees_no_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file_lease.hold("local/lab", "ana", 60.0)

    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(CockpitError, match="cannot be written"):
        file_lease.hold("local/lab", "ana", 60.0)
    assert file_lease.holder("local/lab") == "ana"
