"""Credentials from an exec plugin of a kubeconfig."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from contextlib import suppress
from datetime import datetime
from typing import Any

from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.format import in_seconds
from cockpit.model.decoding.limited_json import loads
from cockpit.model.error import NotAllowedError, UsageError
from cockpit.model.partly_shown import PartlyShown
from cockpit.model.secret import sendable, without_credentials
from cockpit.model.text import one_line

TIMEOUT_S = 30.0
OUTPUT_S = 1.0
"""After its end: a process that it leaves in the background may keep its output open."""
_CLUSTER_INFO = (
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
    "proxy-url",
)


class Login(PartlyShown, frozen=True):
    """A token, or a client's certificate and key in PEM, until when (Unix time)."""

    SHOWN = ("expires_s",)

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires_s: float = float("inf")


class _Output(asyncio.SubprocessProtocol):
    """What a process writes.

    Python 3.11's `asyncio.subprocess.Process` ends its `wait` only when the streams are closed.
    """

    def __init__(self) -> None:
        self.written = {1: bytearray(), 2: bytearray()}
        self.exited, self.closed = asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.written[fd] += data

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


async def ask_plugin(context: KubeContext) -> Login:
    """Run the kubeconfig's `exec` plugin, a program that prints an ExecCredential.

    Raises NotAllowedError, which names the program, when it is missing, fails, hangs or prints
    something else. It runs in a new session: it cannot write over the UI, and when it hangs all its
    processes are killed.
    """
    plugin = context.credential["exec"]
    command, environment = _call(context, plugin)
    name = one_line(command[0])
    who = f"The credential plugin {name} of context {one_line(context.name)}"
    try:
        process, output = await asyncio.get_running_loop().subprocess_exec(
            _Output,
            *command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        hint = one_line(str(plugin.get("installHint") or ""))
        raise NotAllowedError(
            f"{who} is not installed.", todo=hint or "Install it, or add it to PATH."
        ) from error
    except (OSError, ValueError) as error:
        raise NotAllowedError(f"{who} cannot be run.", one_line(str(error))) from error
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await output.exited.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(OUTPUT_S):
                await output.closed.wait()
    except TimeoutError as error:
        raise NotAllowedError(
            f"{who} did not answer in {in_seconds(TIMEOUT_S)}.",
            "It may be waiting for a browser or a password.",
            f"Log in by hand first: run {name} once, then try again.",
        ) from error
    finally:
        if process.get_returncode() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.get_pid(), signal.SIGKILL)
            await output.exited.wait()
        process.close()
    if code := process.get_returncode():
        lines = output.written[2].decode(errors="replace").strip().splitlines() or [""]
        raise NotAllowedError(
            f"{who} failed with exit code {code}.",
            one_line(without_credentials(lines[-1])),
            f"Log in again: run {name} by hand.",
        )
    return _login(who, bytes(output.written[1]))


def _call(context: KubeContext, plugin: Any) -> tuple[list[str], dict[str, str]]:
    try:
        command = [str(plugin.get("command") or ""), *map(str, plugin.get("args") or ())]
        pairs = {str(pair["name"]): str(pair["value"]) for pair in plugin.get("env") or ()}
        version = str(plugin.get("apiVersion") or "client.authentication.k8s.io/v1")
        wants_cluster = bool(plugin.get("provideClusterInfo"))
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"The `exec` entry of context {one_line(context.name)} is broken.",
            one_line(f"{type(error).__name__}: {error}"),
            "Fix the kubeconfig.",
        ) from error
    spec: dict[str, Any] = {"interactive": False}
    if wants_cluster:
        cluster_info = {
            key: context.cluster[key] for key in _CLUSTER_INFO if key in context.cluster
        }
        spec["cluster"] = {"server": context.server, **cluster_info}
    request = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    return command, {**os.environ, **pairs, "KUBERNETES_EXEC_INFO": json.dumps(request)}


def _login(who: str, output: bytes) -> Login:
    try:
        status = loads(output)["status"]
        until = str(status.get("expirationTimestamp") or "")
        login = Login(
            token=sendable(
                str(status.get("token") or ""), f"the answer of {who[0].lower()}{who[1:]}"
            ),
            certificate=str(status.get("clientCertificateData") or ""),
            key=str(status.get("clientKeyData") or ""),
            expires_s=_time_s(until) if until else float("inf"),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise NotAllowedError(
            f"{who} did not print an ExecCredential.",
            one_line(without_credentials(f"{type(error).__name__}: {error}")),
        ) from error
    if not login.token and not login.certificate:
        raise NotAllowedError(f"{who} gave neither a token nor a certificate.")
    return login


def _time_s(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
