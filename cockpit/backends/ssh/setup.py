"""What is set up and checked on a host over SSH, before Ray is started there."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from cockpit.backends.ssh.connection import Connection
from cockpit.backends.ssh.description import Host
from cockpit.config import bundled
from cockpit.format import plural
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

NOFILE = 65536
"""The limit of open files that Ray's documentation recommends."""
WARNING = "warning: "


class Step(Struct, frozen=True):
    what: str
    """In the plan, after the hosts."""
    script: str
    """For sh. A line that begins with WARNING is shown; other output only if it fails."""
    data: bytes = b""
    """Its standard input."""
    needs_gpu: bool = False


def steps(python: str, packages: Sequence[str], *, installs: bool = True) -> tuple[Step, ...]:
    """`python`: the interpreter, of a virtual environment if packages are installed."""
    found = [
        Step(
            "wait until cloud-init has finished its first boot",
            "if command -v cloud-init >/dev/null; then cloud-init status --wait >/dev/null; fi; :",
        ),
        Step(
            "check the driver of the GPUs",
            "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader",
            needs_gpu=True,
        ),
        Step(
            "check that the clock is synchronized, and the limit of open files",
            "n=$(ulimit -Hn); case $n in unlimited) ;; *) "
            f'[ "$n" -ge {NOFILE} ] || echo "{WARNING}the limit of open files is $n";; esac; '
            "s=$(timedatectl show -p NTPSynchronized --value 2>/dev/null) || s=unknown; "
            f'[ "$s" = yes ] || echo "{WARNING}the clock is not synchronized by NTP ($s)"',
        ),
    ]
    if installs:
        found.append(_venv(str(PurePosixPath(python).parent.parent), packages))
    if any(package.startswith("torch") for package in packages) and installs:
        found.append(
            Step(
                "check that torch finds CUDA",
                f"{shlex.quote(python)} -c 'import torch; assert torch.cuda.is_available(), "
                '"torch finds no CUDA"\'',
                needs_gpu=True,
            )
        )
    return tuple(found)


def _venv(venv: str, packages: Sequence[str]) -> Step:
    constraints = bundled.project_file("constraints.txt").read_bytes()
    asked = hashlib.sha256(constraints + "\n".join(packages).encode()).hexdigest()[:16]
    # The stamp is written last: an installation that was interrupted is repeated.
    script = (
        f"set -e; v={shlex.quote(venv)}; "
        f'[ "$(cat "$v/.cockpit" 2>/dev/null)" != {asked} ] || exit 0; '
        'if command -v uv >/dev/null; then uv venv -q --allow-existing "$v"; '
        'pip() { uv pip install -q --python "$v/bin/python" "$@"; }; '
        'else python3 -m venv "$v"; '
        'pip() { "$v/bin/python" -m pip install -q --disable-pip-version-check "$@"; }; fi; '
        f'head -c {len(constraints)} >"$v/constraints.txt"; '
        + (f'pip -c "$v/constraints.txt" {shlex.join(packages)}; ' if packages else "")
        + f'echo {asked} >"$v/.cockpit"'
    )
    what = f"install {plural(len(packages), 'package')} in {venv} by constraints.txt"
    return Step(what, script, constraints)


async def run(
    connection: Connection,
    wanted: Sequence[Step],
    progress: Callable[[str], None],
    todo: str,
) -> None:
    """Run the steps on the host. Raises CockpitError, with `todo`, for the first that fails.

    Of a host whose description has no number of GPUs, those are checked that it has.
    """
    host = connection.host
    for step in wanted:
        if step.needs_gpu and host.gpus == 0:
            continue
        detect = step.needs_gpu and host.gpus is None
        guard = "command -v nvidia-smi >/dev/null || exit 0; " if detect else ""
        result = await connection.run(["sh", "-c", guard + step.script], data=step.data)
        lines = (result.stdout + result.stderr).splitlines()
        for line in lines:
            if line.startswith(WARNING):
                progress(f"{host.name}: {one_line(line)}")
        if result.exit_code:
            said = [line for line in lines if line.strip()]
            raise CockpitError(
                f"Host {host.name} could not be set up: {step.what} failed.",
                one_line(said[-1]) if said else f"exit code {result.exit_code}",
                todo,
            )
    progress(f"Set up {host.name}.")


def own_steps(host: Host) -> tuple[Step, ...]:
    """Those of a host of the user's, which has been booted; none without packages."""
    return steps(host.python, host.packages)[1:] if host.packages else ()
