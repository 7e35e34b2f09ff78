"""What a job needs of the pods, from its submission. Pure."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from cockpit.launch.capacity import ALONE, reserved, settings, workers
from cockpit.launch.environment import size_bytes
from cockpit.launch.job import bundled_job
from cockpit.launch.package import training_directory
from cockpit.launch.submission import BUNDLED, LaunchSpec
from cockpit.model.decoding.boolean import boolean_variable
from cockpit.preflight.imports import Imports, imported

DEFAULT_STORAGE = "~/ray_results"
"""Ray Train's, and so that of a job without `storage_path`."""
OF_JOBS = {"deepspeed": ("deepspeed",)}
"""Modules that a bundled job requires, but imports late."""
SPARES = "COCKPIT_RECOVERY_SPARES"
"""The variable that turns the spare processes of a recovery profile off."""


S3_VARIABLES = (
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REQUEST_CHECKSUM_CALCULATION",
    "AWS_RESPONSE_CHECKSUM_VALIDATION",
)
S3_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class Demand(Struct, frozen=True):
    workers: int | None = None
    """Ranks; None: not known."""
    cpus: float = 1.0
    """Of each rank."""
    gpus: float = 0.0
    memory_bytes: int = 0
    """That each rank reserves; 0: none."""
    spares: bool = False
    """Each node keeps spare processes, at most one for each rank."""
    spread: bool = False
    """Ranks are placed on as many nodes as possible."""
    loaders: int = 0
    """Processes that load data, for each rank: they pass batches through /dev/shm."""
    modules: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    """Modules whose absence the job may handle."""
    installs: str = ""
    """Packages that Ray installs for the job, as text."""
    storage: str = ""
    """The path of checkpoints; "" if it is not known."""
    only_head: bool = False
    """All of it runs in the driver."""
    s3_variables: tuple[tuple[str, str], ...] = ()
    """Of the job's own environment, those that select the server of S3; no credentials."""
    has_s3_keys: bool = False
    """The job's own environment has credentials of S3, which are not sent to the pods."""


def demand(spec: LaunchSpec) -> Demand:
    """Of a bundled job, from its settings; of a command, the imports of its script."""
    name = spec.metadata.get(BUNDLED, "")
    installs = spec.environment.installs
    if not name:
        found = _of_command(spec)
        return Demand(
            modules=tuple(sorted({"ray", *found.required})),
            optional=found.optional,
            installs=installs,
        )
    job, chosen = bundled_job(name), settings(spec)

    def value(setting: str) -> str:
        if not job.has(setting):
            return ""
        return chosen.get(setting.replace("_", "-"), job.setting(setting).default_text)

    takes = reserved(spec)
    on_gpu = value("gpu") == "true" or "GPU" in takes
    memory = value("memory_per_worker")
    script = training_directory() / "jobs" / f"{job.module.rpartition('.')[2]}.py"
    modules = {"ray", *imported(script, training_directory().parent).required}
    modules |= {*OF_JOBS.get(name, ()), *(("mlflow",) if value("mlflow") else ())}
    count, variables = workers(spec), spec.environment.env_vars
    return Demand(
        workers=1 if name in ALONE else count,
        cpus=takes.get("CPU", 0.0 if on_gpu else 1.0),
        gpus=(takes.get("GPU") or 1.0) if on_gpu else 0.0,
        memory_bytes=size_bytes(memory, "memory_per_worker") if memory else 0,
        spares=count is not None and _keeps_spares(spec),
        spread="spread" in value("placement"),
        loaders=int(value("loader_workers") or 0),
        modules=tuple(sorted(modules)),
        installs=installs,
        storage=(value("storage_path") or DEFAULT_STORAGE) if job.has("storage_path") else "",
        only_head=name in ALONE,
        s3_variables=tuple((key, variables[key]) for key in S3_VARIABLES if key in variables),
        has_s3_keys=any(key in variables for key in S3_KEYS),
    )


def _keeps_spares(spec: LaunchSpec) -> bool:
    wanted = boolean_variable(spec.environment.env_vars, SPARES)
    return bool(spec.recovery.callbacks) and spec.has_recovery and wanted is not False


def _of_command(spec: LaunchSpec) -> Imports:
    """The imports of the first Python file of the command, if there is one."""
    folder = spec.directory
    words = [word for word in spec.entrypoint if word.endswith(".py")]
    if folder is None or not words:
        return Imports()
    script = Path(folder, words[0])
    found = imported(script, folder)
    # Python finds modules beside the script; cockpit adds the package `training`.
    beside = {path.stem for path in script.parent.glob("*.py")} | {"training"}
    return Imports(
        tuple(name for name in found.required if name not in beside),
        tuple(name for name in found.optional if name not in beside),
    )
