"""The parts of Lambda Cloud's HTTP API (v1.10) that are used here, as typed calls.

Its limits: one request a second, and one launch in 12 s. Source: the API's OpenAPI description.
Every method may raise UnreachableError, NotAllowedError and ApiError.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec import Struct, convert, to_builtins

from cockpit.model.decoding.limited_json import loads
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError
from cockpit.model.secret import sendable
from cockpit.model.text import one_line
from cockpit.sources.json_server import JsonServer, ServerKind
from cockpit.sources.ray.http import AnswerError
from cockpit.sources.server_settings import ServerSettings, is_loopback

URL = "https://cloud.lambda.ai"
KEY, URL_VARIABLE = "LAMBDA_API_KEY", "LAMBDA_API_URL"
LAMBDA = ServerKind(
    name="Lambda Cloud",
    noun="Lambda Cloud's API",
    reach="Check the network of this host, and its proxy variables.",
    credentials=f"Make a key on the account's page, and set it in {KEY} or api_key_file.",
    refused=("refused", "Check that the account is active, and its billing address."),
    narrow="",
    timeout_s=30.0,
    limit_bytes=4 << 20,
)
TRIES = 5
LONGEST_WAIT_S = 60.0
"""Of a Retry-After that is respected."""
NO_CAPACITY = "instance-operations/launch/insufficient-capacity"
QUOTA = "global/quota-exceeded"
GONE = "global/object-does-not-exist"
IN_USE = "firewall-rulesets/firewall-ruleset-in-use"
ALIVE = ("booting", "active", "unhealthy")
"""The states of an instance that costs money; another one is ending or has ended."""
CLUSTER_TAG, NODE_TAG = "cockpit-cluster", "cockpit-node"
T = TypeVar("T")


class Pace(Struct, frozen=True):
    """Seconds between two requests, two launches, and two checks of what changes."""

    request_s: float = 1.0
    launch_s: float = 12.0
    poll_s: float = 5.0


PACE = Pace()


class ApiError(CockpitError):
    """The API answered with an error; `error_code` is its own."""

    def __init__(self, what: str, why: str = "", todo: str = "", *, error_code: str = "") -> None:
        super().__init__(what, why, todo)
        self.error_code = error_code


class _BusyError(UnreachableError):
    """Not done, try later: 429, with Retry-After or not."""

    retry_after_s: float | None = None


class Named(Struct, frozen=True):
    name: str


class Specs(Struct, frozen=True):
    vcpus: int = 0
    memory_gib: int = 0
    gpus: int = 0


class InstanceType(Struct, frozen=True):
    name: str
    price_cents_per_hour: int
    specs: Specs
    description: str = ""


class Offer(Struct, frozen=True):
    instance_type: InstanceType
    regions_with_capacity_available: tuple[Named, ...] = ()

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(region.name for region in self.regions_with_capacity_available)


class Tag(Struct, frozen=True):
    key: str
    value: str


class Instance(Struct, frozen=True):
    id: str
    status: str
    name: str | None = None
    ip: str | None = None
    private_ip: str | None = None
    tags: tuple[Tag, ...] | None = None

    @property
    def tag(self) -> dict[str, str]:
        return {tag.key: tag.value for tag in self.tags or ()}


class SshKey(Struct, frozen=True):
    id: str
    name: str
    public_key: str


class FileSystem(Struct, frozen=True):
    name: str
    region: Named
    mount_point: str = ""


class Ruleset(Struct, frozen=True):
    id: str
    name: str
    region: Named


class Launch(Struct, frozen=True, rename={"region": "region_name", "type": "instance_type_name"}):
    region: str
    type: str
    ssh_key_names: tuple[str]
    name: str
    hostname: str
    tags: tuple[Tag, ...]
    user_data: str
    file_system_names: tuple[str, ...] = ()
    firewall_rulesets: tuple[dict[str, str], ...] = ()
    image: dict[str, str] | None = None


def settings(key_file: str) -> ServerSettings:
    """The key is that of the environment, else of the file. Raises UsageError, NotAllowedError."""
    url = os.environ.get(URL_VARIABLE, "") or URL
    if not url.startswith("https://") and not is_loopback(url):
        raise UsageError(f"{URL_VARIABLE} is not an address with https.", "The key would be read.")
    if value := os.environ.get(KEY, ""):
        return ServerSettings(url.rstrip("/"), token=sendable(value, KEY), set_by="environment")
    if not key_file:
        raise UsageError(
            "There is no API key for Lambda Cloud.",
            f"Neither {KEY} nor api_key_file under [lambda] is set.",
            "Make one on the account's page of API keys.",
        )
    path = Path(key_file).expanduser()
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise NotAllowedError(
                    f"The file of the API key, {path}, is open to other users.",
                    "The key can launch instances that you pay for.",
                    f"Run: chmod 600 {path}",
                )
            value = file.read(4096).decode()
    except UnicodeDecodeError as error:  # its text quotes the bytes
        raise UsageError(f"The file of the API key, {path}, is not text.") from error
    except OSError as error:
        raise UsageError(
            f"The file of the API key, {path}, cannot be read.", error.strerror or str(error)
        ) from error
    return ServerSettings(url.rstrip("/"), token=sendable(value, str(path)), set_by="file")


class _Server(JsonServer):
    """With the API's own errors."""

    def refused(
        self, on: str, status: int, answer: bytes, headers: Mapping[str, str]
    ) -> CockpitError:
        code, message, suggestion = _error(answer)
        if status == 429:
            busy = _BusyError(f"{self.where} limits the rate of requests{on}.", f"HTTP {status}")
            busy.retry_after_s = _seconds(headers.get("Retry-After", ""))
            return busy
        if status in (401, 403) or status >= 500 or not code:
            return super().refused(on, status, message.encode() or answer, headers)
        why = self.plain(f"{message} ({code})" if message else code)
        return ApiError(f"{self.where} refused{on}.", why, self.plain(suggestion), error_code=code)


class Api:
    """Bound to the event loop of the first request. End it with `aclose`."""

    def __init__(self, settings: ServerSettings, pace: Pace | None = None) -> None:
        self.pace = PACE if pace is None else pace
        self._server = _Server(LAMBDA, settings)
        self._next_s = 0.0
        self._next_launch_s = 0.0

    async def aclose(self) -> None:
        await self._server.aclose()

    async def offers(self) -> dict[str, Offer]:
        """By the type's name."""
        return await self._get("instance-types", dict[str, Offer])

    async def instances(self) -> tuple[Instance, ...]:
        return await self._get("instances", tuple[Instance, ...])

    async def ssh_keys(self) -> tuple[SshKey, ...]:
        return await self._get("ssh-keys", tuple[SshKey, ...])

    async def file_systems(self) -> tuple[FileSystem, ...]:
        return await self._get("file-systems", tuple[FileSystem, ...])

    async def rulesets(self) -> tuple[Ruleset, ...]:
        return await self._get("firewall-rulesets", tuple[Ruleset, ...])

    async def add_ssh_key(self, name: str, public_key: str) -> SshKey:
        body = {"name": name, "public_key": public_key}
        return self._parsed(await self._send("POST", "ssh-keys", "an SSH key", body), SshKey)

    async def add_ruleset(self, name: str, region: str, networks: Sequence[str]) -> Ruleset:
        """SSH from the networks, and everything between hosts with private addresses."""
        # `source_network` is a public network: private traffic does not pass the firewall.
        rules = [
            {
                "protocol": "tcp",
                "port_range": [22, 22],
                "source_network": network,
                "description": "ssh, by cockpit",
            }
            for network in networks
        ]
        body = {"name": name, "region": region, "rules": rules}
        answer = await self._send("POST", "firewall-rulesets", "a firewall ruleset", body)
        return self._parsed(answer, Ruleset)

    async def launch(self, launch: Launch) -> str:
        """The instance's id. After an UnreachableError it may have been launched all the same."""
        await _until(self._next_launch_s)
        self._next_launch_s = time.monotonic() + self.pace.launch_s
        plain: dict[str, Any] = to_builtins(launch)
        body = {key: value for key, value in plain.items() if value not in (None, [], ())}
        answer = await self._send(
            "POST", "instance-operations/launch", f"the launch of {launch.name}", body
        )
        ids = self._parsed(answer, dict[str, tuple[str, ...]]).get("instance_ids", ())
        if not ids:
            raise self._server.strange("it launched no instance")
        return ids[0]

    async def terminate(self, ids: Sequence[str]) -> None:
        body = {"instance_ids": list(ids)}
        await self._send("POST", "instance-operations/terminate", "the end of instances", body)

    async def delete(self, kind: str, identifier: str) -> None:
        """Of `ssh-keys` or `firewall-rulesets`, which may be deleted already."""
        try:
            await self._send(
                "DELETE", f"{kind}/{quote(identifier, safe='')}", f"the removal from {kind}", None
            )
        except ApiError as error:
            if error.error_code != GONE:
                raise

    async def _get(self, path: str, kind: type[T]) -> T:
        return self._parsed(await self._send("GET", path, path, None), kind)

    def _parsed(self, answer: Mapping[str, Any], kind: type[T]) -> T:
        with self._server.understood():
            return convert(answer["data"], kind)

    async def _send(
        self, method: str, path: str, name: str, body: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """Repeated after 429, which changed nothing; reads also after other failures."""
        for number in range(1, TRIES + 1):
            await _until(self._next_s)
            self._next_s = time.monotonic() + self.pace.request_s
            try:
                json = {} if body is None else {"json": body}
                return await self._server.ask(method, f"/api/v1/{path}", name, **json)
            except UnreachableError as error:
                repeatable = method == "GET" or isinstance(error, _BusyError)
                if not repeatable or number == TRIES:
                    raise
                asked_s = error.retry_after_s if isinstance(error, _BusyError) else None
                wait_s = self.pace.request_s * 2**number if asked_s is None else asked_s
                self._next_s = time.monotonic() + min(wait_s, LONGEST_WAIT_S)
            except AnswerError as error:
                if method != "GET" or error.status < 500 or number == TRIES:
                    raise _unknown(error) if error.status >= 500 else error from error
        raise AssertionError("the loop returns or raises")


def _unknown(error: AnswerError) -> UnreachableError:
    """A server's own failure: whether the change was made is not known."""
    return UnreachableError(error.what, error.why, error.todo)


def _error(answer: bytes) -> tuple[str, str, str]:
    """Code, message and suggestion; empty for an answer that is not the API's."""
    try:
        found = loads(answer)["error"]
        texts = [found.get(key) or "" for key in ("code", "message", "suggestion")]
        code, message, suggestion = (one_line(str(text)) for text in texts)
    except (ValueError, TypeError, LookupError, AttributeError):
        return "", "", ""
    return code, message, suggestion


def _seconds(retry_after: str) -> float | None:
    """The header in its form of seconds (RFC 9110, 10.2.3); a date is not used here."""
    return float(retry_after) if retry_after.strip().isdecimal() else None


async def _until(at_s: float) -> None:
    if (wait_s := at_s - time.monotonic()) > 0:
        await asyncio.sleep(wait_s)
