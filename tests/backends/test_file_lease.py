"""The file that one drill at a time holds."""

from __future__ import annotations

import os

import pytest

from cockpit.backends import file_lease
from cockpit.drills.lease import holder_of, is_own
from cockpit.model.error import CockpitError


def test_who_holds_it_is_told_until_it_is_let_go_or_has_run_out() -> None:
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


def test_a_torn_file_is_held_by_nobody() -> None:
    file_lease.hold("local/lab", "ana", 60.0)
    path = file_lease._path("local/lab")
    path.write_text(path.read_text()[:-4])
    assert file_lease.holder("local/lab") == ""


def test_a_drill_of_another_process_is_not_ones_own() -> None:
    assert is_own(holder_of("drill-1", os.getpid()))
    assert not is_own(holder_of("drill-1", 1))
