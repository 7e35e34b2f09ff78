"""What the agent finds out about a host and the processes of its pod."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from cockpit.backends.ssh.agent.host import ports_open_to_all, public_addresses, without_token

ADDRESS = {"RAY_ADDRESS": "127.0.0.1:1"}
TOKEN = {"RAY_AUTH_MODE": "token"}
WAITS = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)  # PR_SET_NAME
print("named", flush=True)
sys.stdin.read()
"""


@contextmanager
def process(name: str, environment: dict[str, str]) -> Iterator[int]:
    """One of that name; it ends with its input."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, name],
        env={"PATH": os.defpath, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"named\n"
        yield child.pid
        child.stdin.close()


@pytest.mark.parametrize(
    ("name", "environment", "found"),
    [
        ("raylet", ADDRESS, ["raylet"]),
        ("raylet", ADDRESS | TOKEN, []),
        ("sh", {}, []),
        # setproctitle has overwritten the start of its environment.
        ("ray::Agent", ADDRESS, []),
    ],
)
def test_process_of_ray_without_the_token_is_found(
    name: str, environment: dict[str, str], found: list[str]
) -> None:
    with process(name, environment) as pid:
        assert without_token([pid]) == found
    assert without_token([pid]) == []  # it has ended


def test_port_at_one_address_is_not_open_to_all() -> None:
    with ExitStack() as stack:
        closed, opened, not_listening = (stack.enter_context(socket.socket()) for _ in range(3))
        six = stack.enter_context(socket.socket(socket.AF_INET6))
        closed.bind(("127.0.0.1", 0))
        opened.bind(("", 0))
        six.bind(("::", 0))
        not_listening.bind(("", 0))
        for each in (closed, opened, six):
            each.listen()
        found = ports_open_to_all([os.getpid()])
        assert {opened.getsockname()[1], six.getsockname()[1]} <= {*found}
        assert not {closed.getsockname()[1], not_listening.getsockname()[1]} & {*found}


def test_addresses_that_others_can_reach_are_none_of_loopback() -> None:
    assert all(ipaddress.ip_address(address).is_global for address in public_addresses())
