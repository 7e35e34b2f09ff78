"""The job and package routes of a Ray dashboard, in memory: a transport for `Dashboard`."""

from __future__ import annotations

import json
from typing import Any

import httpx

from cockpit.model.cluster import DashboardRoute
from cockpit.sources.ray.dashboard import Dashboard
from tests.sources.fake_dashboard import HEAD, job, node


class JobsApi:
    def __init__(self) -> None:
        self.packages: dict[str, bytes] = {}
        self.uploads: list[str] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        self.submitted: list[dict[str, Any]] = []
        self.head = HEAD
        """The node of the drivers."""
        self.dead_nodes: set[str] = set()
        self.nodes = [node()]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, name = request.url.path, request.url.path.rpartition("/")[2]
        if path.startswith("/api/packages/gcs/"):
            if request.method == "PUT":
                self.uploads.append(name)
                self.packages[name] = request.content
            return httpx.Response(200 if name in self.packages else 404)
        if path == "/nodes":
            return httpx.Response(200, json={"data": {"summary": self.nodes}})
        if path == "/api/v0/nodes":
            state = "DEAD" if request.url.params["filter_values"] in self.dead_nodes else "ALIVE"
            return httpx.Response(200, json={"data": {"result": {"result": [{"state": state}]}}})
        if path == "/api/jobs/" and request.method == "POST":
            sent = json.loads(request.content)
            name = sent["submission_id"]
            if name in self.jobs:
                return httpx.Response(500, text=f"ValueError: Job with submission_id {name} exists")
            self.submitted.append(sent)
            self.jobs[name] = job(name) | {"driver_node_id": self.head} | sent
            return httpx.Response(200, json={"submission_id": name})
        if path == "/api/jobs/":
            return httpx.Response(200, json=list(self.jobs.values()))
        name = path.split("/")[3]
        if name not in self.jobs:
            return httpx.Response(404, text=f"Job {name} does not exist")
        if path.endswith("/stop"):
            self.jobs[name]["status"] = "STOPPED"
            return httpx.Response(200, json={"stopped": True})
        if request.method == "DELETE":
            del self.jobs[name]
            return httpx.Response(200, json={"deleted": True})
        return httpx.Response(200, json=self.jobs[name])

    @property
    def commands(self) -> list[str]:
        """The entrypoints of the jobs that were submitted, in their order."""
        return [sent["entrypoint"] for sent in self.submitted]

    def dashboard(self) -> Dashboard:
        return Dashboard(DashboardRoute("http://ray"), transport=httpx.MockTransport(self))
