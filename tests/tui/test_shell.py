from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.app import App
from textual.drivers._writer_thread import WriterThread

from cockpit.actions import audit
from cockpit.actions.cluster import SHELL
from cockpit.model.cluster import ClusterPattern
from cockpit.model.error import CockpitError, UnreachableError
from cockpit.tui.changes import shell
from cockpit.tui.dialogs.confirm import Confirm
from cockpit.tui.terminal.backlog import frames_waiting
from cockpit.tui.terminal.driver import TerminalDriver
from tests.bench.terminal import Terminal
from tests.tui.alerting import troubled
from tests.tui.conftest import Open
from tests.tui.local_shell import LocalShell
from tests.tui.simulated_kubernetes import kube


class Ends:
    """The four ends of a keyboard and a screen."""

    def __init__(self) -> None:
        self.keyboard, self._keys = os.pipe()
        self._shown, self.screen = os.pipe()
        os.set_blocking(self._shown, False)
        self.seen = b""

    def type(self, keys: bytes) -> None:
        os.write(self._keys, keys)

    async def sees(self, text: bytes) -> None:
        async with asyncio.timeout(10):
            while text not in self.seen:
                try:
                    self.seen += os.read(self._shown, 65536)
                except BlockingIOError:
                    await asyncio.sleep(0.01)

    def close(self) -> None:
        for end in (self.keyboard, self._keys, self._shown, self.screen):
            os.close(end)


async def test_keys_go_in_output_comes_out_and_the_exit_code_back() -> None:
    ends, terminal = Ends(), LocalShell(["sh", "-c", "stty size; exec sh"], 33, 99)
    pumping = asyncio.create_task(shell.pump(terminal, ends.keyboard, ends.screen))
    await ends.sees(b"33 99")
    await terminal.resize(44, 111)
    ends.type(b"stty size; echo $((6*7)); exit 3\n")
    await ends.sees(b"44 111")
    await ends.sees(b"42")
    assert await asyncio.wait_for(pumping, 10) == 3
    assert terminal.closed
    ends.close()


async def test_three_ctrl_brackets_leave_a_shell_that_does_not_answer() -> None:
    ends, terminal = Ends(), LocalShell(["sh", "-c", "trap '' INT; sleep 60"], 24, 80)
    pumping = asyncio.create_task(shell.pump(terminal, ends.keyboard, ends.screen))
    ends.type(b"\x1d")
    ends.type(b"x")
    ends.type(b"\x1d\x1d\x1d")
    assert await asyncio.wait_for(pumping, 10) is None
    assert terminal.closed
    ends.close()


async def test_a_shell_whose_connection_breaks_ends_with_the_reason() -> None:
    class Broken(LocalShell):
        async def write(self, data: bytes) -> None:
            raise UnreachableError("The connection to the pod is lost.")

    ends, terminal = Ends(), Broken(["sleep", "60"], 24, 80)
    pumping = asyncio.create_task(shell.pump(terminal, ends.keyboard, ends.screen))
    ends.type(b"ls\n")
    with pytest.raises(UnreachableError, match="connection to the pod is lost"):
        await asyncio.wait_for(pumping, 10)
    assert terminal.closed
    ends.close()


async def test_shell_of_the_screen_is_in_the_audit_log(cockpit: Open) -> None:
    simulation = kube()
    shell_of: list[tuple[str, ...]] = []
    terminal = LocalShell(["true"], 24, 80)

    def opened(argv: Sequence[str], rows: int, columns: int) -> LocalShell:
        shell_of.append(tuple(argv))
        return terminal

    simulation.backend.shell = opened
    async with cockpit(simulation=simulation) as seen:
        await seen.press("4", "x")
        await seen.until(lambda: audit.path().exists())
    [line] = [json.loads(text) for text in audit.path().read_text().splitlines()]
    assert (line["action"], line["kind"], line["after"]) == ("exec", "Pod", "/bin/sh")
    assert shell_of == [SHELL]


async def test_shell_on_a_protected_cluster_needs_its_name_typed(cockpit: Open) -> None:
    simulation = kube()
    name = simulation.backend.ref.name
    async with cockpit(simulation=simulation, protected=[ClusterPattern(cluster=name)]) as seen:
        await seen.press("4", "x")
        await seen.until(lambda: isinstance(seen.app.screen, Confirm))
        dialog = seen.app.screen
        assert isinstance(dialog, Confirm)
        assert dialog.typed == name
        await seen.press("y", "enter")
        assert seen.app.screen is dialog, "y is no answer here"
        assert not audit.path().exists()
        await seen.press("escape")
        await seen.until(lambda: seen.app.screen is not dialog)
        assert not audit.path().exists()
        assert "A scripted pod has no shell." not in seen.toasts


async def test_a_pod_without_a_shell_reports_it_and_the_screen_stays(cockpit: Open) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("4", "x")
        await seen.until(lambda: "A scripted pod has no shell." in seen.toasts)
        await seen.sees("Pods · 7")


async def test_key_that_is_pressed_twice_opens_one_shell(cockpit: Open) -> None:
    simulation, terminal = kube(), LocalShell(["cat"], 24, 80)
    simulation.backend.shell = lambda argv, rows, columns: terminal
    async with cockpit(simulation=simulation) as seen:
        await seen.press("4")
        seen.app.lent = True  # to the shell of the first key
        await seen.press("x")
        await seen.until(lambda: terminal.closed)
        assert seen.app.lent
        seen.app.lent = False


async def test_writes_while_the_terminal_is_lent_do_not_pile_up() -> None:
    driver = TerminalDriver(App())
    writer = driver._writer_thread = WriterThread(io.StringIO())
    writer.start()
    writer.stop()  # as Textual does while another program has the terminal
    driver.write("a bell")  # at the 31st, the event loop would wait forever
    assert not frames_waiting(driver)


async def test_bell_of_an_alert_waits_until_the_terminal_is_back(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[str] = []
    async with cockpit(simulation=troubled()) as seen:
        monkeypatch.setattr(seen.app, "ring", rung.append)
        seen.app.lent = True
        await seen.advance(140)
        assert not rung
        seen.app.lent = False
        seen.app.tick()
        assert rung


def test_shell_on_a_real_terminal_restores_it(tmp_path: Path) -> None:
    # HOME: the shell reads no start-up file of the user.
    env = dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"), str(tmp_path))
    with Terminal([sys.executable, "-m", "tests.tui.local_shell"], env) as terminal:
        terminal.wait_for("degraded", 60)
        terminal.type("4")
        terminal.wait_for("llm-train-head")
        terminal.type("x")
        terminal.wait_for("A shell in llm-train-head")
        terminal.type("echo $((6*7)) $(stty size)\n")
        terminal.wait_for("42 50 200")
        # Longer than the queue that a paused terminal's driver would block on.
        quiet = time.monotonic() + 3
        while (left := quiet - time.monotonic()) > 0:
            assert all("Pods" not in text for _, text in terminal.texts(left))
        terminal.type("exit\n")
        terminal.wait_for("Events", 60)
        terminal.type("1")
        terminal.wait_for("Cluster")


def test_the_keyboard_is_as_before_after_a_failure() -> None:
    own, its = pty.openpty()
    before = termios.tcgetattr(its)

    def breaks() -> None:
        with shell.raw(its):
            assert termios.tcgetattr(its) != before
            raise CockpitError("It broke.")

    with pytest.raises(CockpitError):
        breaks()
    assert termios.tcgetattr(its) == before
    os.close(own)
    os.close(its)
