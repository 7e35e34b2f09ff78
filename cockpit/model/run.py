"""Job, run, attempt, rank, step and checkpoint."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field


class JobStatus(StrEnum):
    """Ray's job statuses (ray.job_submission.JobStatus)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def is_over(self) -> bool:
        return self in (JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.FAILED)


class Job(Struct, frozen=True):
    """A submitted entrypoint."""

    id: str
    """The submission id; a driver that was not submitted has its Ray job id here."""
    entrypoint: str
    status: JobStatus
    message: str = ""
    """Ray's words on the status; for a failed job the end of its traceback."""
    started_s: float | None = None
    ended_s: float | None = None
    driver_node_id: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    ray_id: str = ""
    """Ray's hexadecimal job id of the (last) driver; empty until it has connected."""
    rayjob: str = ""
    """The RayJob resource that submitted it; empty for a job over HTTP."""
    rayjob_uid: str = ""
    """The resource's UID, which no other RayJob of its name has."""
    deployment: str = ""
    """For a RayJob, KubeRay's word on where it is (jobDeploymentStatus)."""
    submitted: bool = False
    """For a RayJob, whether its status has Ray's answer about the job (jobStatus): KubeRay sets
    the deployment to Running before it submits."""
    cluster: str = ""
    """For a RayJob, the RayCluster that it runs on, which may be one of its own."""


class RunState(StrEnum):
    """The states of a Ray Train V2 controller (ray.train.v2, TrainControllerState)."""

    INITIALIZING = "INITIALIZING"
    SCHEDULING = "SCHEDULING"
    RESCHEDULING = "RESCHEDULING"
    RUNNING = "RUNNING"
    PREEMPTING = "PREEMPTING"
    RESTARTING = "RESTARTING"
    RESIZING = "RESIZING"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    ERRORED = "ERRORED"
    FINISHED = "FINISHED"
    ABORTED = "ABORTED"
    UNKNOWN = "UNKNOWN"

    @property
    def is_over(self) -> bool:
        return self in (RunState.ERRORED, RunState.FINISHED, RunState.ABORTED)


class Placement(Struct, frozen=True):
    """Where one rank of an attempt runs."""

    rank: int
    node_id: str
    node_ip: str
    pid: int
    gpu_ids: tuple[int, ...] = ()


class RankSample(Struct, frozen=True):
    """What one rank did since its last sample: steps folded into one record, at most 1 a second.

    A number that the job does not report is None, never 0.
    """

    rank: int
    attempt: int
    at_s: float
    step: int
    """The last global step done, counted from 1 over the whole run: attempts go on counting."""
    first_step: int
    """The first step in this record; `step - first_step + 1` steps are folded in."""
    steps_total: int
    """Steps done by this process, this attempt."""
    epoch: float | None = None
    loss: float | None = None
    """Of the last step; NaN and infinity are kept."""
    samples_per_s: float | None = None
    step_time_s: float | None = None
    """Mean wall time between the ends of steps in this record."""
    data_wait_s: float | None = None
    """Mean per step, as are the sections that follow; sections of a GPU are its own time."""
    comm_s: float | None = None
    checkpoint_s: float | None = None
    """Total time blocked on checkpoints in this record."""
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    tokens_per_s: float | None = None
    mfu_percent: float | None = None
    """Model FLOPs utilisation: FLOPs that the model needs, of what the device can do."""
    learning_rate: float | None = None
    grad_norm: float | None = None
    cpu_percent: float | None = None
    """Of the rank's own process; 100 is one core."""
    memory_bytes: int | None = None
    """Resident set of the rank's own process."""
    gpu_utilization_percent: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_power_w: float | None = None
    gpu_temperature_c: float | None = None
    gpu_memory_total_bytes: int | None = None
    gpu_clock_mhz: int | None = None
    """Of the streaming multiprocessors."""
    gpu_throttle: str | None = None
    """Why the clocks are held down, in words with a comma between; "" when they are not."""
    gpu_ecc_errors: int | None = None
    """Uncorrected errors since the driver was loaded."""
    gpu_xid: int | None = None
    """The newest Xid of the device since the rank began; None when there was none."""
    gpu_nvlink_rx_bytes_per_s: float | None = None
    gpu_nvlink_tx_bytes_per_s: float | None = None
    gpu_pcie_rx_bytes_per_s: float | None = None
    gpu_pcie_tx_bytes_per_s: float | None = None


class Spread(Struct, frozen=True):
    """One number over all ranks of a large world, in one tick: not every rank is told each time."""

    name: str
    """A field of `RankSample`."""
    count: int
    """Ranks that gave a number. The quantiles are of the finite ones."""
    mean: float
    """NaN when a rank gave NaN or infinity."""
    low: float
    p10: float
    p50: float
    p90: float
    high: float
    low_rank: int
    high_rank: int


class Phase(StrEnum):
    """Where an attempt is. One begins where the one before ends; not every attempt has all."""

    SCHEDULING = "scheduling"
    """Waiting for resources."""
    PLACEMENT_GROUP = "placement group"
    ACTOR_START = "actor start"
    """The ranks' processes start and import."""
    PROCESS_GROUP = "process group"
    """The ranks meet (torch.distributed)."""
    RESTORE = "restore"
    """A checkpoint is being read."""
    FIRST_STEP = "first step"
    """The training function runs; its first step or report is awaited."""
    RUNNING = "running"
    PREEMPTING = "preempting"
    RESTARTING = "restarting"
    RESIZING = "resizing"
    SHUTTING_DOWN = "shutting down"


class RankMetrics(Struct, frozen=True):
    """What one rank gave to one `ray.train.report`."""

    rank: int
    metrics: dict[str, float]


class Checkpoint(Struct, frozen=True):
    """A checkpoint that Ray Train has accepted."""

    step: int | None
    path: str
    metrics: dict[str, float] = field(default_factory=dict)
    size_bytes: int | None = None
    took_s: float | None = None
    """From the report to its acceptance, the upload included."""


class TrialStatus(StrEnum):
    """Ray Tune's (ray.tune.experiment.Trial)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"

    @property
    def is_over(self) -> bool:
        return self in (TrialStatus.TERMINATED, TrialStatus.ERROR)


class Trial(Struct, frozen=True):
    """One trial of a Ray Tune experiment, as it was told last."""

    id: str
    experiment: str
    status: TrialStatus
    config: dict[str, str] = field(default_factory=dict)
    """Flat, its values as text."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Of its newest result."""
    iteration: int = 0
    started_s: float | None = None
    updated_s: float | None = None
    node_ip: str = ""
    pid: int = 0
    error: str = ""
    """One line."""
    run_id: str = ""
    """The Train run that the trial drives, if it does."""


class RunSummary(Struct, frozen=True):
    """None where nothing was known. Medians are over the samples while the run was RUNNING."""

    run_id: str
    name: str
    job: str
    """What was launched, without what differs from time to time: a bundled job's name, or the
    entrypoint. Runs are compared with runs of the same job and world size."""
    state: RunState
    world_size: int | None = None
    gpus: float = 0.0
    """All of its ranks together."""
    started_s: float | None = None
    ended_s: float | None = None
    attempts: int = 0
    steps: int = 0
    """The newest step."""
    samples_per_s: float | None = None
    step_time_s: float | None = None
    loss: float | None = None
    """The last one."""
    goodput_percent: float | None = None
    submission_id: str = ""
    """Of the job that it was, or is, part of."""
