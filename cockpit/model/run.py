"""Job, run, attempt, rank, step and checkpoint."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace


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


LOST_DRIVER = "Job supervisor actor died: the node of the driver has died"
"""The beginning is Ray's own, when it notices."""


class Job(Struct, frozen=True):
    """A submitted entrypoint."""

    id: str
    """The submission id; a driver that was not submitted has its Ray job id here."""
    entrypoint: str
    status: JobStatus
    message: str = ""
    """Ray's message on the status; for a failed job the end of its traceback."""
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
    """For a RayJob, the state that KubeRay reports (jobDeploymentStatus)."""
    submitted: bool = False
    """For a RayJob, whether its status contains Ray's state of the job (jobStatus): KubeRay sets
    the deployment to Running before it submits.
    """
    cluster: str = ""
    """For a RayJob, its RayCluster, which may be a new one."""
    queue: str = ""
    """For a RayJob, the LocalQueue of Kueue that its label names."""
    retries: int = 0
    """For a RayJob, its backoffLimit: retries of KubeRay, each on a new cluster."""
    failed: int = 0
    """For a RayJob, its tries that failed."""

    @property
    def tries(self) -> str:
        """`try 2 of 3`, or the one that failed while the next is waited for; empty: no retries."""
        number = min(self.failed + (self.deployment != "Retrying"), self.retries + 1)
        return f"try {number} of {self.retries + 1}" if self.retries else ""

    def with_lost_driver(self) -> Job:
        """The job after the node of its driver has died. With GCS fault tolerance, a new head lists
        it as RUNNING (Ray 2.60, for the 5 minutes that were measured).
        """
        return replace(self, status=JobStatus.FAILED, message=LOST_DRIVER)


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
    """Indices on the node."""
    gpu_uuids: tuple[str, ...] = ()
    """Of those that Ray knows by their UUIDs."""

    @property
    def gpus(self) -> tuple[str, ...]:
        """All of its GPUs, by index or UUID."""
        return (*map(str, self.gpu_ids), *self.gpu_uuids)


class Heal(Struct, frozen=True):
    """A rank receives the weights and the optimizer's state of another one."""

    rank: int
    source: int
    """The other rank."""


class RankSample(Struct, frozen=True):
    """The steps of one rank since its last sample, folded into one record, at most 1 a second.

    A number that the job does not report is None, never 0.
    """

    rank: int
    attempt: int
    at_s: float
    step: int
    """The last global step, counted from 1 over the whole run; a new attempt continues the count.
    """
    first_step: int
    """The first step in this record; `step - first_step + 1` steps are folded in."""
    steps_total: int
    """Steps done by this process, this attempt."""
    epoch: float | None = None
    loss: float | None = None
    """The loss of the last step; NaN and infinity are kept."""
    samples_per_s: float | None = None
    step_time_s: float | None = None
    """Mean wall time between the ends of steps in this record."""
    data_wait_s: float | None = None
    """Mean per step, like the sections that follow; GPU sections are in the GPU's time."""
    comm_s: float | None = None
    checkpoint_s: float | None = None
    """Total time blocked on checkpoints in this record."""
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    tokens_per_s: float | None = None
    mfu_percent: float | None = None
    """Model FLOPs utilisation: the FLOPs that the model needs, relative to the device's peak."""
    learning_rate: float | None = None
    grad_norm: float | None = None
    cpu_percent: float | None = None
    """CPU usage of the rank's own process; 100 is one core."""
    memory_bytes: int | None = None
    """Resident set of the rank's own process."""
    gpu_utilization_percent: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_power_w: float | None = None
    gpu_temperature_c: float | None = None
    gpu_memory_total_bytes: int | None = None
    gpu_clock_mhz: int | None = None
    """The clock of the streaming multiprocessors."""
    gpu_throttle: str | None = None
    """Why the clocks are reduced, separated by commas; "" if they are not."""
    gpu_ecc_errors: int | None = None
    """Uncorrected errors since the driver was loaded."""
    gpu_xid: int | None = None
    """The newest Xid of the device since the rank started; None if there was none."""
    gpu_nvlink_rx_bytes_per_s: float | None = None
    gpu_nvlink_tx_bytes_per_s: float | None = None
    gpu_pcie_rx_bytes_per_s: float | None = None
    gpu_pcie_tx_bytes_per_s: float | None = None


class Spread(Struct, frozen=True):
    """One metric over all ranks of a large world, in one tick that does not include every rank."""

    name: str
    """A field of `RankSample`."""
    count: int
    """Ranks that sent a number. The quantiles are of the finite ones."""
    mean: float
    """NaN if a rank sent NaN or infinity."""
    low: float
    p10: float
    p50: float
    p90: float
    high: float
    low_rank: int
    high_rank: int


class Phase(StrEnum):
    """The phase of an attempt. One begins where the one before ends; an attempt may skip some."""

    SCHEDULING = "scheduling"
    """Waiting for resources."""
    PLACEMENT_GROUP = "placement group"
    ACTOR_START = "actor start"
    """The ranks' processes start and import modules."""
    PROCESS_GROUP = "process group"
    """The ranks form their process group (torch.distributed)."""
    RESTORE = "restore"
    """A checkpoint is being read."""
    FIRST_STEP = "first step"
    """The training function runs, before its first step or report."""
    RUNNING = "running"
    PREEMPTING = "preempting"
    RESTARTING = "restarting"
    RESIZING = "resizing"
    SHUTTING_DOWN = "shutting down"


class RankMetrics(Struct, frozen=True):
    """The metrics of one rank in one `ray.train.report`."""

    rank: int
    metrics: dict[str, float]


class Checkpoint(Struct, frozen=True):
    """A checkpoint that Ray Train accepted."""

    step: int | None
    path: str
    metrics: dict[str, float] = field(default_factory=dict)
    size_bytes: int | None = None
    took_s: float | None = None
    """From the report to the acceptance, including the upload."""


class TrialStatus(StrEnum):
    """The trial statuses of Ray Tune (ray.tune.experiment.Trial)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"

    @property
    def is_over(self) -> bool:
        return self in (TrialStatus.TERMINATED, TrialStatus.ERROR)


class Trial(Struct, frozen=True):
    """One trial of a Ray Tune experiment, as last reported."""

    id: str
    experiment: str
    status: TrialStatus
    config: dict[str, str] = field(default_factory=dict)
    """The parameters, flattened, with values as text."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The metrics of its newest result."""
    iteration: int = 0
    started_s: float | None = None
    updated_s: float | None = None
    node_ip: str = ""
    pid: int = 0
    error: str = ""
    """The error in one line."""
    run_id: str = ""
    """The Train run that the trial drives, if any."""


class RunSummary(Struct, frozen=True):
    """The summary of a run; None: unknown. Medians are over the samples while it was RUNNING."""

    run_id: str
    name: str
    job: str
    """The launched workload, the same for each launch: a bundled job's name, or the entrypoint.
    Runs are compared with runs of the same job and world size.
    """
    state: RunState
    world_size: int | None = None
    gpus: float = 0.0
    """The throughput of all ranks together."""
    started_s: float | None = None
    ended_s: float | None = None
    attempts: int = 0
    steps: int = 0
    """The newest step."""
    samples_per_s: float | None = None
    step_time_s: float | None = None
    loss: float | None = None
    """The last loss."""
    goodput_percent: float | None = None
    submission_id: str = ""
    cluster: str = ""
    """As `str(ClusterRef)`; empty in old recordings."""
