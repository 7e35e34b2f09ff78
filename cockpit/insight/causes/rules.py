"""Which text shows which cause: one table, the specific before the general."""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from cockpit.insight.causes.types import Advice, Category

CERTAIN, LIKELY = 75, 55
"""Least weight of high and of medium confidence."""
EXCEPTION = 60
THIN = 45
"""Up to this weight, a line shows that a process ended, and not why."""


class Rule(Struct, frozen=True):
    category: Category
    weight: int
    """The highest one decides; a victim's is the lowest."""
    pattern: re.Pattern[str]
    what: str
    """The predicate of a sentence: `ran out of GPU memory`."""
    is_victim: bool = False
    is_generic: bool = False
    """An exception of any kind: its name alone shows little."""

    @property
    def is_of_script(self) -> bool:
        """An exception that only the place of the line makes sure."""
        return self.category is Category.USER and EXCEPTION <= self.weight < CERTAIN

    @property
    def is_thin(self) -> bool:
        return self.weight <= THIN


def _rule(category: Category, weight: int, what: str, *patterns: str) -> Rule:
    return Rule(category, weight, re.compile("|".join(patterns), re.IGNORECASE), what)


def _generic(category: Category, weight: int, what: str, *patterns: str) -> Rule:
    return Rule(category, weight, re.compile("|".join(patterns)), what, is_generic=True)


_AT, _OF_CODE_ON_GPU = r" \([^)]*\)", r"(?:13|31|43|45)\b"
"""The Xids that NVIDIA's "XID Errors" (r555) also lists for errors of the application."""

RULES: tuple[Rule, ...] = (
    _rule(
        Category.CANCELLED, 95, "was stopped on request",
        r"^job stopped$", r"^aborted$", r"job was intentionally stopped",
        r"stopped by (?:the )?user", r"\bTaskCancelledError\b", r"^KeyboardInterrupt\b",
        r"training was aborted",
        r"terminated gracefully with SIGTERM",
    ),
    _rule(
        Category.HOST_MEMORY, 95, "was killed because its node ran out of memory",
        r"due to the node running low on memory", r"killed due to memory pressure",
        r"NODE_OUT_OF_MEMORY", r"killed, its node ran out of memory", r"\bOOMKill(?:ed|ing)\b",
        r"out of memory: killed process", r"\boom-kill:", r"memory cgroup out of memory",
        r"\bSystemOOM\b", r"\bMemoryPressure\b", r"low on resource: memory",
        r"ray\.exceptions\.OutOfMemoryError",
        r"memory used by the (?:task|actor|worker)s? .*exceed",
    ),
    _rule(
        Category.DEVICE_MEMORY, 92, "ran out of GPU memory",
        r"(?:CUDA|HIP|XPU|MPS)(?: error:| backend)? out of memory",
        r"\btorch\.(?:cuda\.)?OutOfMemoryError\b", r"CUBLAS_STATUS_ALLOC_FAILED",
        r"cudaErrorMemoryAllocation", r"RESOURCE_EXHAUSTED: Out of memory",
    ),
    _rule(
        Category.OBJECT_STORE, 92, "filled Ray's object store",
        r"ObjectStoreFullError", r"local object store is full of objects",
        r"failed to put object .* in object store because it is full",
    ),
    _rule(
        Category.GPU, 93, "has a GPU that failed",
        r"unable to determine the device handle",
        rf"\bNVRM: Xid\b(?!{_AT}: {_OF_CODE_ON_GPU})", rf"\bXid (?!{_OF_CODE_ON_GPU})\d+",
        r"fallen off the bus", r"GPU is lost",
        r"uncorrectable ECC error", r"cudaErrorECCUncorrectable", r"cudaErrorDevicesUnavailable",
    ),
    _rule(
        Category.CUDA, 74, "hit a CUDA error caused by the script, a library, or the GPU",
        r"illegal memory access", r"\bcudaErrorIllegalAddress\b", r"misaligned address",
        r"\bcudaErrorMisalignedAddress\b", r"an illegal instruction was encountered",
        r"unspecified launch failure", r"\bcudaErrorLaunchFailure\b",
        r"\bCU(?:BLAS|DNN|SPARSE|FFT)_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)\b",
        rf"\bNVRM: Xid\b{_AT}: {_OF_CODE_ON_GPU}", rf"\bXid {_OF_CODE_ON_GPU}",
    ),
    _rule(
        Category.STORAGE, 90, "could not use its storage",
        r"no space left on device", r"\[Errno 28\]", r"disk quota exceeded", r"\[Errno 122\]",
        r"read-only file system", r"\[Errno 30\]", r"\[Errno 5\]", r"input/output error",
        r"stale file handle", r"\[Errno 116\]", r"\bOutOfDiskError\b", r"\bDiskPressure\b",
        r"ephemeral-storage", r"^FailedMount\b", r"^FailedAttachVolume\b",
        r"too many open files", r"\[Errno 24\]", r"\[Errno 107\]", r"\bFSTimeoutError\b",
    ),
    _rule(
        Category.STORAGE, 80, "could not use its object storage",
        r"\bAWS Error [A-Z_]+", r"\bNoSuchBucket\b", r"botocore\.exceptions\.",
        r"google\.api_core\.exceptions\.", r"azure\.core\.exceptions\.", r"\bs3fs\b.*error",
    ),
    _rule(
        Category.PREEMPTED, 90, "was on a node that was reclaimed",
        r"\bpreempted\b", r"node preemption", r"is reclaimed", r"died by preemption",
        r"forcibly preempted", r"spot (?:instance )?(?:interruption|termination)",
        r"\bPreemptionByScheduler\b", r"\bTerminationByKubelet\b", r"\bEvictionByEvictionAPI\b",
        r"^evicted\b", r"\bTaintManagerEviction\b",
    ),
    _rule(
        Category.NODE, 86, "lost its node",
        r"\bits node died\b", r"\bnode has died\b", r"\bnode is dead\b", r"\bnode died\b",
        r"has been marked dead", r"missed too many heartbeats", r"missing too many heartbeats",
        r"health check failed for node", r"\bNodeDiedError\b", r"its (?:machine|node) is lost",
        r"\bNodeLost\b", r"\bNodeNotReady\b", r"kubelet stopped posting", r"\bNodeShutdown\b",
        r"its node does not exist", r"local raylet died", r"\bLocalRayletDiedError\b",
        r"raylet.{0,40}(?:died|is dead|crashed)",
    ),
    _rule(Category.NODE, 86, "lost the head and its state", r"the head was replaced"),
    _rule(
        Category.STRAGGLER, 94, "was ended because it was slow",
        r"(?:killed|ended|replaced) (?:as|because it is|because it was) (?:a |the )?"
        r"(?:straggler|slow)", r"straggler (?:was )?(?:killed|ended|replaced)",
    ),
    _rule(
        Category.RESOURCES, 88, "did not get the resources that it needs",
        r"waits for resources", r"could not be scheduled", r"\b\w*UnschedulableError\b",
        r"\binfeasible\b",
        r"failed to start within [\d.]+ seconds.*resources",
        r"\bInsufficient (?:cpu|memory|nvidia|amd)", r"^FailedScheduling\b",
        r"exceeded quota", r"^quota .* is used up", r"no node has .*free",
        r"WorkerGroupStartupTimeoutError", r"worker group startup timed out",
        r"\bInsufficientClusterResourcesError\b",
    ),
    _rule(
        Category.RAY, 80, "failed inside Ray",
        r"unexpected system state has occurred", r"\bRaySystemError\b", r"\bRay ?check failed",
        r"\b(?:gcs|raylet|core_worker|node_manager|plasma)\w*\.cc:\d+: +check failed",
        r"failed to (?:fetch URI|download runtime_env file package)",
        r"failed to get job supervisor", r"failed to start supervisor actor",
        r"\bGCS\b.{0,60}(?:is dead|died|crashed|unreachable|disconnected|unavailable)",
        r"failed to connect to (?:the )?GCS", r"raylet and agent.{0,40}fate",
        r"\[[^\]]*ray/(?:gcs|raylet|core_worker)[^\]]*\] *check failed",
    ),
    _rule(
        Category.HANG, 78, "waited in a collective until its time limit",
        r"caught collective operation timeout", r"timed out waiting \d+ ?ms for (?:recv|send)",
        r"collective operation timeout", r"heartbeat monitor timed out",
        r"wait timeout after \d+ ?ms", r"\bDistStoreError: timed out\b",
        r"collective operation timed out", r"have not joined the collective", r"\bNCCLHangError\b",
        r"ncclCommWatchdog",
        r"monitoredBarrier", r"rendezvous.{0,30}timed? ?out", r"DistNetworkError.{0,80}timed out",
    ),
    _rule(
        Category.HANG, 77, "did not answer Ray Train's health check",
        r"WorkerHealthCheckTimeoutError", r"health check (?:has )?timed out",
        r"hung for", r"is hanging",
    ),
    _rule(
        Category.NETWORK, 76, "lost its network",
        r"network is unreachable", r"no route to host", r"\[Errno 113\]", r"\[Errno 101\]",
        r"temporary failure in name resolution", r"name or service not known",
        r"NET/IB.{0,80}(?:error|timed? ?out|failed)", r"ibv_\w+.{0,40}(?:failed|error)",
        r"NCCL WARN.{0,80}(?:no route|unreachable|connect to .* failed)",
        r"\[Errno -[23]\]", r"connection timed out", r"\[Errno 110\]",
    ),
    _rule(
        Category.DATA, 84, "read a damaged file",
        r"PytorchStreamReader failed", r"\bUnpicklingError\b", r"invalid load key",
        r"ran out of input", r"\bBadZipFile\b", r"\bSafetensorError\b", r"HeaderTooLarge",
        r"\bCheckpointDamaged\b", r"\bCheckpointException\b", r"checksum (?:mismatch|does not)",
        r"\bArrowInvalid\b", r"\bUnidentifiedImageError\b", r"\bJSONDecodeError\b",
        r"\bUnicodeDecodeError\b", r"\bimage file is truncated",
        r"(?:file|checkpoint|archive|record) is (?:corrupt|damaged|trunc)", r"\bDataLossError\b",
        r"unexpected end of (?:file|data)",
    ),
    _rule(
        Category.USER, 86, "was started in a way that cannot work",
        r"can't open file", r"\bcommand not found\b", r": not found$", r"exit code 12[67]\b",
        r"unrecognized arguments", r"error: argument ", r"error: the following arguments",
        r"invalid choice: ", r"runtime_env setup failed", r"\bRuntimeEnvSetupError\b",
    ),
    _rule(
        Category.USER, 87, "has code that cannot be imported or run",
        r"\bModuleNotFoundError\b", r"\bImportError\b", r"\bSyntaxError\b", r"\bIndentationError\b",
        r"\bNameError\b", r"\bUnboundLocalError\b",
    ),
    _rule(
        Category.USER, 87, "asked for a GPU where there is none",
        r"no CUDA GPUs are available", r"not compiled with CUDA", r"found no NVIDIA driver",
        r"no CUDA-capable device", r"CUDA is not available", r"CUDA driver version is insufficient",
        r"torch\.cuda\.is_available\(\) is False",
    ),
    _rule(
        Category.USER, 87, "used tensors with invalid shapes, devices or values",
        r"\bsize mismatch\b", r"shapes cannot be multiplied", r"sizes of tensors must match",
        r"must match the (?:existing )?size", r"shape mismatch",
        r"error\(s\) in loading state_dict",
        r"(?:missing|unexpected) key\(s\) in state_dict", r"expected all tensors to be on the same",
        r"device-side assert", r"could not be broadcast", r"shape '.*' is invalid for input",
        r"expected (?:input|target|scalar type|batch_size|\d+-dimensional)",
    ),
    _rule(
        Category.USER, 70, "computed numbers that are not finite",
        r"loss (?:is|became|was|of) (?:nan|inf|not finite|non-finite)", r"\bloss[:= ]+nan\b",
        r"contains? nan\b", r"nan (?:detected|or inf found|loss|values? (?:in|detected))",
        r"non-?finite (?:loss|grad|value)", r"\bFloatingPointError\b", r"not finite",
        r"returned nan values",
    ),
    _rule(
        Category.HOST_MEMORY, 85, "could not allocate memory",
        r"\bMemoryError\b", r"\[Errno 12\]", r"cannot allocate memory", r"std::bad_alloc",
        r"DefaultCPUAllocator: (?:can't|not enough)", r"unable to allocate .* for an array",
        r"DataLoader worker .* killed by signal: (?:killed|bus error)",
        r"insufficient shared memory", r"unable to (?:mmap|allocate shared memory)",
    ),
    _rule(
        Category.DATA, 76, "did not find its data",
        r"\bFileNotFoundError\b", r"\bNotADirectoryError\b", r"no such file or directory",
        r"dataset .* (?:not found|does not exist|doesn't exist)", r"\bDatasetNotFoundError\b",
        r"path does not exist", r"no files? (?:were |was )?found",
    ),
    _rule(
        Category.USER, 78, "was denied access to a repository, or called a library incorrectly",
        r"HTTPError: 4\d\d\b", r"\b40[134] Client Error", r"\bGatedRepoError\b",
        r"\bRepositoryNotFoundError\b", r"\bncclInvalidUsage\b", r"Duplicate GPU detected",
    ),
    _generic(
        Category.NETWORK, 50, "lost a connection or waited for one",
        r"^(?:[\w.]+\.)?\w*(?:Timeout|Connection|ConnectTimeout|HTTP|SSL|Rpc)\w*Error\b(?::|$)",
        r"^(?:[\w.]+\.)?(?:ClientError|EndpointConnectionError|RequestException)\b(?::|$)",
        r"^(?:[\w.]+\.)?CommError: .*\btimed? ?out",
    ),
    _generic(
        Category.STORAGE, 50, "failed to read or write",
        r"^(?:OSError|IOError|PermissionError|BlockingIOError)\b(?::|$)",
    ),
    _generic(
        Category.USER, 52, "raised an exception", r"^RuntimeError\b(?::|$)",
    ),
    _generic(
        Category.USER, EXCEPTION, "raised an exception",
        r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Failure)\b(?::|$)", r"^Exception\b(?::|$)",
        r"^StopIteration\b",
    ),
    _rule(Category.NODE, 46, "could not be reached any more", r"\bActorUnavailableError\b"),
    _rule(
        Category.KILLED, 44, "crashed",
        r"\bSIGSEGV\b", r"segmentation fault", r"\bSIGABRT\b", r"\bSIGBUS\b", r"\bSIGILL\b",
        r"exit ?code:? -(?:4|6|7|11)\b", r"exit code 1(?:32|34|35|39)\b", r"core dumped",
    ),
    _rule(
        Category.KILLED, 43, "lost a process of its data loader",
        r"DataLoader worker .*(?:exited unexpectedly|killed by signal)",
    ),
    _rule(
        Category.KILLED, 42, "was killed",
        r"\bSIGKILL\b", r"exit ?code:? -9\b", r"exit code 137\b", r"killed by signal 9",
        r"\bSIGTERM\b", r"exit code -15\b", r"exit code 143\b", r"killed by signal 15",
    ),
    _rule(
        Category.KILLED, 40, "ended without an error message",
        r"\bits process died\b", r"worker process has died", r"connection error code 2",
        r"worker died unexpectedly", r"\bits driver went away\b", r"actor died unexpectedly",
        r"worker exits unexpectedly", r"\bWorkerCrashedError\b", r"job supervisor actor died",
    ),
    Rule(
        Category.UNKNOWN, 10,
        re.compile(
            r"lost a peer|connection (?:was )?(?:closed|reset|aborted|refused)|broken pipe"
            r"|remote process exited|pair closure|NCCL operations have failed|ncclRemoteError"
            r"|ncclSystemError|unhandled system error|process group .*abort|owner (?:has )?died"
            r"|killed by `?ray\.kill|\bRayActorError\b|\bActorDiedError\b|socket closed"
            r"|closing signal SIGTERM|sending SIGTERM|horovod has been shut down"
            r"|\bDistBackendError\b|\bDistNetworkError\b|\bOwnerDiedError\b|gloo/transport",
            re.IGNORECASE,
        ),
        "lost a peer", is_victim=True,
    ),
)  # fmt: skip

EXPLANATIONS = re.compile(
    r"There are some potential root causes.*|Some common causes include.*"
    r"|\(killed, out of memory, or crashed\)|to enable retry when the task crashes due to OOM.*"
    r"|The worker may have exceeded.*",
    re.IGNORECASE | re.DOTALL,
)
"""Text that Ray adds to each death: it lists possible causes, and is no evidence."""

WRAPPERS = re.compile(
    r"^(?:[\w.]+\.)?(?:RayTaskError|WorkerGroupError|ControllerError|TrainingFailedError"
    r"|WorkerHealthCheckFailedError|WorkerGroupStartupFailedError|RayError|ChildFailedError"
    r"|SystemExit|CalledProcessError|TuneError)\b",
)
"""Exceptions that carry another one: their own name is no cause."""

_OF_CODE = re.compile(
    r"^(?:KeyError|IndexError|AttributeError|TypeError|NameError|UnboundLocalError|AssertionError"
    r"|ValueError)\b(?::|$)"
)
"""Exceptions of Python code, whose message quotes values and names of it."""
_OF_MESSAGE = frozenset({Category.USER, Category.DATA})
"""What the message of such an exception can show beyond its name."""

_BEFORE = re.compile(
    r"^(?:\((?:[^()]|\([^()]*\))*pid=\d+[^)]*\)\s*|\[rank\d+\]:?\s*|\[\w*\d*:?\w*\]:\s*|E\s{2,}"
    r"|(?:\x1b\[[\d;]*m)+|ray::\S+\s*\([^)]*\)\s*)+"
)
"""The prefixes that Ray, torchrun and Python write before a rank's line."""


@lru_cache(maxsize=1024)
def match(text: str) -> Rule | None:
    """Return the rule for one line, or None if it shows no cause. Cached: lines recur."""
    line = plain(text)
    if not line or WRAPPERS.match(line):
        return None
    found = [rule for rule in RULES if rule.pattern.search(line)]
    victims = [rule for rule in found if rule.is_victim]
    if victims and all(rule.is_thin or rule.is_generic for rule in found):
        return victims[0]  # `RuntimeError: Connection closed by peer` is a victim's
    precise = [rule for rule in found if not rule.is_generic]
    if _OF_CODE.match(line):  # `KeyError: 'preempted'` is not about the node
        precise = [rule for rule in precise if rule.category in _OF_MESSAGE]
        found = [rule for rule in found if rule.category in _OF_MESSAGE]
    # `OSError: …` is generic for storage before it is an exception of any kind.
    return max(precise, key=_weight, default=found[0] if found else None)


def _weight(rule: Rule) -> int:
    return rule.weight


def plain(text: str) -> str:
    return _BEFORE.sub("", EXPLANATIONS.sub("", text).strip()).strip()


EFFECTS = frozenset({Category.NODE, Category.HANG, Category.KILLED})
"""Consequences of other causes: they do not contradict those."""

GUARD_RESTART = "guard-restart"
"""The guard's action on a hung run is recorded as a drill of this fault."""
DRILLS: dict[str, tuple[Category, ...]] = {
    "pod-kill": (Category.NODE, Category.PREEMPTED),
    "pod-delete": (Category.PREEMPTED, Category.NODE),
    "container-kill": (Category.NODE, Category.KILLED),
    "head-kill": (Category.NODE, Category.RAY),
    "rank-kill": (Category.KILLED,),
    "raylet-kill": (Category.NODE,),
    "rank-freeze": (Category.HANG,),
    "slow-rank": (Category.STRAGGLER, Category.HANG),
    "gcs-kill": (Category.RAY, Category.NODE),
    "dashboard-kill": (Category.RAY,),
    "cpu-hog": (Category.HANG, Category.STRAGGLER),
    "memory-hog": (Category.HOST_MEMORY,),
    "node-drain": (Category.PREEMPTED, Category.NODE),
    "spot-preemption": (Category.PREEMPTED, Category.NODE),
    "evict": (Category.PREEMPTED, Category.NODE),
    "scale-down": (Category.PREEMPTED, Category.NODE),
    "network-partition": (Category.NETWORK,),
    "network-loss": (Category.NETWORK,),
    "network-delay": (Category.NETWORK,),
    "network-rate": (Category.NETWORK,),
    "network-isolate": (Category.NETWORK,),
    "storage-full": (Category.STORAGE,),
    "storage-read-only": (Category.STORAGE,),
    "storage-slow": (Category.STORAGE,),
    "checkpoint-corrupt": (Category.DATA,),
    "checkpoint-delete": (Category.DATA,),
    "random-kills": (Category.NODE, Category.KILLED, Category.PREEMPTED),
}
"""The reasons of an attempt that a drill ended, the usual one first."""

ADVICE: dict[Category, tuple[Advice, str]] = {
    Category.USER: (Advice.STOP, "the same code fails again: fix it first"),
    Category.DATA: (Advice.STOP, "the same file is read again: replace it first"),
    Category.HOST_MEMORY: (Advice.RESTART, "memory may suffice next time; watch it"),
    Category.DEVICE_MEMORY: (
        Advice.STOP, "the same batch needs the same memory: make it or the model smaller",
    ),
    Category.OBJECT_STORE: (Advice.RESTART, "the objects of the attempt are freed"),
    Category.NODE: (Advice.RESTART, "the ranks move to another node"),
    Category.PREEMPTED: (Advice.RESTART, "the ranks move to another node"),
    Category.NETWORK: (Advice.RESTART, "network faults often pass"),
    Category.STORAGE: (Advice.STOP, "the storage has to be usable first"),
    Category.GPU: (Advice.RESTART, "after you cordon the node of the GPU"),
    Category.CUDA: (
        Advice.RESTART,
        "if it fails on another node too, the code is the cause; on the same one, its GPU",
    ),
    Category.HANG: (Advice.RESTART, "new processes continue from the newest checkpoint"),
    Category.STRAGGLER: (Advice.RESTART, "the rank was ended to be replaced"),
    Category.RAY: (Advice.RESTART, "the fault is not in the script"),
    Category.RESOURCES: (Advice.STOP, "a restart adds no resources: ask for less or add nodes"),
    Category.CANCELLED: (Advice.STOP, "it was stopped on purpose"),
    Category.KILLED: (Advice.RESTART, "no error of the script is known"),
    Category.UNKNOWN: (Advice.RESTART, "no reason against it is known"),
}  # fmt: skip

REPEATED = 3
"""After this number of consecutive ends with the same cause, a restart is not advised."""
ENVIRONMENT = frozenset({Category.PREEMPTED, Category.NODE, Category.STRAGGLER})
"""Ends that predict nothing about the next attempt, however many there are."""
