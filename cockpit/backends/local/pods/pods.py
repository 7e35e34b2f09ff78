"""All pods of a local cluster: made, started, watched, ended and made again."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Callable, Coroutine, Sequence

from cockpit.backends.local import files as local_files
from cockpit.backends.local.address import choose_address, port_is_free
from cockpit.backends.local.files import ClusterFiles, RunFiles
from cockpit.backends.local.notices import NoticeWriter
from cockpit.backends.local.pods.live_pod import LivePod, gpus_here, new_pod, pod_name, take_gpus
from cockpit.backends.local.pods.pod_end import PodEnd
from cockpit.backends.local.pods.pod_logs import how_it_ended
from cockpit.backends.local.pods.process import PodTrace, kill
from cockpit.backends.local.pods.ray_start import early_imports, pod_environment, ray_start_argv
from cockpit.backends.local.spec import GRACE_S, HEAD_GROUP, HEAD_RESOURCES, ClusterSpec
from cockpit.backends.local.state import PodStatus
from cockpit.format import in_seconds
from cockpit.model.cluster import PodPhase, Resources
from cockpit.model.error import CockpitError, ReplacedError, UsageError
from cockpit.model.recovery import profile
from cockpit.model.secret import masked

FAILED_SHOWN_S = 15.0
"""How long a dead pod remains in the list, so that its end is visible."""
BACKOFF_MAX_S = 30.0
SLOW_START_S = 20.0
"""After this a pod that is not ready shows the last line of its log."""


class Pods:
    def __init__(
        self,
        spec: ClusterSpec,
        files: ClusterFiles,
        notices: NoticeWriter,
        wake: Callable[[], None],
    ) -> None:
        self._spec, self._files, self._notices, self._wake = spec, files, notices, wake
        self._run = RunFiles.of(spec.uid)
        self._pods: dict[str, LivePod] = {}
        self._used: list[str] = []
        self._failures: dict[str, int] = {}
        self._gpus = gpus_here()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: set[str] = set()
        """Pods that a task of `_keep_deadlines` is ending."""
        self._end = PodEnd(spec.uid, str(self._run.directory), lambda: self.traces, notices)
        self.gcs_listens = False

    @property
    def statuses(self) -> tuple[PodStatus, ...]:
        return tuple(pod.status for pod in self._pods.values())

    @property
    def traces(self) -> tuple[PodTrace, ...]:
        return tuple(pod.trace for pod in self._pods.values())

    @property
    def head(self) -> LivePod | None:
        return next((pod for pod in self._living(HEAD_GROUP)), None)

    @property
    def started(self) -> tuple[LivePod, ...]:
        """Pods with processes that have not ended."""
        return tuple(pod for pod in self._pods.values() if pod.process and not pod.is_over)

    @property
    def next_deadline_s(self) -> float:
        """When `reconcile` has something to do next, if nothing happens before."""
        pods = self._pods.values()
        times = [pod.kill_at_s for pod in pods if pod.kill_at_s and pod.name not in self._ending]
        times += [pod.forget_at_s for pod in pods if pod.forget_at_s]
        times += [pod.start_at_s for pod in self._waiting() if pod.start_at_s > time.time()]
        return min(times, default=math.inf)

    def all_ready(self, spec: ClusterSpec) -> bool:
        ready = [pod.pod.group for pod in self._pods.values() if pod.pod.ready]
        wanted = [(HEAD_GROUP, 1), *((group.name, group.desired) for group in spec.groups)]
        return all(ready.count(name) >= count for name, count in wanted)

    async def reconcile(self, spec: ClusterSpec) -> None:
        """Reconcile with the spec and the time."""
        self._spec = spec
        await self._keep_deadlines(time.time())
        if self.head is None:
            self._make(HEAD_GROUP, HEAD_RESOURCES)
        for group in spec.groups:
            living = self._living(group.name)
            for _ in range(group.desired - len(living)):
                self._make(group.name, group.resources)
            await self._shrink(living, len(living) - group.desired)
        for pod in self._waiting():
            await self._try_start(pod, time.time())

    async def delete(self, name: str, grace_s: float) -> None:
        """SIGTERM and `grace_s` seconds, or with 0 SIGKILL of everything in the pod, at once."""
        pod = self._named(name)
        if pod.process is None:
            await self._forget(pod)
            self._notices.write("Pod", name, "Deleted", "before it was started")
        elif grace_s <= 0:
            self._notices.write("Pod", name, "Killing", "SIGKILL at once")
            await self._end.once([name])
        elif pod.kill_at_s is None:
            self._notices.write(
                "Pod", name, "Killing", f"SIGTERM, SIGKILL after {in_seconds(grace_s)}"
            )
            pod.kill_at_s = time.time() + grace_s
            pod.enter(
                PodPhase.TERMINATING, reason=f"grace {in_seconds(grace_s)}", ready=pod.pod.ready
            )
            kill(pod.process, signal.SIGTERM)
        else:
            pod.kill_at_s = min(pod.kill_at_s, time.time() + grace_s)
        self._wake()

    def require_uid(self, name: str, uid: str) -> None:
        """Raise ReplacedError unless the pod of this name is the one in the plan."""
        if self._named(name).pod.uid != uid:
            raise ReplacedError("Pod", name)

    def check_removable(self, name: str, group: str) -> None:
        if (pod := self._named(name)).pod.group != group:
            raise UsageError(f"Pod {name} is of group {pod.pod.group}, not of {group}.")

    def register(self, pod: LivePod) -> None:
        """Ray lists the pod's node as alive: it is ready."""
        pod.ready_s = pod.ready_s or time.time()
        self._failures.pop(pod.pod.group, None)
        phase = PodPhase.RUNNING if pod.kill_at_s is None else PodPhase.TERMINATING
        pod.enter(phase, ready=True)
        took_s = pod.ready_s - pod.started_s
        self._notices.write(
            "Pod", pod.name, "Ready", f"registered with Ray after {in_seconds(took_s, 1)}"
        )

    def unregister(self, pod: LivePod, why: str) -> None:
        """Its processes live, but Ray has given its node up, or the head does not answer."""
        pod.enter(pod.pod.phase, reason=why, ready=False)
        self._notices.write("Pod", pod.name, "Unready", why, warning=True)

    def _named(self, name: str) -> LivePod:
        if (pod := self._pods.get(name)) is None:
            names = ", ".join(self._pods) or "none"
            raise UsageError(
                f"There is no pod {name!r} in local cluster {self._spec.name}.", f"Pods: {names}."
            )
        if pod.is_over:
            raise UsageError(f"Pod {name} is not running.", f"It is over: {pod.pod.reason}.")
        return pod

    def _living(self, group: str) -> list[LivePod]:
        """A terminating pod holds its place until it is removed, as on Kubernetes."""
        pods = self._pods.values()
        return [pod for pod in pods if pod.pod.group == group and not pod.is_over]

    def _waiting(self) -> list[LivePod]:
        return [pod for pod in self._pods.values() if pod.process is None and not pod.is_over]

    def _make(self, group: str, resources: Resources) -> None:
        now = time.time()
        ip = self._spec.head_ip if group == HEAD_GROUP else self._take_address()
        failures = self._failures.get(group, 0)
        wait_s = min(BACKOFF_MAX_S, 2.0 ** (failures - 1)) if failures else 0.0
        name = pod_name(self._spec.name, group)
        pod = LivePod(
            pod=new_pod(name, group, ip, now),
            resources=resources,
            directory=self._run.pod(name),
            log=self._files.pod_log(name),
            start_at_s=now + wait_s,
        )
        self._pods[name] = pod
        self._notices.write("Pod", name, "Created", f"at {ip} in group {group}")
        if failures:
            why = f"back-off {in_seconds(wait_s)}: {failures} pods of the group died at start"
            pod.enter(PodPhase.PENDING, reason=why)
            self._notices.write("Pod", name, "BackOff", why, warning=True)

    def _take_address(self) -> str:
        ip = choose_address(self._spec.network, self._used)
        self._used = [*(used for used in self._used if used != ip), ip]
        return ip

    async def _try_start(self, pod: LivePod, now: float) -> None:
        """Start it, unless it must wait; then the reason names for what."""
        if now < pod.start_at_s:
            return
        if not pod.is_head and not self.gcs_listens:
            pod.enter(PodPhase.PENDING, reason="waits for the head's GCS")
            return
        if (gpus := self._free_gpus(pod.resources)) is None:
            wanted = math.ceil(pod.resources.gpus)
            why = f"no free GPU: needs {wanted}, the machine has {len(self._gpus)}"
            if pod.pod.reason != why:
                pod.enter(PodPhase.PENDING, reason=why)
                self._notices.write("Pod", pod.name, "FailedScheduling", why, warning=True)
            return
        if pod.is_head and (taken := self._taken_port()):
            # Ray itself would report it after 40 s, in the log of the GCS.
            self._fail(pod, f"port {taken} is taken by another process", now)
            return
        pod.gpus = gpus
        environment = pod_environment(self._spec, self._files.token, pod.name, gpus)
        before: Sequence[str] = ()
        if self._may_join_a_run(pod):
            before, variable = early_imports(self._spec, pod.name)
            environment |= variable
        try:
            await pod.start(
                ray_start_argv(self._spec, pod.pod, pod.resources), environment, now, before
            )
        except OSError as error:
            self._fail(pod, f"cannot be started: {error}", now)
            return
        if self._pods.get(pod.name) is not pod:
            self._spawn(self._discard(pod))  # deleted while it was being started
            return
        pod.enter(PodPhase.PENDING, reason="starting")
        self._notices.write("Pod", pod.name, "Started", f"ray start, process {pod.session}")
        self._spawn(self._watch(pod))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run it beside `reconcile`, which must not wait for a process that does not end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _may_join_a_run(self, pod: LivePod) -> bool:
        """Under a profile that keeps spare processes. There is no run before the head is ready."""
        head_is_ready = self.head is not None and self.head.ready_s is not None
        return bool(profile(self._spec.recovery).callbacks) and not pod.is_head and head_is_ready

    def _free_gpus(self, resources: Resources) -> tuple[str, ...] | None:
        taken = [gpu for pod in self.started for gpu in pod.gpus]
        return take_gpus(math.ceil(resources.gpus), self._gpus, taken)

    def _taken_port(self) -> int | None:
        ports = (self._spec.gcs_port, self._spec.dashboard_port, self._spec.client_port)
        return next((port for port in ports if not port_is_free(port)), None)

    async def _watch(self, pod: LivePod) -> None:
        """Wait for the end of the pod's first process, which is the end of the pod."""
        child = pod.child
        assert child is not None
        exit_code = await child.wait()
        if pod.child is not child:
            return  # restarted on purpose; another task watches the new one
        now = time.time()
        reason = masked(how_it_ended(exit_code, pod.log))
        await self._end.at_last(pod)
        if pod.child is not child:
            return  # the head was lost while processes of this pod did not end
        if pod.kill_at_s is not None:
            await self._forget(pod)
            self._notices.write(
                "Pod",
                pod.name,
                "Deleted",
                f"ended after its grace period began: {reason}"
                if exit_code < 0
                else "drained and ended",
            )
        else:
            self._fail(pod, reason, now)
        if pod.is_head:
            await self._restart_workers()
        self._wake()

    def _fail(self, pod: LivePod, reason: str, now: float) -> None:
        if pod.ready_s is None:
            self._failures[pod.pod.group] = self._failures.get(pod.pod.group, 0) + 1
        pod.fail(reason, now, forget_at_s=now + FAILED_SHOWN_S)
        what = "Killed" if reason.startswith("killed") else "Exited"
        self._notices.write("Pod", pod.name, what, reason, warning=True)

    async def _restart_workers(self) -> None:
        self.gcs_listens = False
        workers = [pod for pod in self.started if not pod.is_head]
        children = [pod.child for pod in workers]
        names = [pod.name for pod in workers]
        traces = self.traces
        for pod in workers:
            pod.restart("restarts with the head")
            # Not before its old processes have ended: the new ones would be killed with them.
            pod.start_at_s = math.inf
        try:
            await self._end.once(names, traces)
            have_ended = True
        except CockpitError:
            have_ended = False

        async def release(pod: LivePod, child: asyncio.subprocess.Process | None) -> None:
            if not have_ended:
                await self._end.at_last(pod, traces)
            if child is not None:
                await child.wait()
            local_files.remove(pod.directory)
            pod.start_at_s = 0.0
            self._notices.write("Pod", pod.name, "Restarted", "the head was lost", warning=True)
            self._wake()

        # Each by itself: a worker that does not end must not delay the others.
        await asyncio.gather(*map(release, workers, children))

    async def _end_overdue(self, pod: LivePod) -> None:
        try:
            await self._end.at_last(pod)
        finally:
            self._ending.discard(pod.name)

    async def _discard(self, pod: LivePod) -> None:
        # The pods' traces are without it already.
        await self._end.at_last(pod, [*self.traces, pod.trace])
        await self._forget(pod)

    async def _shrink(self, living: Sequence[LivePod], excess: int) -> None:
        """Terminating pods first; then the newest."""
        going = [pod for pod in living if pod.kill_at_s is not None]
        staying = [pod for pod in living if pod.kill_at_s is None]
        for pod in staying[::-1][: max(0, excess - len(going))]:
            await self.delete(pod.name, GRACE_S)

    async def _keep_deadlines(self, now: float) -> None:
        for pod in list(self._pods.values()):
            is_overdue = pod.kill_at_s is not None and now >= pod.kill_at_s
            if is_overdue and pod.name not in self._ending:
                self._ending.add(pod.name)
                self._spawn(self._end_overdue(pod))
            if pod.forget_at_s is not None and now >= pod.forget_at_s:
                await self._forget(pod)
            slow = pod.process is not None and pod.ready_s is None and not pod.is_over
            if slow and now - pod.started_s > SLOW_START_S:
                text = f": {line}" if (line := masked(pod.last_log_line())) else ""
                waited_s = 10 * ((now - pod.started_s) // 10)
                reason = f"not registered with Ray after {in_seconds(waited_s, 0)}{text}"
                pod.enter(pod.pod.phase, reason=reason)

    async def _forget(self, pod: LivePod) -> None:
        self._pods.pop(pod.name, None)
        await asyncio.to_thread(local_files.remove, pod.directory)
        pod.log.unlink(missing_ok=True)
