from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from cockpit.backends.kuberay.api import auth_plugin as plugin_module
from cockpit.backends.kuberay.api import credentials as module
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import read
from cockpit.model.error import NotAllowedError, UsageError
from tests.backends.kubernetes.clients import written
from tests.cluster.certificates import Authority

Make = Callable[..., Credentials]
PLUGIN_VERSION = "client.authentication.k8s.io/v1"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Credentials:
        return Credentials(read([written(tmp_path / "config", user, cluster)]).context())

    return made


def script(folder: Path, body: str) -> str:
    path = folder / "login"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def plugin(command: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": PLUGIN_VERSION, "command": command, **more}}


def credential(token: str, until: str = "") -> str:
    status = {"token": token} | ({"expirationTimestamp": until} if until else {})
    data = {"apiVersion": PLUGIN_VERSION, "kind": "ExecCredential", "status": status}
    return json.dumps(data)


async def test_a_token_is_sent_as_it_is(make: Make) -> None:
    assert await make({"token": "sesame"}).headers() == {"Authorization": "Bearer sesame"}


async def test_name_and_password_are_sent(make: Make) -> None:
    headers = await make({"username": "jane", "password": "sesame"}).headers()
    assert headers["Authorization"] == f"Basic {base64.b64encode(b'jane:sesame').decode()}"


async def test_someone_else_is_impersonated(make: Make) -> None:
    headers = await make({"token": "t", "as": "joe", "as-groups": ["ml"]}).headers()
    assert headers["Impersonate-User"] == "joe"
    assert headers["Impersonate-Group"] == "ml"


async def test_groups_that_cannot_be_sent_are_an_error(make: Make) -> None:
    with pytest.raises(UsageError, match="impersonated"):
        await make({"token": "t", "as": "joe", "as-groups": ["ml", "ops"]}).headers()


async def test_a_token_file_that_rotates_is_read_again(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    known = make({"tokenFile": str(token)})
    assert (await known.headers())["Authorization"] == "Bearer first"
    token.write_text("second\n")
    assert (await known.headers())["Authorization"] == "Bearer first"
    monkeypatch.setattr(module, "TOKEN_FILE_S", 0.0)
    assert (await known.headers())["Authorization"] == "Bearer second"


async def test_after_a_refusal_the_token_file_is_read_at_once(make: Make, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    known = make({"tokenFile": str(token)})
    await known.headers()
    token.write_text("second")
    known.forget()
    assert (await known.headers())["Authorization"] == "Bearer second"


async def test_a_token_file_that_no_longer_exists_is_reported(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="token file"):
        await make({"tokenFile": str(tmp_path / "missing")}).headers()


async def test_a_plugin_is_asked_once_until_its_token_expires(make: Make, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    command = script(tmp_path, f"echo x >> {calls}; echo '{credential('sesame')}'")
    known = make(plugin(command))
    got = await asyncio.gather(*(known.headers() for _ in range(5)))
    assert {headers["Authorization"] for headers in got} == {"Bearer sesame"}
    assert calls.read_text() == "x\n"


async def test_a_token_that_is_about_to_expire_is_renewed(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRESH_S", 0.0)
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 10))
    calls = tmp_path / "calls"
    command = script(tmp_path, f"echo x >> {calls}; echo '{credential('sesame', soon)}'")
    known = make(plugin(command))
    await known.headers()
    await known.headers()
    assert calls.read_text() == "x\nx\n"


async def test_expired_token_is_not_renewed_for_each_request(make: Make, tmp_path: Path) -> None:
    """This host's clock may be fast."""
    past = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 600))
    calls = tmp_path / "calls"
    known = make(
        plugin(script(tmp_path, f"echo x >> {calls}; echo '{credential('sesame', past)}'"))
    )
    for _ in range(3):
        assert (await known.headers())["Authorization"] == "Bearer sesame"
    assert calls.read_text() == "x\n"


async def test_a_plugin_is_asked_again_after_a_refusal(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    known = make(plugin(script(tmp_path, f"echo x >> {calls}; echo '{credential('sesame')}'")))
    await known.headers()
    known.forget()
    await known.headers()
    assert calls.read_text() == "x\n", "a login so young was not what was refused"
    monkeypatch.setattr(module, "FRESH_S", 0.0)
    known.forget()
    await known.headers()
    assert calls.read_text() == "x\nx\n"


async def test_a_plugin_gets_its_arguments_environment_and_the_cluster(
    make: Make, tmp_path: Path
) -> None:
    text = tmp_path / "said"
    body = f'echo "$1 $LOGIN_AS" > {text}; echo "$KUBERNETES_EXEC_INFO" >> {text}; '
    command = script(tmp_path, body + f"echo '{credential('sesame')}'")
    more = {"args": ["--now"], "env": [{"name": "LOGIN_AS", "value": "jane"}]}
    await make(plugin(command, provideClusterInfo=True, **more)).headers()
    message, info = text.read_text().splitlines()
    assert message == "--now jane"
    assert json.loads(info)["apiVersion"] == PLUGIN_VERSION
    assert json.loads(info)["spec"]["cluster"]["server"] == "https://127.0.0.1:1"


async def test_a_plugin_that_is_missing_is_named_with_its_hint(make: Make) -> None:
    with pytest.raises(NotAllowedError, match="no-such-plugin") as caught:
        await make(plugin("no-such-plugin", installHint="get it\nthere")).headers()
    assert (caught.value.why, caught.value.todo) == ("", "get it there")


async def test_a_plugin_that_fails_reports_its_last_output(make: Make, tmp_path: Path) -> None:
    command = script(tmp_path, "echo first >&2; printf '\\033[31msession expired\\n' >&2; exit 3")
    with pytest.raises(NotAllowedError, match="exit code 3") as caught:
        await make(plugin(command)).headers()
    assert caught.value.why == "session expired"


async def test_a_plugin_that_hangs_is_ended_with_all_that_it_started(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    command = script(tmp_path, f"sleep 60 & echo $! > {pids}; echo $$ >> {pids}; wait")
    timeout_s, found = 0.25, list[str]()
    while len(found) < 2:  # a busy machine needs longer to start it
        timeout_s *= 2
        monkeypatch.setattr(plugin_module, "TIMEOUT_S", timeout_s)
        with pytest.raises(NotAllowedError, match="did not answer"):
            await make(plugin(command)).headers()
        found = pids.read_text().split() if pids.exists() else []
    for pid in map(int, found):
        wait_until_gone(pid)


async def test_a_process_that_a_plugin_leaves_in_the_background_is_not_waited_for(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_module, "TIMEOUT_S", 60.0)
    monkeypatch.setattr(plugin_module, "OUTPUT_S", 0.2)
    pid = tmp_path / "pid"
    command = script(tmp_path, f"sleep 60 & echo $! > {pid}; echo '{credential('sesame')}'")
    assert (await make(plugin(command)).headers())["Authorization"] == "Bearer sesame"
    left = int(pid.read_text())
    assert is_running(left)
    os.kill(left, signal.SIGKILL)


def wait_until_gone(pid: int) -> None:
    """An orphan is reaped by its new parent, shortly after its end."""
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def open_files() -> set[str]:
    """The open files of this process, and the files in its temporary directory."""
    fds = {str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    return {path for path in fds if "memfd" in path} | {
        path.name for path in Path(tempfile.gettempdir()).iterdir()
    }


@pytest.mark.parametrize(
    "said",
    ["not json", "[]", '{"status": null}', "", credential(""), credential("t", "tomorrow")],
)
async def test_a_plugin_that_prints_garbage_is_reported(
    make: Make, tmp_path: Path, said: str
) -> None:
    with pytest.raises(NotAllowedError, match="plugin"):
        await make(plugin(script(tmp_path, f"echo '{said}'"))).headers()


@pytest.mark.parametrize("entry", [["list"], {"command": "true", "env": ["A=1"]}])
async def test_a_broken_exec_entry_is_reported(make: Make, entry: Any) -> None:
    with pytest.raises(UsageError, match="broken"):
        await make({"exec": entry}).headers()


def oidc(exp_s: float) -> dict[str, Any]:
    def part(said: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")

    token = f"{part({'alg': 'none'})}.{part({'exp': exp_s})}.sig"
    return {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}


async def test_valid_oidc_token_is_sent_without_the_kubernetes_package(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    user = oidc(int(time.time()) + 3600)
    token = user["auth-provider"]["config"]["id-token"]
    assert (await make(user).headers())["Authorization"] == f"Bearer {token}"


async def test_expired_oidc_token_names_the_extra_that_renews_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    with pytest.raises(NotAllowedError, match="has expired") as caught:
        await make(oidc(time.time() - 1)).headers()
    assert "cockpit[oidc]" in caught.value.todo


async def test_expired_oidc_token_is_renewed_through_the_kubernetes_package(make: Make) -> None:
    """It would ask the issuer, which this entry does not name."""
    with pytest.raises(NotAllowedError, match="returned no token") as caught:
        await make(oidc(time.time() - 1)).headers()
    assert "idp-issuer-url" in caught.value.why


async def test_an_unknown_auth_provider_is_reported(make: Make) -> None:
    with pytest.raises(NotAllowedError, match="auth-provider"):
        await make({"auth-provider": {"name": "nobody", "config": {}}}).headers()


async def test_no_secret_is_in_what_is_printed(make: Make, tmp_path: Path) -> None:
    known = make(plugin(script(tmp_path, f"echo '{credential('sesame')}'")))
    await known.headers()
    assert "sesame" not in repr(known) + repr(vars(known)) + repr(known.context)


async def test_certificates_in_the_kubeconfig_leave_no_file_behind(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "pki")
    pair = authority.sign("jane")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other processes write to /tmp
    (tmp_path / "config").touch()
    before = open_files()
    known = make(
        {
            "client-certificate-data": base64.b64encode(pair.certificate.read_bytes()).decode(),
            "client-key-data": base64.b64encode(pair.key.read_bytes()).decode(),
        },
        {
            "certificate-authority-data": base64.b64encode(
                authority.certificate.read_bytes()
            ).decode()
        },
    )
    context = await known.tls()
    assert context is not None
    assert [entry["subject"] for entry in context.get_ca_certs()] == [
        ((("commonName", "cockpit-test"),),)
    ]
    assert open_files() == before


async def test_encrypted_key_is_refused_without_a_password_prompt(
    make: Make, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "pki")
    pair = authority.sign("jane")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"sesame"),
        )
    )
    known = make({"client-certificate": str(pair.certificate), "client-key": str(pair.key)})
    with pytest.raises(UsageError, match="cannot be used") as caught:
        await known.tls()
    assert "encrypted" in caught.value.why


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({}, {"certificate-authority": "/no/such/file"}),
        ({}, {"certificate-authority-data": "AAAA"}),
        ({}, {"certificate-authority-data": "%%%"}),
        ({"client-certificate": "/no/such", "client-key": "/no/such"}, {}),
        ({"client-certificate-data": "AAAA", "client-key-data": "AAAA"}, {}),
    ],
)
async def test_certificates_that_are_none_are_reported(
    make: Make, user: dict[str, Any], cluster: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="cannot be used"):
        await make(user, cluster).tls()


async def test_a_server_without_tls_has_none(make: Make) -> None:
    assert await make({}, {"server": "http://127.0.0.1:8001"}).tls() is None


def test_a_context_without_a_server_is_reported(make: Make) -> None:
    with pytest.raises(UsageError, match="has no API server"):
        make({}, {"server": ""})


@pytest.mark.parametrize(
    "server",
    ["https://host:port", "https://[::1", "ftp://host", "host:6443", "https://", "\x1b[0m"],
)
def test_invalid_address_is_reported(make: Make, server: str) -> None:
    with pytest.raises(UsageError, match="is not a URL") as caught:
        make({}, {"server": server})
    assert "\x1b" not in str(caught.value)


def test_the_kubeconfigs_own_proxy_counts_before_the_environments(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://environment:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server = {"server": "https://api.example:6443"}
    assert make({}, server).proxy == "http://environment:3128"
    assert make({}, {**server, "proxy-url": "http://own:3128"}).proxy == "http://own:3128"
