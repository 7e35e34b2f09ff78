"""Labelled ends of attempts and jobs: the reports of Ray, Kubernetes and the ranks on each.

The texts are those of Ray 2.60, torch 2.15, CPython and Kubernetes. A fault that ends an attempt is
included twice: alone, as in production, and injected by a drill, which the store then contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.insight.causes.types import Category, Cause
from cockpit.insight.causes.verdict import cause_of_job, causes_of_run
from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.cluster import Node, NodeType, Pod, PodPhase
from cockpit.model.drill import Drill
from cockpit.model.event import (
    AlertRaised,
    AttemptEnded,
    AttemptStarted,
    DrillInjected,
    Event,
    JobsListed,
    NodesListed,
    Notice,
    PodsListed,
    RankSampled,
    RunSeen,
)
from cockpit.model.run import Job, JobStatus, Placement, RankSample, RunState
from cockpit.store.store import Store

T0 = 1_763_712_000.0
RUN, JOB = "run-1", "job-1"
STARTED_S, ENDED_S = T0 + 10, T0 + 70
RANKS = 2
WORKER_IPS = tuple(f"10.0.0.{rank + 1}" for rank in range(RANKS))
DIED = "its process died (killed, out of memory, or crashed)"
GLOO = (
    "lost a peer: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
    "[10.0.0.2]:4711"
)
JOB_LOST = "Ray no longer lists its job: the head was replaced, and its state was lost with it"


@dataclass(frozen=True, slots=True)
class Case:
    """One end with its label."""

    name: str
    category: Category
    events: tuple[Event, ...]
    ranks: tuple[int, ...] | None = None
    """The expected ranks; None: any."""
    is_job: bool = False
    """Check the verdict on the job."""
    may_be_unknown: bool = False
    """Nothing names the cause: `unknown` is right too, and certainty is wrong."""


def verdict(case: Case) -> Cause:
    store = Store()
    for event in case.events:
        store.apply(event)
    if case.is_job:
        cause = cause_of_job(store, store.jobs[JOB])
        assert cause is not None, case.name
        return cause
    return causes_of_run(store, store.runs[RUN])[-1]


def pods(*changed: Pod) -> PodsListed:
    known = {pod.name: pod for pod in changed}
    listed = [
        Pod(
            "head", "headgroup", NodeType.HEAD, PodPhase.RUNNING, True, "10.0.0.100", host="m-head"
        ),
        *(
            Pod(f"w-{rank}", "gpu", NodeType.WORKER, PodPhase.RUNNING, True, ip, host=f"m-{rank}")
            for rank, ip in enumerate(WORKER_IPS)
        ),
    ]
    at_s = ENDED_S - 1 if changed else T0
    return PodsListed(
        at_s=at_s, source="backend", pods=tuple(known.get(pod.name, pod) for pod in listed)
    )


def worker(rank: int, reason: str, phase: PodPhase = PodPhase.FAILED) -> PodsListed:
    """The pod of the rank ended so, a second before the attempt."""
    name, ip, host = f"w-{rank}", WORKER_IPS[rank], f"m-{rank}"
    return pods(
        Pod(
            name,
            "gpu",
            NodeType.WORKER,
            phase,
            False,
            ip,
            ended_s=ENDED_S - 1,
            reason=reason,
            host=host,
        )
    )


def nodes(dead: int | None = None, text: str = "") -> NodesListed:
    return NodesListed(
        at_s=T0 if dead is None else ENDED_S - 2,
        source="ray",
        nodes=tuple(
            Node(
                f"node-{rank}",
                ip,
                f"w-{rank}",
                False,
                rank != dead,
                state_message=text if rank == dead else "",
            )
            for rank, ip in enumerate(WORKER_IPS)
        ),
    )


def started() -> tuple[Event, ...]:
    placed = tuple(
        Placement(rank, f"node-{rank}", ip, 100 + rank) for rank, ip in enumerate(WORKER_IPS)
    )
    return (
        pods(),
        nodes(),
        state(T0, RunState.INITIALIZING),
        AttemptStarted(
            at_s=STARTED_S, source="telemetry", run_id=RUN, attempt=1, placements=placed
        ),
        state(STARTED_S + 1, RunState.RUNNING),
    )


def state(at_s: float, of: RunState, message: str = "") -> RunSeen:
    return RunSeen(
        at_s=at_s,
        source="telemetry",
        run_id=RUN,
        name="r",
        state=of,
        submission_id=JOB,
        world_size=RANKS,
        message=message,
    )


def attempt(reason: str, *more: Event) -> tuple[Event, ...]:
    """An attempt that ended with this reason, after `more`."""
    return (
        *started(),
        *more,
        AttemptEnded(at_s=ENDED_S, source="telemetry", run_id=RUN, attempt=1, reason=reason),
        state(ENDED_S, RunState.ERRORED, reason),
    )


def job(message: str, status: JobStatus = JobStatus.FAILED, *before: Event) -> tuple[Event, ...]:
    over = Job(JOB, "python train.py", status, message, started_s=T0, ended_s=ENDED_S + 3)
    return (*before, JobsListed(at_s=ENDED_S + 4, source="ray", jobs=(over,)))


def failed(*log: str, code: int = 1) -> tuple[Event, ...]:
    head = f"Job entrypoint command failed with exit code {code}, last available logs "
    return job("\n".join([f"{head}(truncated to 20,000 chars):", *log]))


def drill(fault: str, *ranks: int) -> DrillInjected:
    return DrillInjected(
        at_s=ENDED_S - 8,
        source="user",
        drill=Drill(
            f"drill-{fault}", fault, "w-1", ranks or (1,), ENDED_S - 8, 0.0, RUN, 1, 20, ("w-1",)
        ),
    )


def event(name: str, reason: str, message: str) -> Notice:
    return Notice(
        at_s=ENDED_S - 2,
        source="backend",
        kind="Pod",
        name=name,
        reason=reason,
        message=message,
        warning=True,
    )


def hang_alert(sentence: str, kind: str) -> AlertRaised:
    finding = Finding(
        "hang", f"run {RUN}", Severity.CRITICAL, sentence, f"{kind}, confidence high: x", "", RUN
    )
    return AlertRaised(
        at_s=ENDED_S - 30, source="insight", alert=Alert(f"hang/run {RUN}", finding, ENDED_S - 30)
    )


def xid(rank: int, number: int) -> RankSampled:
    sample = RankSample(rank, 1, ENDED_S - 3, 20, 20, 20, gpu_xid=number)
    return RankSampled(at_s=ENDED_S - 3, source="telemetry", run_id=RUN, samples=(sample,))


def traceback(error: str, file: str = "train.py", line: int = 12) -> tuple[str, ...]:
    return (
        "Traceback (most recent call last):",
        f'  File "/tmp/{file}", line {line}, in <module>',
        "    main()",
        error,
    )


def worker_error(error: str, rank: int = 0) -> tuple[str, ...]:
    """The output of Ray Train's driver when a rank raises."""
    return (
        *traceback(
            "ray.train.v2.api.exceptions.WorkerGroupError: Training failed due to worker errors:"
        ),
        f"[Rank {rank} Error Snippet]:",
        *traceback(error, "model.py", 31),
    )


C = Category


def _of_reasons(category: Category, reasons: Sequence[tuple[str, str]]) -> list[Case]:
    return [Case(name, category, attempt(reason), _ranks(reason)) for name, reason in reasons]


def _ranks(reason: str) -> tuple[int, ...] | None:
    head = reason.partition(":")[0]
    if not head.startswith("rank"):
        return None
    return tuple(int(part) for part in head.split(" ", 1)[1].split(", "))


USER = [
    *_of_reasons(
        C.USER,
        [
            ("exception", "rank 1: ValueError: a bad batch"),
            ("assertion", "rank 0: AssertionError: expected 3 classes"),
            ("key-error", "rank 0: KeyError: 'labels'"),
            ("own-exception", "rank 1: TrainerConfigurationError: no schedule"),
            ("import-in-rank", "ranks 0, 1: ModuleNotFoundError: No module named 'flash_attn'"),
            (
                "shape",
                "rank 0: RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x64 and "
                "128x10)",
            ),
            ("state-dict", "rank 0: RuntimeError: Error(s) in loading state_dict for Net:"),
            ("nan", "rank 1: RuntimeError: loss is nan at step 312"),
            ("nan-input", "rank 0: ValueError: Input X contains NaN."),
            ("no-cuda", "ranks 0, 1: RuntimeError: No CUDA GPUs are available"),
            ("no-cuda-build", "rank 0: AssertionError: Torch not compiled with CUDA enabled"),
            ("no-driver", "rank 0: RuntimeError: Found no NVIDIA driver on your system."),
            ("device-assert", "rank 1: RuntimeError: CUDA error: device-side assert triggered"),
            ("start-raises", "the worker group did not start: RuntimeError: bad backend"),
            ("key-named-preempted", "rank 0: KeyError: 'preempted'"),
            (
                "attribute-named-preempted",
                "rank 1: AttributeError: 'NoneType' object has no attribute 'preempted'",
            ),
            (
                "value-with-no-route",
                "rank 0: ValueError: Unable to infer: no route to host parameter",
            ),
            (
                "value-with-no-space",
                "rank 0: ValueError: token 'no space left on device' is not in the vocabulary",
            ),
            ("index-named-sigkill", "rank 0: IndexError: no such index: SIGKILL"),
        ],
    ),
    Case(
        "driver-exception",
        C.USER,
        failed(*traceback("TypeError: 'NoneType' is not callable")),
        is_job=True,
    ),
    Case(
        "driver-import",
        C.USER,
        failed(*traceback("ImportError: cannot import name 'x' from 'y'")),
        is_job=True,
    ),
    Case(
        "driver-syntax",
        C.USER,
        failed(
            '  File "train.py", line 3', "    def f(:", "          ^", "SyntaxError: invalid syntax"
        ),
        is_job=True,
    ),
    Case(
        "no-script",
        C.USER,
        failed(
            "python: can't open file '/tmp/nowhere.py': [Errno 2] No such file or directory", code=2
        ),
        is_job=True,
    ),
    Case("no-command", C.USER, failed("/bin/sh: 1: trian: not found", code=127), is_job=True),
    Case(
        "bad-argument",
        C.USER,
        failed(
            "usage: train.py [-h] [--lr LR]",
            "train.py: error: unrecognized arguments: --lrr",
            code=2,
        ),
        is_job=True,
    ),
    Case(
        "runtime-env",
        C.USER,
        job("runtime_env setup failed: Failed to install pip package 'torhc'"),
        is_job=True,
    ),
    Case(
        "rank-exception-in-job",
        C.USER,
        failed(*worker_error("IndexError: index 10 is out of range", 1)),
        (1,),
        is_job=True,
    ),
    Case(
        "exception-after-old-warnings",
        C.USER,
        failed(
            "OSError: [Errno 28] No space left on device: cache is off",
            *traceback("ValueError: no"),
        ),
        is_job=True,
    ),
    Case(
        "assertion-about-a-hang",
        C.USER,
        failed(*traceback("AssertionError: expected the job hung for 0 s")),
        is_job=True,
    ),
    Case(
        "exception-before-a-failing-cleanup",
        C.USER,
        failed(
            *traceback("ValueError: bad lr"),
            "atexit: [Errno 5] Input/output error while closing log",
        ),
        is_job=True,
    ),
    Case(
        "exception-before-an-ignored-one",
        C.USER,
        failed(
            *traceback("ValueError: bad lr"),
            "Exception ignored in: <function Log.__del__ at 0x7f>",
            *traceback("OSError: [Errno 5] Input/output error"),
        ),
        is_job=True,
    ),
    Case(
        "exception-before-a-warning",
        C.USER,
        failed(*traceback("ValueError: bad lr"), "wandb: WARNING network is unreachable, offline"),
        is_job=True,
    ),
    Case(
        "exception-with-victim",
        C.USER,
        attempt(
            "rank 0: ValueError: a bad batch",
            event("w-1", "BackOff", "restarting failed container"),
        ),
        (0,),
    ),
]

DATA = [
    *_of_reasons(
        C.DATA,
        [
            (
                "missing-data",
                "rank 0: FileNotFoundError: [Errno 2] No such file or directory: '/data/x.bin'",
            ),
            (
                "bad-checkpoint",
                "ranks 0, 1: RuntimeError: PytorchStreamReader failed reading zip archive: failed "
                "finding central directory",
            ),
            ("bad-pickle", "rank 0: UnpicklingError: invalid load key, '\\x00'."),
            ("empty-file", "rank 1: EOFError: Ran out of input"),
            (
                "safetensors",
                "rank 0: SafetensorError: Error while deserializing header: HeaderTooLarge",
            ),
            (
                "bad-image",
                "rank 1: UnidentifiedImageError: cannot identify image file '/data/7.png'",
            ),
            (
                "bad-parquet",
                "rank 0: ArrowInvalid: Could not open Parquet input source: Parquet magic bytes "
                "not found",
            ),
            ("bad-json", "rank 0: JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        ],
    ),
    Case(
        "missing-data-in-driver",
        C.DATA,
        failed(*traceback("FileNotFoundError: [Errno 2] No such file or directory: 'train.csv'")),
        is_job=True,
    ),
    Case(
        "checkpoint-corrupt-drill",
        C.DATA,
        attempt(
            "rank 0: RuntimeError: PytorchStreamReader failed locating file data.pkl",
            drill("checkpoint-corrupt", 0),
        ),
        (0,),
    ),
    Case(
        "checkpoint-delete-drill",
        C.DATA,
        attempt(
            "rank 0: FileNotFoundError: [Errno 2] No such file or directory: '/s/checkpoint_3'",
            drill("checkpoint-delete", 0),
        ),
        (0,),
    ),
]

MEMORY = [
    Case(
        "memory-monitor", C.HOST_MEMORY, attempt("rank 1: killed, its node ran out of memory"), (1,)
    ),
    Case(
        "oom-killed-pod",
        C.HOST_MEMORY,
        attempt("rank 1: its node died", worker(1, "out of memory (OOMKilled)")),
        (1,),
    ),
    Case(
        "oom-restart",
        C.HOST_MEMORY,
        attempt(
            f"rank 1: {DIED}",
            event(
                "w-1",
                "OOMKilling",
                "Memory cgroup out of memory: Killed process 101 (ray::RayTrainWo)",
            ),
        ),
        (1,),
    ),
    Case(
        "system-oom",
        C.HOST_MEMORY,
        attempt(
            f"rank 0: {DIED}",
            event("m-0", "SystemOOM", "System OOM encountered, victim process: python"),
        ),
        None,
    ),
    Case(
        "evicted-memory",
        C.HOST_MEMORY,
        attempt(
            "rank 1: its node died",
            worker(1, "evicted: The node was low on resource: memory. Threshold quantity: 100Mi"),
        ),
        (1,),
    ),
    Case(
        "python-memory",
        C.HOST_MEMORY,
        attempt("rank 0: MemoryError: Unable to allocate 3.1 TiB for an array"),
        (0,),
    ),
    Case(
        "allocator",
        C.HOST_MEMORY,
        attempt(
            "rank 0: RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: "
            "can't allocate memory: you tried to allocate 99 bytes."
        ),
        (0,),
    ),
    Case(
        "dataloader-killed",
        C.HOST_MEMORY,
        attempt(
            "rank 0: RuntimeError: DataLoader worker (pid 4211) is killed by signal: Bus error. "
            "It is possible that dataloader's workers are out of shared memory."
        ),
        (0,),
    ),
    Case(
        "memory-hog-drill",
        C.HOST_MEMORY,
        attempt("rank 1: killed, its node ran out of memory", drill("memory-hog")),
        (1,),
    ),
    Case(
        "memory-hog-drill-unexplained",
        C.HOST_MEMORY,
        attempt(f"rank 1: {DIED}", drill("memory-hog")),
        (1,),
    ),
    Case(
        "cuda-oom",
        C.DEVICE_MEMORY,
        attempt(
            "rank 3: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "
            "a total capacity of 79.1 GiB"
        ),
        (3,),
    ),
    Case(
        "cublas-oom",
        C.DEVICE_MEMORY,
        attempt(
            "rank 0: RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
            "`cublasCreate(handle)`"
        ),
        (0,),
    ),
    Case(
        "cuda-oom-in-job",
        C.DEVICE_MEMORY,
        failed(
            *worker_error(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."
            )
        ),
        (0,),
        is_job=True,
    ),
    Case(
        "object-store",
        C.OBJECT_STORE,
        attempt(
            "rank 0: ObjectStoreFullError: Failed to put object ffff in object store because it "
            "is full."
        ),
        (0,),
    ),
    Case(
        "object-store-in-driver",
        C.OBJECT_STORE,
        failed(
            *traceback(
                "ray.exceptions.ObjectStoreFullError: Failed to put object 00 in object store "
                "because it is full. Object size is 900 bytes."
            )
        ),
        is_job=True,
    ),
]

NODES = [
    Case("node-died", C.NODE, attempt("rank 1: its node died"), (1,)),
    Case(
        "node-died-victims",
        C.NODE,
        attempt(
            f"rank 0: {GLOO}", nodes(1, "health check failed due to missing too many heartbeats")
        ),
        (1,),
    ),
    Case(
        "raylet-died", C.NODE, attempt(f"rank 0: {GLOO}", nodes(1, "Unexpected termination")), (1,)
    ),
    Case(
        "machine-lost",
        C.NODE,
        attempt(
            f"rank 1: {DIED}", worker(1, "its machine is lost: kubelet stopped posting status")
        ),
        (1,),
    ),
    Case(
        "node-not-ready",
        C.NODE,
        attempt(
            "rank 1: its node died",
            event("m-1", "NodeNotReady", "Node m-1 status is now: NodeNotReady"),
        ),
        (1,),
    ),
    Case(
        "head-replaced",
        C.NODE,
        (
            *started(),
            AttemptEnded(at_s=ENDED_S, source="ray", run_id=RUN, attempt=1, reason="job lost"),
            state(ENDED_S, RunState.ERRORED, JOB_LOST),
        ),
    ),
    Case("pod-kill-drill", C.NODE, attempt("rank 1: its node died", drill("pod-kill")), (1,)),
    Case("pod-kill-drill-victims", C.NODE, attempt(f"rank 0: {GLOO}", drill("pod-kill")), (1,)),
    Case(
        "container-kill-drill",
        C.NODE,
        attempt("rank 1: its node died", drill("container-kill")),
        (1,),
    ),
    Case("raylet-kill-drill", C.NODE, attempt("rank 1: its node died", drill("raylet-kill")), (1,)),
    Case("head-kill-drill", C.NODE, attempt("its driver went away", drill("head-kill"))),
]

PREEMPTED = [
    Case("preempted", C.PREEMPTED, attempt("preempted: the node of rank 1 is reclaimed"), (1,)),
    Case("node-preempted", C.PREEMPTED, attempt("rank 0: its node was preempted"), (0,)),
    Case(
        "scheduler-preemption",
        C.PREEMPTED,
        attempt(
            "rank 1: its node died",
            worker(
                1, "preempted: default-scheduler: preempting to accommodate a higher priority pod"
            ),
        ),
        (1,),
    ),
    Case(
        "evicted",
        C.PREEMPTED,
        attempt(
            "rank 1: its node died", worker(1, "evicted through the API: Eviction API: evicting")
        ),
        (1,),
    ),
    Case(
        "taint-eviction",
        C.PREEMPTED,
        attempt(
            "rank 1: its node died",
            event("w-1", "TaintManagerEviction", "Marking for deletion Pod ml/w-1"),
        ),
        (1,),
    ),
    *(
        Case(
            f"{fault}-drill",
            C.PREEMPTED,
            attempt("preempted: the node of rank 1 is reclaimed", drill(fault)),
            (1,),
        )
        for fault in ("pod-delete", "node-drain", "spot-preemption", "evict", "scale-down")
    ),
    Case("evict-drill-victims", C.PREEMPTED, attempt(f"rank 0: {GLOO}", drill("evict")), (1,)),
]

NETWORK_AND_STORAGE = [
    Case(
        "unreachable",
        C.NETWORK,
        attempt("rank 1: OSError: [Errno 101] Network is unreachable"),
        (1,),
    ),
    Case(
        "no-route",
        C.NETWORK,
        attempt("rank 0: RuntimeError: [gloo/transport/tcp/pair.cc:144] no error No route to host"),
        (0,),
    ),
    Case(
        "name-resolution",
        C.NETWORK,
        attempt("rank 1: gaierror: [Errno -3] Temporary failure in name resolution"),
        (1,),
    ),
    Case(
        "tracker-timeout",
        C.NETWORK,
        failed(
            *traceback(
                "wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec."
            )
        ),
        is_job=True,
    ),
    Case(
        "infiniband",
        C.NETWORK,
        attempt(
            "rank 0: DistBackendError: NCCL error: remote process exited or there was a network "
            "error, NET/IB : Got completion with error 12"
        ),
        (0,),
    ),
    *(
        Case(f"{fault}-drill", C.NETWORK, attempt(reason, drill(fault)), None)
        for fault, reason in (
            ("network-partition", "rank 1: its node died"),
            ("network-isolate", f"rank 0: {GLOO}"),
            (
                "network-loss",
                "rank 0: RuntimeError: Timed out waiting 30000ms for recv operation to complete",
            ),
        )
    ),
    Case(
        "disk-full-long-after-a-caught-exception",
        C.STORAGE,
        failed(
            *traceback("ValueError: bad image, skipped"),
            *(f"step {step}" for step in range(60)),
            "write failed: No space left on device",
        ),
        is_job=True,
    ),
    Case(
        "disk-full",
        C.STORAGE,
        attempt("rank 0: OSError: [Errno 28] No space left on device: '/s/checkpoint_4'"),
        (0,),
    ),
    Case(
        "disk-full-torch",
        C.STORAGE,
        attempt(
            "rank 0: RuntimeError: [enforce fail at inline_container.cc:626] . unexpected pos 64 "
            "vs 0, No space left on device"
        ),
        (0,),
    ),
    Case(
        "disk-full-driver",
        C.STORAGE,
        failed(*traceback("OSError: [Errno 28] No space left on device")),
        is_job=True,
    ),
    Case(
        "read-only",
        C.STORAGE,
        attempt("rank 1: OSError: [Errno 30] Read-only file system: '/s/x'"),
        (1,),
    ),
    Case(
        "quota",
        C.STORAGE,
        attempt("rank 0: OSError: [Errno 122] Disk quota exceeded: '/home/u/x'"),
        (0,),
    ),
    Case("nfs", C.STORAGE, attempt("rank 0: OSError: [Errno 116] Stale file handle"), (0,)),
    Case(
        "s3",
        C.STORAGE,
        attempt(
            "rank 0: OSError: When getting information for key 'x' in bucket 'b': AWS Error "
            "ACCESS_DENIED during HeadObject operation"
        ),
        (0,),
    ),
    Case(
        "evicted-disk",
        C.STORAGE,
        attempt(
            "rank 1: its node died",
            worker(1, "evicted: The node was low on resource: ephemeral-storage."),
        ),
        (1,),
    ),
    *(
        Case(f"{fault}-drill", C.STORAGE, attempt(reason, drill(fault, 0)), (0,))
        for fault, reason in (
            ("storage-full", "rank 0: OSError: [Errno 28] No space left on device: '/s/c'"),
            ("storage-read-only", "rank 0: OSError: [Errno 30] Read-only file system: '/s/c'"),
            (
                "storage-slow",
                "rank 0: DistBackendError: Watchdog caught collective operation timeout",
            ),
        )
    ),
]

HANGS_AND_OTHERS = [
    Case(
        "gloo-timeout",
        C.HANG,
        attempt(
            "rank 0: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
            "1800000ms for recv operation to complete"
        ),
    ),
    Case(
        "nccl-timeout",
        C.HANG,
        attempt(
            "rank 0: DistBackendError: [Rank 0] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=21, OpType=ALLREDUCE) ran for 600012 milliseconds before timing out."
        ),
    ),
    Case(
        "health-check",
        C.HANG,
        attempt(
            "rank 1: WorkerHealthCheckTimeoutError: A worker health check has been hanging for "
            "600.10 seconds. Marking the worker as dead."
        ),
        (1,),
    ),
    Case(
        "train-collective",
        C.HANG,
        attempt(
            "rank 0: BroadcastCollectiveTimeoutError: The collective operation timed out after "
            "1800.00 seconds."
        ),
    ),
    Case(
        "hang-alert",
        C.HANG,
        attempt(
            f"rank 0: {GLOO}",
            hang_alert(
                "Rank 1 never called all_reduce #3 of group default; rank 0 has waited in it for "
                "31 s.",
                "user code",
            ),
        ),
        (1,),
    ),
    Case(
        "rank-freeze-drill",
        C.HANG,
        attempt(
            "rank 1: WorkerHealthCheckTimeoutError: A worker health check has been hanging for "
            "25.13 seconds. Marking the worker as dead.",
            drill("rank-freeze"),
        ),
        (1,),
    ),
    Case(
        "straggler",
        C.STRAGGLER,
        attempt("rank 1: killed as a straggler: 3.1 s a step, the others 1.2 s"),
        (1,),
    ),
    Case(
        "xid",
        C.GPU,
        attempt("rank 1: RuntimeError: CUDA error: unspecified launch failure", xid(1, 79)),
        (1,),
    ),
    Case(
        "ecc",
        C.GPU,
        attempt("rank 0: RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        (0,),
    ),
    Case(
        "ray-bug",
        C.RAY,
        attempt("RaySystemError: System error: Check failed: drain_request_.has_value()"),
    ),
    Case(
        "no-supervisor",
        C.RAY,
        job("Unexpected error occurred: failed to get job supervisor."),
        is_job=True,
    ),
    Case(
        "gcs-died",
        C.RAY,
        failed(
            "[core_worker.cc:1] Failed to connect to GCS within 60 seconds. GCS may have been "
            "killed."
        ),
        is_job=True,
    ),
    Case("gcs-kill-drill", C.RAY, attempt("its driver went away", drill("gcs-kill"))),
    Case(
        "too-small",
        C.RESOURCES,
        attempt("waits for resources: 4 workers need 4 GPU and the cluster has 2"),
    ),
    Case(
        "start-timeout",
        C.RESOURCES,
        attempt(
            "the worker group did not start: WorkerGroupStartupTimeoutError: The worker group "
            "startup timed out after 60 seconds waiting for 4 workers."
        ),
    ),
    Case(
        "unschedulable-driver",
        C.RESOURCES,
        job("Job supervisor actor could not be scheduled: The actor is not schedulable"),
        is_job=True,
    ),
    Case(
        "stopped",
        C.CANCELLED,
        job("Job was intentionally stopped.", JobStatus.STOPPED),
        is_job=True,
    ),
    Case(
        "stopped-run",
        C.CANCELLED,
        (*job("Job was intentionally stopped.", JobStatus.STOPPED, *started()),),
    ),
    Case("interrupted", C.CANCELLED, failed(*traceback("KeyboardInterrupt")), is_job=True),
]

UNEXPLAINED = [
    Case("rank-kill", C.KILLED, attempt(f"rank 1: {DIED}"), (1,), may_be_unknown=True),
    Case("rank-kill-drill", C.KILLED, attempt(f"rank 1: {DIED}", drill("rank-kill")), (1,)),
    Case(
        "random-kills-drill", C.NODE, attempt("rank 1: its node died", drill("random-kills")), (1,)
    ),
    Case("driver-killed", C.KILLED, failed(code=-9), is_job=True, may_be_unknown=True),
    Case("driver-terminated", C.KILLED, failed(code=-15), is_job=True, may_be_unknown=True),
    Case(
        "driver-segfault",
        C.KILLED,
        failed("Fatal Python error: Segmentation fault", code=-11),
        is_job=True,
        may_be_unknown=True,
    ),
    Case(
        "supervisor-died",
        C.KILLED,
        job("Job supervisor actor died: The actor died unexpectedly before finishing this task."),
        is_job=True,
        may_be_unknown=True,
    ),
    Case("driver-gone", C.KILLED, attempt("its driver went away"), may_be_unknown=True),
    Case("victims-only", C.UNKNOWN, attempt(f"ranks 0, 1: {GLOO}")),
    Case(
        "nccl-victims-only",
        C.UNKNOWN,
        attempt(
            "rank 0: DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, remote process "
            "exited or there was a network error"
        ),
    ),
    Case("no-reason", C.UNKNOWN, attempt("errored")),
    Case("exit-code-only", C.UNKNOWN, failed(), is_job=True),
    Case("victim-in-job", C.UNKNOWN, failed(*worker_error(f"RuntimeError: {GLOO}")), is_job=True),
    Case(
        "foreign-pod",
        C.KILLED,
        attempt(
            f"rank 1: {DIED}",
            event("other-pod", "OOMKilling", "Memory cgroup out of memory: Killed process 7"),
        ),
        (1,),
        may_be_unknown=True,
    ),
]

ELASTIC = "torch.distributed.elastic.multiprocessing.api: failed (exitcode: "
REPORTED = [
    Case(
        "actor-died",
        C.KILLED,
        failed(
            *traceback(
                "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this "
                "task."
            ),
            "The actor is dead because its worker process has died. Worker exit type: "
            "SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error "
            "code 2. End of file. There are some potential root causes. (1) The process is killed "
            "by SIGKILL by OOM killer due to high memory usage.",
        ),
        is_job=True,
        may_be_unknown=True,
    ),
    Case(
        "exit-code-none",
        C.KILLED,
        failed(
            "The actor is dead because its worker process has died. Worker exit type: "
            "SYSTEM_ERROR Worker exit detail: Worker exits unexpectedly. Worker exits with an "
            "exit code None. The worker may have exceeded K8s pod memory limits."
        ),
        is_job=True,
        may_be_unknown=True,
    ),
    Case(
        "torchrun-abort",
        C.KILLED,
        failed(
            "Sending process 26024 closing signal SIGTERM",
            f"{ELASTIC}-6) local_rank: 3 (pid: 26026) of binary: python",
            *traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"),
        ),
        is_job=True,
        may_be_unknown=True,
    ),
    Case(
        "torchrun-killed",
        C.KILLED,
        failed(f"{ELASTIC}-9) local_rank: 0 (pid: 7) of binary: python"),
        is_job=True,
        may_be_unknown=True,
    ),
    Case(
        "nccl-watchdog",
        C.HANG,
        failed(
            "Exception raised from ncclCommWatchdog at ProcessGroupNCCL.cpp:1186 (most recent "
            "call first):",
            f"{ELASTIC}-6) local_rank: 0 (pid: 223) of binary: python",
        ),
        is_job=True,
    ),
    Case(
        "fuse-mount",
        C.STORAGE,
        failed(*traceback("OSError: [Errno 107] Transport endpoint is not connected")),
        is_job=True,
    ),
    Case(
        "object-storage-timeout",
        C.STORAGE,
        failed(
            *traceback(
                "fsspec.exceptions.FSTimeoutError: Caught FSTimeoutError in DataLoader worker "
                "process 1."
            )
        ),
        is_job=True,
    ),
    Case(
        "rendezvous-unreachable",
        C.NETWORK,
        failed(
            *traceback(
                "RuntimeError: The client socket has failed to connect to any network address of "
                "(10.0.0.1, 23456). (errno: 110 - Connection timed out)."
            )
        ),
        is_job=True,
    ),
    Case(
        "nccl-peer-gone",
        C.UNKNOWN,
        failed(
            *traceback(
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, "
                "internal error"
            ),
            "Net : Connection closed by remote peer",
        ),
        is_job=True,
    ),
    Case(
        "nccl-invalid-usage",
        C.USER,
        failed("ncclInvalidUsage: This usually reflects invalid usage of NCCL library."),
        is_job=True,
    ),
    Case(
        "supervisor-not-started",
        C.RESOURCES,
        job(
            "Job supervisor actor failed to start within 900.0 seconds. This may be because the "
            "job entrypoint's specified resources aren't available on the cluster."
        ),
        is_job=True,
    ),
    Case(
        "gcs-check-failed",
        C.RAY,
        failed(
            "(pid=gcs_server) gcs_job_manager.cc:176:  Check failed: it != ray_namespaces_.end() "
            "Couldn't find job"
        ),
        is_job=True,
    ),
    Case(
        "no-access",
        C.USER,
        failed(*traceback("huggingface_hub.errors.GatedRepoError: 401 Client Error.")),
        is_job=True,
    ),
]
"""Forms that users of Ray, torch and NCCL have reported in public."""

REPORTED_LATER = [
    Case(
        "loader-aborted",
        C.KILLED,
        failed(
            *traceback("RuntimeError: DataLoader worker (pid 69916) is killed by signal: Aborted.")
        ),
        is_job=True,
        may_be_unknown=True,
    ),
    Case(
        "loader-exited",
        C.KILLED,
        failed(*traceback("RuntimeError: DataLoader worker (pid(s) 12488) exited unexpectedly")),
        is_job=True,
        may_be_unknown=True,
    ),
    Case(
        "loader-killed",
        C.HOST_MEMORY,
        failed(
            *traceback("RuntimeError: DataLoader worker (pid 12851) is killed by signal: Killed."),
            "The above exception was the direct cause of the following exception:",
            *traceback("RuntimeError: DataLoader worker (pid(s) 12851) exited unexpectedly"),
        ),
        is_job=True,
    ),
    Case(
        "ecc-old-form",
        C.GPU,
        failed(
            *traceback(
                "RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered"
            )
        ),
        is_job=True,
    ),
    *_of_reasons(
        C.CUDA,
        [
            (
                "illegal-access",
                "rank 1: AcceleratorError: CUDA error: an illegal memory access was encountered",
            ),
            (
                "illegal-access-old-form",
                "rank 0: RuntimeError: CUDA error: an illegal memory access was encountered",
            ),
            ("misaligned", "rank 1: RuntimeError: CUDA error: misaligned address"),
            ("launch-failure", "rank 1: RuntimeError: CUDA error: unspecified launch failure"),
            (
                "cublas",
                "rank 0: RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling "
                "`cublasSgemm( handle, opa, opb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc)`",
            ),
            ("cudnn", "rank 1: RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        ],
    ),
    Case(
        "illegal-access-of-the-driver",
        C.CUDA,
        failed(
            *traceback(
                "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
            ),
            "CUDA kernel errors might be asynchronously reported at some other API call",
        ),
        is_job=True,
    ),
    Case(
        "illegal-access-with-its-xid",
        C.CUDA,
        attempt(
            "rank 1: RuntimeError: CUDA error: an illegal memory access was encountered", xid(1, 31)
        ),
        (1,),
    ),
    Case(
        "illegal-access-after-an-uncorrectable-error",
        C.GPU,
        attempt(
            "rank 1: RuntimeError: CUDA error: an illegal memory access was encountered", xid(1, 48)
        ),
        (1,),
    ),
    Case(
        "xid-of-code-in-the-log",
        C.CUDA,
        failed("NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, Ch 00000010, MMU Fault"),
        is_job=True,
    ),
    Case(
        "xid-in-the-log",
        C.GPU,
        failed("NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus."),
        is_job=True,
    ),
    Case(
        "gpu-handle",
        C.GPU,
        failed("Unable to determine the device handle for GPU0000:03:00.0: Unknown Error"),
        is_job=True,
    ),
    Case(
        "evicted-pressure",
        C.HOST_MEMORY,
        attempt(
            "rank 1: its node died",
            event("w-1", "Evicted", "The node had condition: [MemoryPressure]."),
        ),
        (1,),
    ),
    Case(
        "evicted-usage",
        C.HOST_MEMORY,
        attempt(
            "rank 1: its node died",
            event(
                "w-1",
                "Evicted",
                "The node was low on resource: memory. Container ray was using 5053216Ki, which "
                "exceeds its request of 0.",
            ),
        ),
        (1,),
    ),
    Case(
        "ray-task-error",
        C.USER,
        failed(
            *traceback(
                "ray.exceptions.RayTaskError(AttributeError): ray::TrainALL.train() (pid=35968, "
                "ip=10.0.0.1)"
            ),
            *traceback("AttributeError: 'NoneType' object has no attribute 'shape'"),
        ),
        is_job=True,
    ),
    Case(
        "undefined-name",
        C.USER,
        failed("(TrainTrainable pid=96138) NameError: name 'undefined_variable' is not defined"),
        is_job=True,
    ),
    Case(
        "wrapper-only",
        C.UNKNOWN,
        failed(
            "TrainingFailedError: The Ray Train run failed. Please inspect the previous error "
            "messages for a cause (assuming that it is not an error such as OOM)."
        ),
        is_job=True,
    ),
    Case(
        "worker-died",
        C.KILLED,
        failed(
            "A worker died or was killed while executing a task by an unexpected system error. "
            "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a "
            "connection error code 2."
        ),
        is_job=True,
        may_be_unknown=True,
    ),
    Case(
        "killed-by-kernel", C.KILLED, failed("Killed", code=137), is_job=True, may_be_unknown=True
    ),
    Case(
        "elastic-root-cause",
        C.UNKNOWN,
        failed(
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
            "Root Cause (first observed failure):",
            "[0]:",
            "  rank      : 2 (local_rank: 2)",
            "  exitcode  : 1 (pid: 1117)",
            "  error_file: <N/A>",
            "Training subprocess has not exited yet. Sending SIGTERM.",
        ),
        is_job=True,
    ),
    Case(
        "horovod",
        C.UNKNOWN,
        failed(
            *traceback(
                "RuntimeError: Horovod has been shut down. This was caused by an exception on one "
                "of the ranks or an attempt to allreduce a tensor after one of the ranks finished "
                "execution."
            )
        ),
        is_job=True,
    ),
    Case(
        "runtime-env-lines",
        C.USER,
        job(
            "runtime_env setup failed: Failed to set up runtime environment.\n"
            "Traceback (most recent call last):\n"
            '  File "/x.py", line 1\n'
            "ray._private.runtime_env.utils.SubprocessCalledProcessError: Run cmd[9] failed."
        ),
        is_job=True,
    ),
    Case(
        "bash-not-found",
        C.USER,
        failed("/bin/bash: line 1: ray: command not found", code=127),
        is_job=True,
    ),
    Case("bare-assert", C.USER, failed(*traceback("AssertionError")), is_job=True),
    Case(
        "package-gone",
        C.RAY,
        failed(
            *traceback("OSError: Failed to fetch URI gcs://_ray_pkg_23ac9932199ad6d4.zip from GCS.")
        ),
        is_job=True,
    ),
]
"""Further cases, labelled before their verdicts were computed."""

UNKNOWN_ERRORS = [
    Case("own-timeout", C.UNKNOWN, attempt("rank 0: TimeoutError: no answer of the feature store")),
    Case("own-os-error", C.UNKNOWN, attempt("rank 0: OSError: device or resource busy")),
]
"""Exceptions whose name shows little: certainty is wrong."""

TEXTS: tuple[Case, ...] = (
    *USER, *DATA, *MEMORY, *NODES, *PREEMPTED, *NETWORK_AND_STORAGE, *HANGS_AND_OTHERS,
    *UNEXPLAINED,
    *REPORTED,
    *REPORTED_LATER,
)  # fmt: skip
