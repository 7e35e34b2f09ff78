"""Network faults between two namespaces of this test's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest

from cockpit.drills.engine import pod_script
from tests.drills.script import eventually

NAME = "cockpit_drill_test"
HANDLE = f"{zlib.crc32(NAME.encode()) & 0x7FFF | 0x1000:x}:"
TAP = f"c0c{zlib.crc32(NAME.encode()):08x}"
HERE, THERE = "10.213.77.1", "10.213.77.2"
LOST_S = 0.1
"""After this, a packet that is expected to be lost counts as lost."""
Done = subprocess.CompletedProcess[str]
Inside = Callable[..., Done]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are root's to make")


def in_namespace(name: str, *argv: str, temporary: Path | None = None) -> Done:
    whole = ["ip", "netns", "exec", name, *argv]
    own = {"TMPDIR": str(temporary)} if temporary else {}
    return subprocess.run(
        whole, capture_output=True, text=True, check=False, timeout=60, env=os.environ | own
    )


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Inside]:
    """The script inside one of two namespaces that a cable joins. Its marks are not another test's,
    whose process may still be about to take its own away.
    """
    own, other = f"cockpit-a{os.getpid()}", f"cockpit-b{os.getpid()}"
    for name in (own, other):
        subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for argv in (
            f"link add eth0 netns {own} type veth peer name eth0 netns {other}",
            f"-n {own} addr add {HERE}/24 dev eth0",
            f"-n {other} addr add {THERE}/24 dev eth0",
            f"-n {own} link set eth0 up",
            f"-n {other} link set eth0 up",
            f"-n {own} route add default via {THERE}",
        ):
            subprocess.run(["ip", *argv.split()], check=True)

        def run(*arguments: str) -> Done:
            argv = pod_script.argv("network", *arguments)[1:]
            return in_namespace(own, sys.executable, *argv, temporary=tmp_path)

        yield run
    finally:
        for name in (own, other):
            subprocess.run(["ip", "netns", "del", name], check=True)


@contextmanager
def echoing() -> Iterator[None]:
    """Packets to the other namespace are sent back."""
    other = f"cockpit-b{os.getpid()}"
    echo = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        f"s.bind(('{THERE}', 7)); s.settimeout(60)\n"
        "while True:\n d, a = s.recvfrom(99); s.sendto(d, a)"
    )
    server = subprocess.Popen(
        ["ip", "netns", "exec", other, sys.executable, "-c", echo], stderr=subprocess.DEVNULL
    )
    try:
        bound = ["ip", "netns", "exec", other, "cat", "/proc/net/udp"]
        eventually(lambda: ":0007 " in subprocess.run(bound, capture_output=True, text=True).stdout)
        yield
    finally:
        server.kill()
        server.wait()


def passes(count: int = 1, *, wait_s: float = 10.0) -> int:
    """How many of that many packets return, each within `wait_s`."""
    ask = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"s.settimeout({wait_s})\n"
        "n = 0\n"
        f"for i in range({count}):\n"
        f" try: s.sendto(b'%d' % i, ('{THERE}', 7)); n += bool(s.recv(99))\n"
        " except OSError: pass\n"
        "print(n)"
    )
    with echoing():
        return int(in_namespace(f"cockpit-a{os.getpid()}", sys.executable, "-c", ask).stdout)


def round_trips_s(count: int) -> list[float]:
    """That many packets, in sequence; a lost one takes a second."""
    ask = (
        "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.settimeout(1)\n"
        f"for i in range({count}):\n"
        " began = time.monotonic()\n"
        f" try: s.sendto(b'%d' % i, ('{THERE}', 7)); s.recv(99)\n"
        " except OSError: pass\n"
        " print(time.monotonic() - began)"
    )
    with echoing():
        text = in_namespace(f"cockpit-a{os.getpid()}", sys.executable, "-c", ask).stdout
    return [float(line) for line in text.splitlines()]


def carried(size: int) -> int:
    """How many of that many bytes arrive through a TCP connection."""
    take = (
        f"import socket; l = socket.create_server(('{THERE}', 8)); c, _ = l.accept(); n = 0\n"
        "while d := c.recv(1 << 16): n += len(d)\n"
        "print(n)"
    )
    give = (
        f"import socket; s = socket.create_connection(('{THERE}', 8), 20)\n"
        f"s.sendall(bytes({size})); s.close()"
    )
    own, other = f"cockpit-a{os.getpid()}", f"cockpit-b{os.getpid()}"
    taker = subprocess.Popen(
        ["ip", "netns", "exec", other, sys.executable, "-c", take],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        listens = ["ip", "netns", "exec", other, "cat", "/proc/net/tcp"]
        eventually(
            lambda: ":0008 " in subprocess.run(listens, capture_output=True, text=True).stdout
        )
        done = in_namespace(own, sys.executable, "-c", give)
        assert done.returncode == 0, done.stderr
        return int(taker.communicate(timeout=30)[0])
    finally:
        taker.kill()
        taker.wait()


def test_a_partition_lets_nothing_through_until_it_is_undone(script: Inside) -> None:
    assert passes() == 1
    assert script("check", "partition").returncode == 0
    done = script("on", NAME, "partition", "0", "600", THERE)
    assert done.returncode == 0, done.stderr
    assert passes(wait_s=LOST_S) == 0
    for _ in range(2):  # a repetition has no effect
        assert script("off", NAME).returncode == 0
        assert passes() == 1


def test_network_fault_ends_after_its_duration(script: Inside) -> None:
    began = time.monotonic()
    assert script("on", NAME, "partition", "0", "0.5", THERE).returncode == 0
    eventually(lambda: passes(wait_s=LOST_S) == 1)
    assert time.monotonic() - began >= 0.5


def test_some_packets_are_lost(script: Inside) -> None:
    assert script("on", NAME, "loss", "50", "600", THERE).returncode == 0
    # Half each way: 10 of 40 are expected, all or none at 10⁻⁵.
    assert 0 < passes(40, wait_s=LOST_S) < 40
    assert script("off", NAME).returncode == 0
    assert passes(20) == 20


def test_a_narrow_line_is_widened_again(script: Inside) -> None:
    done = script("on", NAME, "rate", "1000", "600")
    assert done.returncode == 0, done.stderr
    shown = in_namespace(f"cockpit-a{os.getpid()}", "tc", "qdisc", "show", "dev", "eth0").stdout
    assert f"tbf {HANDLE} root" in shown
    assert "1Mbit" in shown
    assert script("off", NAME).returncode == 0
    shown = in_namespace(f"cockpit-a{os.getpid()}", "tc", "qdisc", "show", "dev", "eth0").stdout
    assert "tbf" not in shown


def test_an_undo_of_another_fault_leaves_the_queueing_discipline(script: Inside) -> None:
    assert script("on", NAME, "rate", "1000", "600").returncode == 0
    assert script("on", f"{NAME}_2", "rate", "2000", "600").returncode == 1, "one at a time"
    assert script("off", f"{NAME}_2").returncode == 0
    shown = in_namespace(f"cockpit-a{os.getpid()}", "tc", "qdisc", "show", "dev", "eth0").stdout
    assert f"tbf {HANDLE} root" in shown
    assert script("off", NAME).returncode == 0


def test_a_network_fault_that_starts_after_its_undo_fails(script: Inside) -> None:
    assert script("off", NAME, "refuse").returncode == 0
    late = script("on", NAME, "rate", "1000", "600")
    assert late.returncode == 1
    assert "undone before it began" in late.stderr
    shown = in_namespace(f"cockpit-a{os.getpid()}", "tc", "qdisc", "show", "dev", "eth0").stdout
    assert "tbf" not in shown


def test_undo_removes_the_rules_that_outlived_their_container(
    script: Inside, tmp_path: Path
) -> None:
    """Its processes and its files have ended with it; the network is the pod's."""
    own = f"cockpit-a{os.getpid()}"
    assert script("on", NAME, "partition", "0", "600", THERE).returncode == 0
    listed = ["ip", "netns", "pids", own]
    (keeper,) = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    os.kill(int(keeper), signal.SIGKILL)
    (tmp_path / f".{NAME}").unlink()
    assert passes(wait_s=LOST_S) == 0
    assert script("off", NAME, "refuse").returncode == 0
    assert passes() == 1
    assert script("on", NAME, "partition", "0", "600", THERE).returncode == 1, "it is refused"


@pytest.mark.parametrize(
    ("program", "fault", "show"),
    [
        ("tc", ("rate", "1000", "600"), ("tc", "qdisc", "show", "dev", "eth0")),
        ("nft", ("partition", "0", "600", THERE), ("nft", "list", "tables")),
    ],
)
def test_fault_is_undone_in_an_image_with_the_one_program_that_it_needs(
    program: str, fault: tuple[str, ...], show: tuple[str, ...], script: Inside, tmp_path: Path
) -> None:
    own = f"cockpit-a{os.getpid()}"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / program).symlink_to(str(shutil.which(program)))
    text = pod_script.source("network").replace(":/usr/sbin:/sbin", "")
    only = ("/usr/bin/env", f"PATH={tmp_path / 'bin'}", sys.executable, "-c", text)
    before = in_namespace(own, *show).stdout
    for arguments in (("on", NAME, *fault), ("off", NAME)):
        done = in_namespace(own, *only, *arguments, temporary=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (in_namespace(own, *show).stdout == before) is (arguments[0] == "off")


def test_packets_are_late_until_it_is_undone(script: Inside) -> None:
    """By netem if the kernel has it, else by a process."""
    assert script("check", "delay").returncode == 0
    done = script("on", NAME, "delay", "60", "600")
    assert done.returncode == 0, done.stderr
    took_s = round_trips_s(20)
    assert min(took_s) >= 0.06
    assert median(took_s) < 0.3
    assert script("off", NAME).returncode == 0
    assert median(round_trips_s(20)) < 0.05
    own = f"cockpit-a{os.getpid()}"
    eventually(lambda: TAP not in in_namespace(own, "ip", "link").stdout)
    assert "clsact" not in in_namespace(own, "tc", "qdisc", "show").stdout


def test_a_stream_of_late_packets_arrives_whole(script: Inside) -> None:
    assert script("on", NAME, "delay", "20", "600").returncode == 0
    assert carried(4_000_000) == 4_000_000
    assert script("off", NAME).returncode == 0


def parent(pid: int) -> int:
    """0 for a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    return int(status.partition("PPid:")[2].split()[0])


def test_without_the_process_that_holds_them_back_packets_pass(script: Inside) -> None:
    assert script("on", NAME, "delay", "60", "600").returncode == 0
    own = f"cockpit-a{os.getpid()}"
    left = {int(pid) for pid in in_namespace(own, "ip", "netns", "pids", own).stdout.split()}
    (holder,) = [pid for pid in left if parent(pid) in left]
    os.kill(holder, signal.SIGKILL)
    eventually(lambda: median(round_trips_s(20)) < 0.05)


def test_a_missing_right_is_reported_as_such(script: Inside) -> None:
    own = f"cockpit-a{os.getpid()}"
    without = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]
    argv = [sys.executable, *pod_script.argv("network", "check", "partition")[1:]]
    reported = in_namespace(own, *without, *argv)
    assert reported.returncode == pod_script.NOT_ALLOWED
    assert "NET_ADMIN" in reported.stderr
