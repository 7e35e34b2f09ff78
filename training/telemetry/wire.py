"""The telemetry stream: one description for the writer on the cluster and the reader in cockpit.

The stream is a file of JSON lines under the Ray session's `logs/cockpit/` on the head node, so that
the dashboard's log routes list and follow it. Each line is one record:

    {"v": 1, "seq": 7, "t": 1763712000.25, "kind": "steps", "run": "ab12…", …}

`seq` increases by 1 within a stream, from 1; a reader that reconnects drops records that it has
seen and can detect missed ones. A long stream is a sequence of files; the oldest are deleted (see
`Segment`). Readers skip unknown kinds and fields; a missing field gets its default. NaN and the
infinities are written as the strings "nan", "inf" and "-inf", since JSON has no numbers for them.
This module is pure Python; cockpit shares only it, the names of the files and the metric table with
training.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeAlias, get_args

VERSION = 1


class WireError(ValueError):
    """A line that is not a record of this stream: incomplete, invalid, or of a later version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run started or changed its state. `state` is Ray Train's (`RUNNING`, `RESTARTING`, …)."""

    KIND: ClassVar[str] = "run"
    run: str
    name: str = ""
    state: str = "UNKNOWN"
    job: str = ""
    """Ray's hexadecimal job id."""
    submission: str = ""
    """The submission id, if the driver was submitted as a job."""
    world_size: int | None = None
    message: str = ""
    trial: str = ""
    """The trial of Ray Tune that drives it, if any."""
    max_failures: int | None = None
    max_preemption_failures: int | None = None
    """Permitted restarts, from Ray Train's FailureConfig; -1: unlimited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    rank: int
    node_id: str = ""
    node_ip: str = ""
    pid: int = 0
    gpu_ids: tuple[int, ...] = ()
    """Indices on the node."""
    gpu_uuids: tuple[str, ...] = ()
    """Of those that Ray knows by their UUIDs, because CUDA_VISIBLE_DEVICES has UUIDs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStart:
    """The attempt's worker group has started."""

    KIND: ClassVar[str] = "attempt_start"
    run: str
    attempt: int
    workers: tuple[Worker, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    KIND: ClassVar[str] = "attempt_end"
    run: str
    attempt: int
    reason: str = ""
    budget: str = ""
    """The budget it was charged to: the field of Ray Train's FailureConfig, or `none`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksReplaced:
    """Ranks have new processes within an attempt: Ray Train replaced only their replica groups."""

    KIND: ClassVar[str] = "ranks_replaced"
    run: str
    attempt: int
    workers: tuple[Worker, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heal:
    """A rank receives the weights and the optimizer's state of another one."""

    rank: int
    source: int
    """The other rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The replicas that take part in the steps of a run that continues without lost ones."""

    KIND: ClassVar[str] = "quorum"
    run: str
    attempt: int
    number: int
    """Of the quorum, counted from 1."""
    replicas: int
    """The number of replicas of the run."""
    members: tuple[int, ...] = ()
    """The ranks of those that take part."""
    step: int = 0
    """The last step that was committed before."""
    heals: tuple[Heal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of one rank since its last record. Fields as in cockpit's `RankSample`."""

    rank: int
    attempt: int
    t: float
    step: int
    first_step: int
    steps_total: int
    epoch: float | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    step_time_s: float | None = None
    data_wait_s: float | None = None
    comm_s: float | None = None
    checkpoint_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    tokens_per_s: float | None = None
    mfu_percent: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    gpu_utilization_percent: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_power_w: float | None = None
    gpu_temperature_c: float | None = None
    gpu_memory_total_bytes: int | None = None
    gpu_clock_mhz: int | None = None
    gpu_throttle: str | None = None
    gpu_ecc_errors: int | None = None
    gpu_xid: int | None = None
    gpu_nvlink_rx_bytes_per_s: float | None = None
    gpu_nvlink_tx_bytes_per_s: float | None = None
    gpu_pcie_rx_bytes_per_s: float | None = None
    gpu_pcie_tx_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One metric over all ranks of a large world. Fields as in cockpit's `Spread`."""

    name: str
    count: int
    mean: float
    low: float
    p10: float
    p50: float
    p90: float
    high: float
    low_rank: int
    high_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Records of ranks: those of one push, or, in a large world, those of about a second.

    In a large world `ranks` are some of them, which alternate, plus the outliers, and `spreads` are
    over all.
    """

    KIND: ClassVar[str] = "steps"
    run: str
    ranks: tuple[Steps, ...] = ()
    spreads: tuple[Spread, ...] = ()
    attempt: int = 0
    """The attempt of the spreads."""
    reporting: int | None = None
    """With spreads: the number of ranks that sent a record since the last such tick."""
    silent: tuple[int, ...] = ()
    """With spreads: ranks of the attempt that sent none for some seconds, the longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The attempt entered another phase at `t`; names as in cockpit's `Phase`."""

    KIND: ClassVar[str] = "phase"
    run: str
    attempt: int
    """The attempt of the phase; it may not have started yet."""
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A message from a rank for the user."""

    KIND: ClassVar[str] = "notice"
    run: str
    attempt: int
    rank: int
    reason: str = ""
    """A reason as in Kubernetes, such as `CheckpointDamaged`."""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMetrics:
    rank: int
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One `ray.train.report` of all ranks: the mean of each number over the ranks."""

    KIND: ClassVar[str] = "report"
    run: str
    attempt: int
    metrics: dict[str, float] = field(default_factory=dict)
    checkpoint: str = ""
    """The checkpoint's path, if the report has one."""
    checkpoint_bytes: int | None = None
    checkpoint_took_s: float | None = None
    """From the first rank's report to the acceptance, including the upload."""
    by_rank: tuple[RankMetrics, ...] = ()
    """For a large world, some ranks only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial of Ray Tune. Fields as in cockpit's `Trial`."""

    id: str
    status: str = "PENDING"
    config: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    iteration: int = 0
    started_s: float | None = None
    updated_s: float | None = None
    node_ip: str = ""
    pid: int = 0
    error: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Trials of an experiment that are new or changed."""

    KIND: ClassVar[str] = "trials"
    experiment: str
    trials: tuple[Trial, ...] = ()
    metric: str = ""
    mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """A process group of torch.distributed."""

    name: str
    """Unique within a process: `0` is the default group."""
    description: str = ""
    members: tuple[int, ...] = ()
    """Ranks of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The Python stack of a thread."""

    frames: tuple[str, ...] = ()
    """The innermost first, each `function (file:line)`."""
    user: int = -1
    """The index of the innermost frame of the user's own code; -1 without one."""
    call: str = ""
    """The call in the innermost frame, without arguments: `time.sleep`."""
    peer: int = -1
    """The rank that a `send` or `recv` of torch.distributed waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    name: str
    stack: int
    """An index into the record's stacks."""
    state: str = ""
    """The kernel's thread state: `R` running, `S` sleeping, `D` uninterruptible."""
    is_training: bool = False
    """The thread that runs the training function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """An entry of torch's flight recorder."""

    group: int
    """An index into the record's groups."""
    seq: int
    """The number of the collective in its group, from 1."""
    op: str
    shape: str = ""
    """Data type and sizes of the input: `float32 [1024]`."""
    age_s: float = 0.0
    """Seconds since the rank called it."""
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The progress of a rank in a process group."""

    group: int
    enqueued: int
    """The sequence number of the newest collective that the rank called."""
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """The state of one rank that makes no progress."""

    rank: int
    attempt: int
    t: float
    number: int = 1
    """The number of dumps since the last progress; or PROGRESS or HEARTBEAT, which are no dumps."""
    idle_s: float = 0.0
    """Since its last step, report, checkpoint or collective call."""
    usual_s: float | None = None
    """Its usual time between two of these; None: not known yet."""
    longest_s: float = 0.0
    """The longest time between two of these so far."""
    bound_s: float = 0.0
    """The longest `idle_s` that is normal for the rank's pace."""
    slow_bound_s: float = 0.0
    """The same for a rank that is busy: an evaluation, a checkpoint, a compilation."""
    cpu_percent: float | None = None
    """CPU usage of the process and its children over the last few seconds; 100 is one core."""
    io_bytes_per_s: float | None = None
    """Read and written by the process, in the same time."""
    major_faults_per_s: float | None = None
    """Pages that the kernel read back from a disk for the process, in the same time."""
    swapped_bytes: int | None = None
    """Memory of the process that the kernel has swapped out."""
    missing: str = ""
    """Why there are no collectives."""
    threads: tuple[Thread, ...] = ()
    reached: tuple[Reached, ...] = ()
    collectives: tuple[Collective, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Dumps of ranks that make no progress, at most one of each rank."""

    KIND: ClassVar[str] = "hang"
    run: str
    attempt: int = 0
    dumps: tuple[Dump, ...] = ()
    stacks: tuple[Stack, ...] = ()
    """Each once: the threads of many ranks have few different stacks."""
    groups: tuple[ProcessGroup, ...] = ()
    silent: tuple[int, ...] = ()
    """Ranks of the attempt that sent nothing for HEARTBEAT_SILENT_S."""


PROGRESS = 0
"""The number of a dump after the others: there is progress again."""

HEARTBEAT = -1
"""The number of a dump that only shows that the rank's process runs."""

HEARTBEAT_S = 8.0
"""A rank with a watchdog sends something at least this often."""

HEARTBEAT_SILENT_S = 12.0

BUSY_CPU_PERCENT, BUSY_IO_BYTES_PER_S = 8.0, 100_000.0
"""From these on, a rank without progress may be at work. CPU: with that of its child processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The stream continues in its file of this number: the last line of one, the first of the next.

    The lines that follow it in the next file, up to the first with a higher number than its own,
    repeat those that a reader without the earlier files needs: numbers between them are not
    missing.
    """

    KIND: ClassVar[str] = "segment"
    segment: int


Body: TypeAlias = (
    Run
    | AttemptStart
    | AttemptEnd
    | RanksReplaced
    | Quorum
    | Phase
    | Notice
    | Tick
    | Report
    | Trials
    | Hang
    | Segment
)

_KINDS: dict[str, type[Any]] = {body.KIND: body for body in get_args(Body)}
_NESTED: dict[str, type[Any]] = {
    "workers": Worker,
    "heals": Heal,
    "ranks": Steps,
    "spreads": Spread,
    "by_rank": RankMetrics,
    "trials": Trial,
    "dumps": Dump,
    "stacks": Stack,
    "groups": ProcessGroup,
    "threads": Thread,
    "reached": Reached,
    "collectives": Collective,
}
_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True, slots=True)
class Record:
    """One line: its number in the file, its time (Unix seconds), and its record.

    `t` is by the clock of the process that observed it, so it can decrease a little from line to
    line. A record of the controller whose writer died before it was acknowledged may occur twice,
    with two numbers.
    """

    seq: int
    t: float
    body: Body


def encode(record: Record) -> str:
    """The record as one line of strict JSON, without the newline."""
    line = {"v": VERSION, "seq": record.seq, "t": record.t, "kind": record.body.KIND}
    return json.dumps(line | _plain(record.body), separators=(",", ":"), allow_nan=False)


def decode(line: str | bytes, loads: Callable[[str | bytes], Any] = json.loads) -> Record | None:
    """The record, or None for a kind that this version does not know.

    `loads` decodes the JSON; a reader of untrusted lines passes one with limits. Raises WireError
    for a line that is incomplete, is not of this stream, is of another version, or contains a
    number outside of its range.
    """
    try:
        raw = loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("v"), int):
        raise WireError("not a telemetry record")
    if raw["v"] > VERSION:
        newer = f"written by version {raw['v']}, this cockpit reads up to {VERSION}"
        raise WireError(f"{newer}: update cockpit")
    body = _KINDS.get(str(raw.get("kind")))
    if body is None:
        return None
    try:
        return Record(_whole(raw["seq"]), _moment(raw["t"]), _build(body, raw))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise WireError(f"bad {body.KIND} record: {error}") from error


def _plain(value: Any) -> Any:
    """Dataclasses as objects without their None fields, non-finite floats as strings."""
    if hasattr(value, "__dataclass_fields__"):
        named = ((f.name, getattr(value, f.name)) for f in fields(value))
        return {name: _plain(item) for name, item in named if item is not None}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _build(kind: type[Any], raw: Mapping[str, Any]) -> Any:
    """Missing fields get the dataclass's default; without one its TypeError is raised."""
    values: dict[str, Any] = {}
    for name, read in _readers(kind):
        if name in raw:
            values[name] = read(raw[name])
    return kind(**values)


def _readers(kind: type[Any]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """Converters by field of the dataclass; cached, since a tick of 1,000 ranks needs them 1,000
    times.
    """
    found = _READERS.get(kind)
    if found is None:
        found = tuple((item.name, _reader(item.name, str(item.type))) for item in fields(kind))
        _READERS[kind] = found
    return found


_READERS: dict[type[Any], tuple[tuple[str, Callable[[Any], Any]], ...]] = {}


def _reader(name: str, declared: str) -> Callable[[Any], Any]:
    """From JSON to the field's declared type; it raises TypeError or ValueError for another."""
    nested = _NESTED.get(name)
    if nested is not None:
        return lambda raw: tuple(_build(nested, item) for item in raw)
    if declared == "dict[str, str]":
        return lambda raw: {_text(key): _text(item) for key, item in raw.items()}
    if declared.startswith("dict"):
        return lambda raw: {_text(key): _number(item) for key, item in raw.items()}
    if declared.startswith("tuple"):
        one = _text if "str" in declared else _count
        return lambda raw: tuple(one(item) for item in raw)
    plain: Callable[[Any], Any] = _text
    if name in _MOMENTS:
        plain = _moment
    elif name in _COUNTS:
        plain = _count
    elif declared.startswith("float"):
        plain = _number
    elif declared.startswith("int"):
        plain = _whole
    elif declared == "bool":
        plain = bool
    if "None" in declared:
        return lambda raw: None if raw is None else plain(raw)
    return plain


_WHOLE_BITS = 63
"""The range of whole numbers that other programs accept (SQLite, Arrow, a float)."""


_MOMENTS = frozenset({"t", "started_s", "updated_s"})
_EARLIEST_S, _LATEST_S = -62_135_596_800.0, 253_402_300_799.0
"""The years 1 to 9999, as Unix times: other times have no date."""
_COUNTS = frozenset(
    {
        *("rank", "low_rank", "high_rank", "attempt", "world_size", "count", "reporting"),
        *("segment", "replicas", "source"),
    }
)
_MAX_COUNT = 999_999_999
"""The limit of counted things. A segment's number has 9 digits."""


def _moment(raw: Any) -> float:
    time_s = float(raw)
    if not _EARLIEST_S <= time_s <= _LATEST_S:
        raise ValueError("a time out of range")
    return time_s


def _count(raw: Any) -> int:
    value = int(raw)
    if not 0 <= value <= _MAX_COUNT:
        raise ValueError("a count out of range")
    return value


def _whole(raw: Any) -> int:
    value = int(raw)
    if value.bit_length() > _WHOLE_BITS:
        raise ValueError("a whole number of too many bits")
    return value


def _text(raw: Any) -> str:
    """JSON can contain a lone surrogate, which cannot be written."""
    if isinstance(raw, (dict, list)):
        raise TypeError("a text was expected")
    text = str(raw)
    return text if text.isascii() else text.encode(errors="replace").decode()


def _number(raw: Any) -> float:
    if type(raw) is float:
        return raw
    return _SPECIAL[raw] if isinstance(raw, str) and raw in _SPECIAL else float(raw)
