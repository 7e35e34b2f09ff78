"""The flags of a launch for what a job runs in: variables, packages, code, the driver."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from cockpit.config.repeatable_flag import repeatable
from cockpit.format import bytes_text, number, plural
from cockpit.launch import environment
from cockpit.launch.environment import AS_DEFAULT, JobEnvironment
from cockpit.model.driver import DriverResources
from cockpit.model.error import UsageError
from cockpit.model.secret import is_secret, masked
from cockpit.model.text import one_line


def arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("the job's environment")
    repeatable(
        what, "--env", "KEY[=VALUE]", "an environment variable; KEY alone: its value in your shell"
    )
    repeatable(what, "--env-file", "FILE", "lines of KEY=VALUE")
    repeatable(what, "--pip", "PACKAGE", "install a package with pip")
    repeatable(what, "--uv", "PACKAGE", "install a package with uv")
    repeatable(
        what,
        "--requirements",
        "FILE",
        "install the packages of a requirements file (with uv if --uv is given)",
    )
    what.add_argument(
        "--working-dir",
        metavar="DIR",
        help="for a command: run it in a copy of this folder, or a URI (default: this folder)",
    )
    what.add_argument(
        "--runtime-env",
        metavar="FILE",
        help="a Ray runtime environment as YAML or JSON; the flags above override it",
    )
    what.add_argument("--driver-cpus", type=float, metavar="N", help="reserve CPUs for the driver")
    what.add_argument("--driver-gpus", type=float, metavar="N", help="reserve GPUs for the driver")
    what.add_argument(
        "--driver-memory", metavar="SIZE", help="reserve memory for the driver, such as 4Gi"
    )
    repeatable(what, "--driver-resource", "NAME=N", "reserve a custom resource for the driver")


def given(args: argparse.Namespace) -> JobEnvironment:
    """Build the environment from flags and files. Raises UsageError."""
    read = environment.read_file(args.runtime_env) if args.runtime_env else AS_DEFAULT
    others = dict(read.others)
    if args.pip or args.uv or args.requirements:
        if args.pip and args.uv:
            raise UsageError("--pip and --uv cannot be combined.", todo="Use one of them.")
        for installer in environment.INSTALLERS:
            others.pop(installer, None)
        installer = "uv" if args.uv else "pip"
        others[installer] = environment.packages(args.pip or args.uv, args.requirements)
    return replace(
        read,
        env_vars={**read.env_vars, **environment.variables(args.env, args.env_file)},
        working_dir=args.working_dir or read.working_dir,
        others=others,
        driver=_driver(args),
    )


def _driver(args: argparse.Namespace) -> DriverResources:
    for flag, value in (("--driver-cpus", args.driver_cpus), ("--driver-gpus", args.driver_gpus)):
        if value is not None and value < 0:
            raise UsageError(f"{flag} must be 0 or more.")
    memory = args.driver_memory
    return DriverResources(
        args.driver_cpus,
        args.driver_gpus,
        environment.size_bytes(memory, "--driver-memory") if memory else None,
        environment.driver_resources(args.driver_resource),
    )


def plan(wants: JobEnvironment) -> list[str]:
    """Describe it for the plan, without the values of variables."""
    lines = []
    if wants.env_vars:
        lines.append(f"Set {', '.join(wants.env_vars)} in its environment.")
    if secrets := [name for name, value in wants.env_vars.items() if _is_secret(name, value)]:
        lines.append(
            f"Possible secrets: {', '.join(secrets)}. Everyone who can list jobs on the cluster "
            "can read them. Set them in the environment of the pods instead."
        )
    if installs := wants.installs:
        lines.append(f"Install packages on each node with {masked(installs)}.")
    if unnamed := [name for name in wants.others if name not in environment.INSTALLERS]:
        names = ", ".join(one_line(name, 40) for name in unnamed)
        lines.append(f"Pass to Ray's runtime environment: {names}.")
    if reserved := _reserved(wants.driver):
        lines.append(f"Reserve {reserved} for its driver.")
    return lines


def _is_secret(name: str, value: str) -> bool:
    return bool(value) and (is_secret(name) or masked(value) != value)


def _reserved(driver: DriverResources) -> str:
    parts = []
    if driver.cpus is not None:
        parts.append(plural(driver.cpus, "CPU"))
    if driver.gpus is not None:
        parts.append(plural(driver.gpus, "GPU"))
    if driver.memory_bytes is not None:
        parts.append(f"{bytes_text(driver.memory_bytes)} of memory")
    parts += [f"{number(count)} {one_line(name, 40)}" for name, count in driver.custom.items()]
    return ", ".join(parts)
