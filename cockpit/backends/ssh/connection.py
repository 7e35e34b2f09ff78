"""One connection to a host, by OpenSSH as a subprocess.

The user's configuration, agent, known_hosts and jump hosts apply. The first `ssh` is the master of
a private control socket (ControlMaster in ssh_config(5)); it runs `cat`, so that it ends when this
process does, even if that is killed. Every command and forward shares its connection.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cockpit.backends.protocol import ExecResult
from cockpit.backends.ssh.description import Host
from cockpit.format import in_seconds
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError
from cockpit.model.text import one_line

CONNECT_TIMEOUT_S = 10
LOGIN_TIMEOUT_S = 60.0
"""From the start of ssh to the first command on the host: a login script may hang."""
LOST = 255
"""The exit code of ssh for its own failures (EXIT STATUS in ssh(1))."""
OUTPUT_LIMIT_BYTES = 16 << 20
READ_BYTES = 64 << 10
ENDED_WITHIN_S = 2.0
MARK = "cockpit-connected"
OPTIONS = {
    "BatchMode": "yes",  # no prompt behind the UI
    "ConnectTimeout": str(CONNECT_TIMEOUT_S),
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "StreamLocalBindUnlink": "yes",
    # One compressor for the whole connection: of an answer of the dashboard that repeats the one
    # before (13 KB for each node), a few hundred bytes are left. An sshd may refuse it.
    "Compression": "yes",
    "LogLevel": "ERROR",
    # What a user's configuration may add to an interactive login:
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
}
NO_FORWARDS = ("-o", "ClearAllForwardings=yes")
"""Those of the user's configuration: their ports may be in use."""
ONLY_SHARED = ("-o", "ControlMaster=no", "-o", "ProxyCommand=false")
"""Without its master, ssh would make a connection of its own: it must not."""
_IDENTITY = re.compile(r"Offending .* key in (.+:\d+)")


class Connection:
    """Use after `open`. `folder` is private (`private_folder`); `ssh_config` is for `ssh -F`."""

    def __init__(self, host: Host, folder: Path, name: str, ssh_config: str = "") -> None:
        self.host = host
        self._folder, self._name = folder, name
        self._control = str(folder / name)
        self._ssh = ["ssh", *(["-F", ssh_config] if ssh_config else [])]
        for option, value in OPTIONS.items():
            self._ssh += ["-o", f"{option}={value}"]
        self._who = [*(["-l", host.user] if host.user else [])]
        self._who += ["-p", str(host.port)] if host.port is not None else []
        self._master: Process | None = None

    @property
    def _by_hand(self) -> str:
        return shlex.join(["ssh", *self._who, self.host.ssh])

    @property
    def is_open(self) -> bool:
        return self._master is not None and self._master.returncode is None

    async def open(self) -> None:
        """Connect. Raises UnreachableError, or NotAllowedError for a key that is not accepted."""
        command = f"echo {MARK}; exec cat"
        master = await self._start(
            ["-M", "-S", self._control, *NO_FORWARDS, "-o", "ControlPersist=no"],
            [command],
            stdin=PIPE,
        )
        assert master.stdout is not None
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                while line := await master.stdout.readline():
                    if line.strip() == MARK.encode():  # a login script may print lines before it
                        self._master = master
                        return
                errors = await self.read_all(master.stderr)
            raise self._failed(errors)
        except TimeoutError as error:
            raise UnreachableError(
                f"Host {self.host.name} does not answer.",
                f"Its login has not finished in {in_seconds(LOGIN_TIMEOUT_S, 0)}.",
                f"Try it by hand: {self._by_hand}",
            ) from error
        except ValueError as error:  # a line longer than the buffer
            raise UnreachableError(
                f"Host {self.host.name} does not answer as expected.",
                "Its login scripts print a lot of output.",
                "Let them print nothing for commands without a terminal.",
            ) from error
        finally:
            if self._master is not master:
                await end(master)

    async def run(self, argv: Sequence[str], *, data: bytes = b"") -> ExecResult:
        """Run a command to its end, with `data` as its input."""
        process = await self.start(argv)
        try:
            outputs = [asyncio.create_task(self.read_all(process.stdout))]
            outputs.append(asyncio.create_task(self.read_all(process.stderr)))
            try:
                await _write(process, data)
                out, errors = await asyncio.gather(*outputs)
            finally:
                for task in outputs:
                    task.cancel()
                await asyncio.gather(*outputs, return_exceptions=True)
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            await end(process)
        await self.require_end(code)
        return ExecResult(code, out.decode(errors="replace"), errors.decode(errors="replace"))

    async def start(
        self, argv: Sequence[str], *, tty: int | None = None, flags: Sequence[str] = ()
    ) -> Process:
        """Start a command with open streams; `tty` is a terminal to use for all of them."""
        return await self._start(
            ["-S", self._control, *NO_FORWARDS, *ONLY_SHARED, *flags],
            [shlex.join(argv)],
            stdin=PIPE,
            tty=tty,
        )

    async def require_end(self, code: int) -> None:
        """Raises UnreachableError when the exit code is ssh's, for a lost connection."""
        if code == LOST and not await self._works():
            raise self.lost()

    async def _works(self) -> bool:
        """Asks the master itself: its end may not have been seen yet."""
        if not self.is_open:
            return False
        check = await self._start(["-S", self._control, "-O", "check"], [])
        await check.communicate()
        return check.returncode == 0

    def lost(self) -> UnreachableError:
        return UnreachableError(
            f"The connection to host {self.host.name} was lost.",
            "How the command on it ended is not known; it may still be running.",
            "Look at the host, then try again.",
        )

    async def forward(self, name: str, address: str, port: int) -> str:
        """Return a private Unix socket that leads to `address` and `port`, seen from the host."""
        path = str(self._folder / name)
        target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        process = await self._start(
            ["-S", self._control, "-O", "forward", "-L", f"{path}:{target}"], []
        )
        _, errors = await process.communicate()
        if process.returncode:
            raise UnreachableError(
                f"No port of host {self.host.name} can be forwarded.",
                _last(errors) or "Its connection was lost.",
                "Its sshd must allow AllowTcpForwarding (sshd_config).",
            )
        return path

    async def aclose(self) -> None:
        """End the connection, and everything that uses it."""
        master, self._master = self._master, None
        if master is not None:
            await end(master)

    async def read_all(self, stream: asyncio.StreamReader | None) -> bytes:
        """Read a stream of a command to its end. Raises CockpitError above OUTPUT_LIMIT_BYTES."""
        assert stream is not None
        received = bytearray()
        while part := await stream.read(READ_BYTES):
            received += part
            if len(received) > OUTPUT_LIMIT_BYTES:
                raise CockpitError(
                    f"A command on host {self.host.name} was ended.",
                    f"It wrote more than {OUTPUT_LIMIT_BYTES >> 20} MiB.",
                    "Write to a file on the host, or filter there.",
                )
        return bytes(received)

    async def _start(
        self,
        flags: Sequence[str],
        command: Sequence[str],
        *,
        stdin: int = DEVNULL,
        tty: int | None = None,
    ) -> Process:
        argv = [*self._ssh, *flags, *self._who, "--", self.host.ssh, *command]
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                stdin=stdin if tty is None else tty,
                stdout=PIPE if tty is None else tty,
                stderr=PIPE if tty is None else tty,
                start_new_session=True,  # an interrupt in the terminal is for cockpit
            )
        except FileNotFoundError as error:
            raise CockpitError(
                "There is no program ssh.",
                "cockpit connects to hosts with OpenSSH.",
                "Install it, for example: apt install openssh-client",
            ) from error
        except OSError as error:  # no process or no file descriptor is left: tried again later
            raise UnreachableError(
                f"The program ssh for host {self.host.name} could not be started.",
                error.strerror or str(error),
                "See the limits of this host: ulimit -n, ulimit -u.",
            ) from error

    def _failed(self, errors: bytes) -> CockpitError:
        name, text = self.host.name, errors.decode(errors="replace")
        if "IDENTIFICATION HAS CHANGED" in text:
            key = _IDENTITY.search(text)
            return NotAllowedError(
                f"The host key of {name} has changed: ssh does not connect.",
                f"Another key is in {one_line(key[1])}." if key else "Another key is known.",
                "If the host was installed again, remove the old key with ssh-keygen -R; "
                "otherwise another machine may answer in its place.",
            )
        if "Host key verification failed" in text:
            return NotAllowedError(
                f"The host key of {name} is not known: ssh does not connect.",
                "It is not in known_hosts, and without a terminal it cannot be confirmed.",
                f"Connect once by hand and compare the key: {self._by_hand}",
            )
        if "Permission denied" in text:
            return NotAllowedError(
                f"Host {name} does not accept your login.",
                _last(errors),
                f"Load your key with ssh-add, or set user in the file; by hand: {self._by_hand}",
            )
        return UnreachableError(
            f"Host {name} cannot be reached with ssh.",
            _last(errors) or "The connection ended at once.",
            f"Try it by hand: {self._by_hand}",
        )


async def end(process: Process) -> None:
    """Close its input and wait; kill it if it continues."""
    if process.stdin is not None:
        process.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDED_WITHIN_S):
            await process.wait()
    if process.returncode is None:
        process.kill()
        for stream in (process.stdout, process.stderr):
            while stream is not None and await stream.read(READ_BYTES):
                pass  # `wait` does not return before its output was read
        await process.wait()


async def _write(process: Process, data: bytes) -> None:
    """Write its input. What keeps its input open is for the caller to end."""
    assert process.stdin is not None
    with suppress(ConnectionError):  # it has ended, or does not read
        process.stdin.write(data)
        await process.stdin.drain()


def _last(errors: bytes) -> str:
    lines = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else ""
