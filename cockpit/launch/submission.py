"""Launching, stopping, deleting and resuming jobs.

Every job that is launched here carries the telemetry callback, so that an unmodified Ray Train
script shows its attempts and reports.
"""

from __future__ import annotations

import json
import secrets
import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.launch import driver_node
from cockpit.launch.closest_name import did_you_mean
from cockpit.launch.environment import AS_DEFAULT, JobEnvironment, is_uri
from cockpit.launch.folder import Folder, folder
from cockpit.launch.job import bundled_job, flags
from cockpit.launch.package import Package, cached_package, package_folder, package_training
from cockpit.model.clock import server_time
from cockpit.model.decoding import limited_json
from cockpit.model.driver import NOTHING_RESERVED, DriverResources
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.recovery import FAST, RecoveryProfile
from cockpit.model.run import Job
from cockpit.model.secret import MASKED, masked, masked_command
from cockpit.model.text import one_line
from cockpit.sources.mlflow import source
from cockpit.sources.polling.pause import pause
from cockpit.sources.ray.dashboard import Dashboard, Submission
from cockpit.sources.ray.http import AnswerError, MissingError
from training.telemetry.names import CALLBACK, TUNE_CALLBACK

CALLBACKS = "RAY_TRAIN_CALLBACKS"
TUNE_CALLBACKS = "RAY_TUNE_CALLBACKS"

DEFAULT_ENV = {
    "RAY_TRAIN_ENABLE_STATE_TRACKING": "1",  # /api/train/v2/runs/v1 answers 500 without
    "RAY_DEDUP_LOGS": "0",  # a log that leaves out lines is no log
}

BUNDLED = "cockpit.job"
RESUMED_FROM = "cockpit.resumed_from"
WORKING_DIR = "cockpit.working_dir"
RECOVERY = "cockpit.recovery"
DRIVER = "cockpit.driver"
"""Metadata of a job: the bundled job's name, the job that it continues, its package, its recovery
profile, so that drills are compared with their like, and what its driver reserves, as JSON."""


class LaunchSpec(Struct, frozen=True):
    """A job to submit."""

    entrypoint: tuple[str, ...]
    submission_id: str
    directory: Path | None = None
    """The user's own code, which becomes the working directory; None for a bundled job and for
    `environment.working_dir` that is a URI."""
    environment: JobEnvironment = AS_DEFAULT
    """Its variables win over the defaults, and CALLBACKS is added to."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    recovery: RecoveryProfile = FAST
    uploads: Folder | None = None
    """The files of `directory` that the user has confirmed; None: those of the time of the launch.
    """

    def chosen(self) -> Folder | None:
        """The files to upload; None without a `directory`. Reads it, unless `uploads` is set."""
        if self.directory is None:
            return None
        return self.uploads or folder(self.directory)

    @property
    def command(self) -> str:
        """As a shell has it, which is how Ray runs it."""
        return shlex.join(self.entrypoint)

    @property
    def shown_command(self) -> str:
        """`command` for a plan or a log: without what looks like a secret."""
        shown = shlex.join(masked_command(self.entrypoint))
        return shown.replace(f"'{MASKED}'", MASKED)

    @property
    def has_own_training(self) -> bool:
        """The user's code has a `training` package, which would hide cockpit's."""
        if self.directory is None:
            return False
        own = self.directory / "training"
        ours = own / "telemetry" / "callback.py"
        return (own.is_dir() or own.with_suffix(".py").is_file()) and not ours.is_file()

    @property
    def has_recovery(self) -> bool:
        """Check the modules of a profile's callbacks, which are uploaded with the job.

        An older `training` package in the user's folder hides them, and Ray Train fails a run whose
        callback cannot be imported.
        """
        if self.has_own_training:
            return False
        own = self.directory / "training" if self.directory is not None else None
        return own is None or not own.is_dir() or (own / "recovery" / "callback.py").is_file()


def bundled_spec(
    name: str,
    settings: Mapping[str, str] | None = None,
    workers: int | None = None,
    *,
    submission_id: str = "",
    environment: JobEnvironment = AS_DEFAULT,
) -> LaunchSpec:
    """A bundled job, with its run named, so that `resume` finds its checkpoints.

    Raises UsageError for a job or a setting that does not exist, or a value of the wrong type.
    """
    if environment.working_dir:
        raise UsageError(
            "A bundled job brings its own working directory.",
            todo="To run your code: cockpit launch --working-dir DIR -- python train.py",
        )
    job = bundled_job(name)
    given = {key.replace("-", "_"): value for key, value in (settings or {}).items()}
    if workers is not None:
        if not job.has("workers"):
            raise UsageError(
                f"Job {name} has a fixed number of workers.", todo="Leave out --workers."
            )
        given["workers"] = str(workers)
    submission_id = submission_id or new_submission_id(name)
    if job.has("run_name"):
        given["run_name"] = given.get("run_name") or submission_id
    return LaunchSpec(
        entrypoint=("python", "-m", job.module, *flags(job, given)),
        submission_id=submission_id,
        environment=environment,
        metadata={BUNDLED: name},
    )


def script_spec(
    argv: tuple[str, ...],
    directory: Path,
    *,
    environment: JobEnvironment = AS_DEFAULT,
) -> LaunchSpec:
    """Any command, run in a copy of `environment.working_dir`, by default of `directory`."""
    if not argv:
        raise UsageError("There is no command to launch", todo="cockpit launch -- python train.py")
    scripts = [Path(text).stem for text in argv if text.endswith(".py")]
    name = scripts[0] if scripts else Path(argv[0]).name
    return LaunchSpec(
        entrypoint=argv,
        submission_id=new_submission_id(name),
        directory=_working_directory(environment.working_dir, directory),
        environment=environment,
    )


def _working_directory(given: str, default: Path) -> Path | None:
    """None for a URI. Raises UsageError when there is no such folder."""
    if is_uri(given):
        return None
    directory = Path(given).expanduser() if given else default
    if not directory.is_dir():
        raise UsageError(f"{one_line(str(directory))} is not a folder.")
    return directory


def new_submission_id(name: str) -> str:
    """The name and something that no other job has; safe in file names and addresses."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in name)
    return f"{safe.strip('-')[:40] or 'job'}-{secrets.token_hex(4)}"


async def launch(
    dashboard: Dashboard, spec: LaunchSpec, log: Callable[[str], None] = lambda line: None
) -> Job:
    """Upload what the cluster does not have yet, submit, and return the job as Ray lists it.

    `log` is called if the driver gets a place on a node for drivers.
    """
    training = package_training()
    own = package_folder(chosen) if (chosen := spec.chosen()) is not None else None
    with_training = not spec.has_own_training
    for package in filter(None, (own, training if with_training else None)):
        await _provide(dashboard, package)
    wants = spec.environment
    working_dir = own.uri if own is not None else wants.working_dir or training.uri
    beside = (training.uri,) if working_dir != training.uri and with_training else ()
    driver = await driver_resources(dashboard, wants.driver)
    if driver != wants.driver:
        log(driver_node.TEXT)
    submission = Submission(
        entrypoint=spec.command,
        submission_id=spec.submission_id,
        working_dir=working_dir,
        py_modules=(*wants.py_modules, *beside),
        env_vars=environment(spec),
        other_runtime_env=wants.others,
        metadata={**metadata(spec), WORKING_DIR: working_dir},
        driver=driver,
    )
    return await _submit(dashboard, submission)


async def driver_resources(dashboard: Dashboard, wanted: DriverResources) -> DriverResources:
    """What the driver reserves: what the user wants, else a place on a node for drivers.

    The place is not kept for a resubmission: by then the cluster may have no such node.
    """
    if wanted != NOTHING_RESERVED:
        return wanted
    try:
        nodes = await dashboard.nodes()
    except AnswerError:
        return wanted  # another version of Ray may list them otherwise, and accept jobs as this one
    return driver_node.reservation(nodes, await dashboard.jobs())


def environment(spec: LaunchSpec) -> dict[str, str]:
    """The environment of a launched job; the user's variables take precedence.

    With it the runs that it logs to MLflow have the user's name.
    """
    ours = {**DEFAULT_ENV, **spec.recovery.job_env, **source.context(spec.submission_id)}
    env = {**ours, **spec.environment.env_vars}
    if not spec.has_own_training:
        train = (CALLBACK, *(spec.recovery.callbacks if spec.has_recovery else ()))
        for variable, own in ((CALLBACKS, train), (TUNE_CALLBACKS, (TUNE_CALLBACK,))):
            callbacks = [name for name in env.get(variable, "").split(",") if name]
            env[variable] = ",".join(dict.fromkeys([*callbacks, *own]))
    return env


def metadata(spec: LaunchSpec) -> dict[str, str]:
    """The metadata that Ray stores for a launched job."""
    kept = {**spec.metadata, RECOVERY: spec.recovery.name}
    if reserved := spec.environment.driver.as_fields():
        kept[DRIVER] = json.dumps(reserved)
    return kept


async def resume(dashboard: Dashboard, job_id: str) -> Job:
    """Submit a finished job again, with the same command, code and environment.

    A bundled job continues from its newest checkpoint, since its command names its run. Raises
    UsageError for a job that still runs: two of them would write to the same checkpoints.
    """
    job = await find(dashboard, job_id)
    if not job.status.is_over:
        raise UsageError(f"{job_id} is {job.status}", todo=f"Stop it first: cockpit stop {job_id}")
    before = await dashboard.submission(job_id)
    for uri in filter(None, (before.working_dir, *before.py_modules)):
        await _provide_again(dashboard, job_id, uri)
    name = job.metadata.get(BUNDLED) or job_id.rpartition("-")[0] or job_id
    again = replace(
        before,
        submission_id=new_submission_id(name),
        metadata={**before.metadata, RESUMED_FROM: job_id},
        driver=await driver_resources(dashboard, _driver(before.metadata.get(DRIVER, ""))),
    )
    return await _submit(dashboard, again)


def _driver(kept: str) -> DriverResources:
    """What the user wanted for the previous job: from its metadata, since Ray reports none."""
    if not kept:
        return DriverResources()
    try:
        return DriverResources.from_fields(limited_json.loads(kept))
    except (ValueError, AttributeError) as error:
        raise UsageError(f"The job's metadata {DRIVER} is not understood.") from error


async def stop(dashboard: Dashboard, job_id: str) -> Job:
    """Request a job's stop, and return its state: it may be over some seconds later."""
    job = await find(dashboard, job_id)
    if job.status.is_over:
        return job
    await dashboard.stop(job_id)
    return await dashboard.job(job_id)


RETURNS_WITHIN_S = 10.0
"""Ray looks at a job once a second, until some seconds after its end. A poll that no longer finds
the job writes it down again, as failed (`_monitor_job_internal` in Ray 2.60)."""


async def delete(dashboard: Dashboard, job_id: str) -> None:
    """Delete a job from Ray. Raises UsageError while it runs.

    If it has just ended, Ray may write it again, so that the deletion takes some seconds.
    """
    job = await find(dashboard, job_id)
    if not job.status.is_over:
        raise UsageError(f"{job_id} is {job.status}", todo=f"Stop it first: cockpit stop {job_id}")
    await dashboard.delete(job_id)
    since_end_s = max(0.0, server_time() - (job.ended_s or 0.0))  # by two clocks
    looks_until_s = time.monotonic() + RETURNS_WITHIN_S - since_end_s
    while time.monotonic() < looks_until_s:
        await pause(0.5)
        with suppress(MissingError):
            await dashboard.job(job_id)
            await dashboard.delete(job_id)
            return  # Ray writes it again once


async def find(dashboard: Dashboard, job_id: str) -> Job:
    """Raises MissingError that names a job of nearly that id."""
    try:
        return await dashboard.job(job_id)
    except MissingError as error:
        ids = [job.id for job in await dashboard.jobs()]
        raise MissingError(
            f"There is no job {job_id!r}{did_you_mean(job_id, ids)}",
            "" if ids else "This cluster has no jobs.",
            "cockpit jobs lists the jobs.",
            status=404,
        ) from error


async def _submit(dashboard: Dashboard, submission: Submission) -> Job:
    try:
        return await dashboard.job(await dashboard.submit(submission))
    except AnswerError as error:
        raise AnswerError(
            f"Ray rejected job {submission.submission_id}.",
            masked(error.why),  # Ray repeats what it was sent
            error.todo,
            status=error.status,
        ) from error


async def _provide(dashboard: Dashboard, package: Package) -> None:
    if not await dashboard.has_package(package.name):
        await dashboard.upload_package(package.name, package.read())


async def _provide_again(dashboard: Dashboard, job_id: str, uri: str) -> None:
    """Upload a package that Ray deleted, some minutes after its last job, from the local cache."""
    if not uri.startswith("gcs://"):
        return  # on shared storage, as the user had it
    package = cached_package(uri.removeprefix("gcs://"))
    if package.path.exists():
        await _provide(dashboard, package)
    elif not await dashboard.has_package(package.name):
        raise CockpitError(
            f"The code of job {job_id} is no longer on the cluster.",
            f"Ray deleted {uri} after the job ended, and this host has no copy.",
            "Launch the job again from its source directory.",
        )
