"""What `up` prints while it waits."""

from __future__ import annotations

from cockpit.backends.ssh.lifecycle import is_other

CONNECTING = "connecting: {} of 64 hosts answered"


def test_line_in_which_a_number_alone_has_changed_is_not_printed_again() -> None:
    assert is_other(CONNECTING.format(0), "")
    assert not is_other(CONNECTING.format(17), CONNECTING.format(9))
    assert is_other("not ready: host-1-ntrb6 (starting)", CONNECTING.format(63))
