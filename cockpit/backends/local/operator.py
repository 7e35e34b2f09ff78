"""The operator of one local cluster: a process that reconciles its state with the spec.

It does on this host what KubeRay's operator and the kubelet do on Kubernetes:

- A pod that ends or is killed is `Failed` with the reason and remains listed for some time; its
  replacement, with another name and address, is created at once. When pods of a group end before
  they were ready, the next one is delayed by a backoff.
- A pod that is deleted with a grace period is `Terminating`: SIGTERM to its `ray start`, which lets
  the raylet
  drain (30 s at most, Ray's default), then SIGKILL of everything in it. It is replaced when it is
  missing.
- When the head has ended, another is started at the same address and ports, and every worker is
  restarted under its name, once the new GCS listens: a GCS without external storage knows none of
  the old raylets. The run and its driver are lost, as with KubeRay.
- When the operator ends, the pods continue, and are not replaced.

All state files are written by this process alone; others send requests (`requests`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from cockpit.backends.local import files as local_files
from cockpit.backends.local.files import ClusterFiles, RunFiles
from cockpit.backends.local.notices import NoticeWriter
from cockpit.backends.local.pods.pods import Pods
from cockpit.backends.local.pods.process import end, find, identify
from cockpit.backends.local.pods.readiness import Probe
from cockpit.backends.local.requests import serve
from cockpit.backends.local.spec import GRACE_S, ClusterSpec, scaled_spec
from cockpit.backends.local.state import Status, read_spec, write_status
from cockpit.config import paths
from cockpit.model.error import ChangedError, CockpitError, UsageError
from cockpit.model.scale import ScaleRequest

TICK_S = 1.0
"""How often it looks although nothing happened: deadlines, and its sign of life."""


class Operator:
    def __init__(self, spec: ClusterSpec, files: ClusterFiles) -> None:
        operator = identify(os.getpid())
        assert operator is not None
        self.spec = spec
        self._files, self._run = files, RunFiles.of(spec.uid)
        self._wake = asyncio.Event()
        self._notices = NoticeWriter(files, time.time)
        self._pods = Pods(spec, files, self._notices, self._wake.set)
        self._probe = Probe(spec, files.token.read_text().strip(), self._pods, self._wake.set)
        self._status = Status(at_s=0.0, operator=operator, pods=())
        self._trouble = ""

    async def run(self) -> None:
        """Until the process is ended or the cluster's state directory was removed."""
        self._publish()
        async with asyncio.TaskGroup() as tasks:
            server = await serve(self._run.socket, self._answer)
            probing = tasks.create_task(self._probe.run())
            while self._files.spec.exists():
                self._wake.clear()
                await self._pods.reconcile(self.spec)
                self._publish()
                await self._sleep()
            probing.cancel()
            server.close()
        # The directory was removed by hand: without it these processes could not be ended.
        await asyncio.to_thread(end, lambda: find(self.spec.uid, self._pods.traces, self._root))
        local_files.remove(self._run.directory)

    @property
    def _root(self) -> str:
        return str(self._run.directory)

    async def _sleep(self) -> None:
        wait_s = min(TICK_S, max(0.01, self._pods.next_deadline_s - time.time()))
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _publish(self) -> None:
        """Write what changed; without a change, only touch the file as a sign of life."""
        status = replace(
            self._status,
            pods=self._pods.statuses,
            was_ready=self._status.was_ready or self._pods.all_ready(self.spec),
            ray_version=self._probe.ray_version,
        )
        if status == self._status and self._files.status.exists():
            os.utime(self._files.status)
            return
        before = self._status
        self._status = replace(status, at_s=time.time())
        if not self._files.directory.exists():
            return
        try:
            write_status(self._files, self._status)
        except OSError as error:
            if not before.at_s:
                raise  # `up` reports it, and removes what there is
            # The file grows old, and readers report that; it is retried in each round.
            self._status = before
            if str(error) != self._trouble:
                self._trouble = str(error)
                print(f"the status cannot be written: {error}", file=sys.stderr, flush=True)

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["verb"]:
            case "delete_pod":
                grace_s = float(request["grace_s"])
                pod = str(request["pod"])
                self._pods.require_uid(pod, str(request["uid"]))
                await self._pods.delete(pod, grace_s)
                answer: dict[str, Any] = {}
            case "scale":
                answer = await self._scale(convert(request, ScaleRequest))
            case verb:
                raise UsageError(f"The operator does not know the verb {verb!r}.")
        self._publish()
        self._wake.set()
        return answer

    async def _scale(self, request: ScaleRequest) -> dict[str, Any]:
        uids = request.remove_uids or [""] * len(request.remove)
        for pod, uid in zip(request.remove, uids, strict=True):
            self._pods.check_removable(pod, request.group)
            if uid:
                self._pods.require_uid(pod, uid)
        before = self.spec.group(request.group).desired
        if request.expected is not None and before != request.expected:
            raise ChangedError(request.group, before, request.expected)
        self.spec, warning = scaled_spec(self.spec, request)
        paths.replace_file(self._files.spec, local_files.as_text(to_builtins(self.spec)))
        after = self.spec.group(request.group).desired
        for pod in request.remove:
            await self._pods.delete(pod, GRACE_S)
        self._notices.write(
            "WorkerGroup", request.group, "Scaled", f"from {before} to {after} pods"
        )
        return {"before": before, "after": after, "warning": warning}


def main(argv: list[str]) -> int:
    """`python -m cockpit.backends.local.operator STATE_DIR`."""
    os.umask(0o077)
    # A hang-up or an interrupt in the terminal that started the cluster must not end it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    files = ClusterFiles(Path(argv[0]))
    spec = read_spec(files)
    if spec is None:
        raise CockpitError(f"{files.spec} is not there.")
    asyncio.run(Operator(spec, files).run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
