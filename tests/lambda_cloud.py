"""Lambda Cloud for tests: an HTTP server written from its OpenAPI description (v1.10).

It checks what the description requires, and makes its errors. With a folder, an instance that has
booted is an sshd on a loopback address, with the host key of its user data.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cockpit.backends.local.address import choose_ports
from tests.sshd import Sshd

KEY = "secret_cockpit_0p3n-s3same"
REGIONS = {"us-east-1": "Virginia, USA", "us-west-1": "California, USA"}
LAUNCH = {
    "region_name": "",
    "instance_type_name": "",
    "ssh_key_names": "",
    "file_system_names": "",
    "hostname": r"[a-z0-9][0-9a-z-]{0,62}",
    "name": r".{0,64}",
    "image": "",
    "user_data": "",
    "tags": "",
    "firewall_rulesets": "",
}
"""The properties of a launch that are used here, with their patterns."""
PATH = "/api/v1/"
Json = dict[str, Any]
NOT_FOUND = (404, "global/object-does-not-exist", "It does not exist.")
INVALID = (400, "global/invalid-parameters", "Invalid request data.")


class Refused(Exception):
    """The answer is an error: status, code, message, and headers."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(code)
        self.status, self.code, self.message, self.headers = status, code, message, headers


class LambdaCloud:
    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.types = {
            "cpu_4x_general": _type("cpu_4x_general", 24, 0),
            "gpu_1x_a10": _type("gpu_1x_a10", 75, 1),
            "gpu_8x_h100_sxm5": _type("gpu_8x_h100_sxm5", 2392, 8),
        }
        self.capacity = {name: ["us-east-1", "us-west-1"] for name in self.types}
        self.keys: list[Json] = []
        self.rulesets: list[Json] = []
        self.file_systems: list[Json] = []
        self.instances: dict[str, Json] = {}
        self.user_data: dict[str, str] = {}
        self.asked: list[str] = []
        """`METHOD path` of each request."""
        self.boots_after = 1
        """The number of lists in which a new instance is booting."""
        self.half_made = 0
        """The number of lists in which an instance that is active has no address."""
        self.lag = 0
        """The number of lists in which a new instance is missing."""
        self.faults: list[tuple[str, Refused]] = []
        """The next request that begins with this text gets this answer."""
        self.before: Callable[[str], None] = lambda request: None
        self.after: Callable[[str], None] = lambda request: None
        """Around each change, with the request: a test ends its client there."""
        self.hosts: dict[str, Sshd] = {}
        self.url = ""
        self._lock = threading.Lock()
        self._next = 1
        self._port = choose_ports(1)[0] if folder else 22

    @contextmanager
    def serve(self) -> Iterator[LambdaCloud]:
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer()

            do_POST = do_DELETE = do_GET

            def _answer(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(size)) if size else {}
                headers: dict[str, str] = {}
                try:
                    data = cloud.answer(self.command, self.path, self.headers, body)
                    status, answer = 200, {"data": data}
                except Refused as refused:
                    status, headers = refused.status, refused.headers
                    answer = {"error": {"code": refused.code, "message": refused.message}}
                text = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that was killed

        server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
            for host in self.hosts.values():
                host.stop()

    @property
    def alive(self) -> list[Json]:
        return [one for one in self.instances.values() if one["status"] not in _ENDED]

    @property
    def port(self) -> int:
        """Of the instances' sshd."""
        return self._port

    def answer(self, method: str, path: str, headers: Any, body: Json) -> Any:
        request = f"{method} {path.removeprefix(PATH)}"
        with self._lock:
            self.asked.append(request)
            if headers.get("Authorization") != f"Bearer {KEY}":
                raise Refused(401, "global/invalid-api-key", "API key was invalid, expired, …")
            for number, (begins, fault) in enumerate(self.faults):
                if request.startswith(begins):
                    del self.faults[number]
                    raise fault
            if method == "GET":
                return self._listed(path.removeprefix(PATH))
            self.before(request)
            made = self._changed(request, body)
            self.after(request)
            return made

    def _listed(self, what: str) -> Any:
        if what == "instance-types":
            return {
                name: {
                    "instance_type": each,
                    "regions_with_capacity_available": [
                        {"name": region, "description": REGIONS[region]}
                        for region in self.capacity[name]
                    ],
                }
                for name, each in self.types.items()
            }
        if what == "instances":
            return self._instances()
        lists = {
            "ssh-keys": self.keys,
            "firewall-rulesets": self.rulesets,
            "file-systems": self.file_systems,
        }
        if what not in lists:
            raise Refused(404, "global/not-found", "The requested resource was not found.")
        return lists[what]

    def _changed(self, request: str, body: Json) -> Any:
        method, _, what = request.partition(" ")
        if request == "POST ssh-keys":
            if not 0 < len(body["name"]) <= 64 or not body["public_key"].startswith("ssh-"):
                raise Refused(*INVALID)
            self.keys.append({"id": self._id(), **body})
            return self.keys[-1]
        if request == "POST firewall-rulesets":
            if len(body["name"]) > 64 or body["region"] not in REGIONS:
                raise Refused(*INVALID)
            body["region"] = {"name": body["region"], "description": REGIONS[body["region"]]}
            made = {"id": self._id(), "created": "2026-01-01T00:00:00Z", "instance_ids": []}
            self.rulesets.append(made | body)
            return self.rulesets[-1]
        if request == "POST instance-operations/launch":
            return {"instance_ids": [self._launched(body)]}
        if request == "POST instance-operations/terminate":
            return {
                "terminated_instances": [self._terminated(each) for each in body["instance_ids"]]
            }
        if method == "DELETE":
            return self._deleted(*what.split("/"))
        raise Refused(404, "global/not-found", "The requested resource was not found.")

    def _launched(self, body: Json) -> str:
        kind, region = body.get("instance_type_name", ""), body.get("region_name", "")
        for name, value in body.items():
            pattern = LAUNCH.get(name)
            if pattern is None or (pattern and not re.fullmatch(pattern, value)):
                raise Refused(400, INVALID[1], f"Invalid request data: {name}.")
        for tag in body.get("tags", ()):
            if not re.fullmatch(r"[a-z][a-z0-9-:]{1,54}", tag["key"]) or len(tag["value"]) > 128:
                raise Refused(400, INVALID[1], "Invalid request data: tags.")
        keys = [key for key in self.keys if key["name"] in body["ssh_key_names"]]
        known = {ruleset["id"] for ruleset in self.rulesets}
        if len(body["ssh_key_names"]) != 1 or kind not in self.types or not keys:
            raise Refused(*NOT_FOUND)
        if not {each["id"] for each in body.get("firewall_rulesets", ())} <= known:
            raise Refused(*NOT_FOUND)
        for name in body.get("file_system_names", ()):
            if not any(
                fs["name"] == name and fs["region"]["name"] == region for fs in self.file_systems
            ):
                code = "instance-operations/launch/file-system-in-wrong-region"
                raise Refused(400, code, "The file system is in another region.")
        if region not in self.capacity[kind]:
            code = "instance-operations/launch/insufficient-capacity"
            raise Refused(400, code, "Not enough capacity to fulfill launch request.")
        identifier = self._id()
        self.user_data[identifier] = body.get("user_data", "")
        self.instances[identifier] = {
            "id": identifier,
            "name": body.get("name"),
            "status": "booting",
            "ssh_key_names": body["ssh_key_names"],
            "file_system_names": body.get("file_system_names", []),
            "region": {"name": region, "description": REGIONS[region]},
            "instance_type": self.types[kind],
            "hostname": body.get("hostname"),
            "tags": body.get("tags", []),
            "firewall_rulesets": body.get("firewall_rulesets", []),
            "actions": {},
            "public_key": keys[0]["public_key"],
            "lists": 0,
        }
        return identifier

    def _instances(self) -> list[Json]:
        shown = []
        for one in self.instances.values():
            one["lists"] += 1
            booted = one["lists"] > self.boots_after and "ip" not in one
            if booted and one["status"] in ("booting", "active"):
                self._boot(one)
            elif one["status"] == "terminating":
                one["status"] = "terminated"
                shown.append({**one, "status": "terminating"})
                continue
            if one["lists"] > self.lag and one["status"] not in ("terminated", "vanished"):
                hidden = ("public_key", "lists")
                shown.append({key: each for key, each in one.items() if key not in hidden})
        return shown

    def _boot(self, one: Json) -> None:
        number = int(one["id"], 16)
        one["status"] = "active"
        if one["lists"] <= self.boots_after + self.half_made:
            return
        one["ip"] = one["private_ip"] = f"127.{200 + self._port % 50}.{self._port % 250}.{number}"
        if self.folder is None:
            return
        (self.folder / "user.pub").write_text(one["public_key"])
        host = self.hosts[one["id"]] = Sshd(self.folder, one["ip"], self._port)
        first, _, text = self.user_data[one["id"]].partition("\n")
        assert first == "#cloud-config"
        keys = json.loads(text)["ssh_keys"]
        (host.folder / "key").write_text(keys["ed25519_private"])
        (host.folder / "key.pub").write_text(keys["ed25519_public"])
        host.start()

    def _terminated(self, identifier: str) -> Json:
        if identifier not in self.instances or self.instances[identifier]["status"] in _ENDED:
            raise Refused(*NOT_FOUND)
        self.instances[identifier]["status"] = "terminating"
        if host := self.hosts.pop(identifier, None):
            host.stop()
        return self.instances[identifier]

    def _deleted(self, kind: str, identifier: str) -> Json:
        listed = self.keys if kind == "ssh-keys" else self.rulesets
        found = [each for each in listed if each["id"] == identifier]
        if not found:
            raise Refused(*NOT_FOUND)
        if kind == "firewall-rulesets" and any(
            {"id": identifier} in one["firewall_rulesets"] for one in self.alive
        ):
            code = "firewall-rulesets/firewall-ruleset-in-use"
            raise Refused(400, code, "Firewall ruleset is in use by one or more instances.")
        listed.remove(found[0])
        return {}

    def _id(self) -> str:
        self._next += 1
        return f"{self._next:032x}"


_ENDED = ("terminated", "preempted", "vanished")


def _type(name: str, cents: int, gpus: int) -> Json:
    return {
        "name": name,
        "description": name,
        "gpu_description": "N/A",
        "price_cents_per_hour": cents,
        "specs": {"vcpus": 2, "memory_gib": 16, "storage_gib": 512, "gpus": gpus},
    }
