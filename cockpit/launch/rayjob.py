"""A job as a RayJob resource: the same command, code and telemetry as over HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import asdict

from cockpit.backends.protocol import RayJobSpec
from cockpit.launch.environment import is_uri
from cockpit.launch.package import Package, package_together, package_training
from cockpit.launch.submission import WORKING_DIR, LaunchSpec, environment, metadata
from cockpit.model.error import UsageError
from cockpit.model.text import one_line
from cockpit.sources.ray.dashboard import Dashboard

NAME_LIMIT = 47
"""KubeRay takes no longer name for a RayJob: it makes those of pods and services of it."""
FOLDER = "code"


class RayJobOptions(Struct, frozen=True):
    """Options of a RayJob that a plain submission does not have."""

    own_cluster: bool = False
    """Run on a cluster made for it, after the pattern of the present one."""
    replicas: Mapping[str, int] = field(default_factory=dict)
    """By worker group of the new cluster."""
    image: str = ""
    """Of the pods of the new cluster; empty: as in the copied cluster."""
    ttl_s: int | None = None
    deadline_s: int | None = None
    backoff_limit: int = 0
    queue: str = ""
    """For the new cluster: as `RayJobSpec.queue`."""


def rayjob_spec(spec: LaunchSpec, options: RayJobOptions) -> RayJobSpec:
    """Build the RayJob.

    On the current cluster the code is referenced by URI (see `provide`); for a new cluster it is in
    the resource. Raises UsageError for what KubeRay would reject.
    """
    for what, seconds in (("--ttl", options.ttl_s), ("--deadline", options.deadline_s)):
        if seconds is not None and seconds < (1 if what == "--deadline" else 0):
            raise UsageError(f"{what} {seconds} is too small.")
    wants = spec.environment
    package = _package(spec, own_cluster=options.own_cluster)
    working_dir = "" if options.own_cluster else package.uri
    runtime_env = {**wants.others, "env_vars": environment(spec)}
    modules = wants.py_modules
    if is_uri(wants.working_dir):
        if options.own_cluster:
            raise UsageError(
                f"{one_line(wants.working_dir)} cannot be the code on a cluster of the job's own.",
                "The telemetry travels to it in the working directory.",
                "Use a folder, or launch on the present cluster.",
            )
        modules, working_dir = (*modules, package.uri), wants.working_dir
    if modules:
        runtime_env["py_modules"] = list(modules)
    return RayJobSpec(
        name=resource_name(spec.submission_id),
        entrypoint=spec.command,
        runtime_env=runtime_env,
        metadata={**metadata(spec), **({WORKING_DIR: working_dir} if working_dir else {})},
        driver=wants.driver,
        package=package.read() if options.own_cluster else b"",
        working_dir=working_dir,
        **asdict(options),
    )


async def provide(dashboard: Dashboard, spec: LaunchSpec) -> None:
    """Upload what the present cluster does not have yet."""
    package = _package(spec, own_cluster=False)
    if not await dashboard.has_package(package.name):
        await dashboard.upload_package(package.name, package.read())


def resource_name(submission_id: str) -> str:
    """The id as Kubernetes takes names: lower case, dashes, a letter first, not too long."""
    safe = re.sub(r"[^a-z0-9]+", "-", submission_id.lower()).strip("-")
    head, _, tail = safe.rpartition("-")
    head = (head or "job") if (head or "job")[0].isalpha() else f"job-{head}"
    return f"{head[: NAME_LIMIT - 1 - len(tail)].rstrip('-')}-{tail}" if tail else head


def _package(spec: LaunchSpec, *, own_cluster: bool) -> Package:
    """Build one package: a RayJob has the telemetry in its working directory, with the user's code.

    From a zip file Ray removes a single top-level folder (`unzip_package` in
    ray/_private/runtime_env/packaging.py), so that one is added.
    """
    if spec.directory is None and not own_cluster:
        return package_training()  # the same that a submission has
    return package_together(
        spec.chosen(),
        with_training=not spec.has_own_training,
        inside=FOLDER if own_cluster else "",
    )
