"""The hardware and software of the ranks, to interpret the numbers later or elsewhere."""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from training.bench import units
from training.bench.section import Finding, Level, Section, Table
from training.loop.world import World
from training.telemetry.gpu import nvml

PREFIXES = (
    "NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "OMP_", "MKL_", "KMP_", "CUDA_", "NVIDIA_VISIBLE",
    "UCX_", "FI_", "RAY_TRAIN_",
)  # fmt: skip
SECRET = re.compile("TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
BUSY = 0.25
"""The load average per core above which a host is busy, before a measurement starts."""


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    memory_bytes: int
    driver: str


@dataclass(frozen=True, slots=True)
class Interface:
    name: str
    speed_mbit: int
    """0 if the system does not report it."""


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Host:
    """As the first of its ranks sees it."""

    name: str
    ranks: tuple[int, ...]
    cpu: str
    cores: int
    """The cores that the rank may use."""
    memory_bytes: int
    load: float
    """The average over a minute, before the measurement."""
    system: str
    gpus: tuple[Gpu, ...]
    gpus_why_not: str
    interfaces: tuple[Interface, ...]
    variables: tuple[Variable, ...]


@dataclass(frozen=True, slots=True)
class Environment:
    python: str
    torch: str
    cuda: str
    """The CUDA version of torch; empty without CUDA."""
    cudnn: str
    nccl: str
    backend: str
    """The backend of the process group."""
    ray: str
    hosts: tuple[Host, ...]


def measure(world: World, _: object) -> Environment:
    """Call on all ranks."""
    every: list[Any] = [None] * world.size
    dist.all_gather_object(every, (world.rank, host(os.environ)))
    by_name: dict[str, list[tuple[int, Host]]] = {}
    for rank, found in every:
        by_name.setdefault(found.name, []).append((rank, found))
    hosts = tuple(_of_ranks(found) for found in by_name.values())
    has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
    return Environment(
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda or "",
        cudnn=str(torch.backends.cudnn.version() or ""),  # type: ignore[no-untyped-call]
        nccl=".".join(map(str, torch.cuda.nccl.version())) if has_nccl else "",  # type: ignore[no-untyped-call]
        backend=dist.get_backend(),
        ray=ray_version(),
        hosts=hosts,
    )


def recorded(environment: Mapping[str, str]) -> dict[str, Any]:
    """This host, its software and the version of each package, to repeat a run."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda or "",
        "ray": ray_version(),
        "host": asdict(host(environment)),
        "packages": {
            str(found.metadata["Name"]): found.version
            for found in sorted(distributions(), key=lambda item: str(item.metadata["Name"]))
        },
    }


def _of_ranks(found: list[tuple[int, Host]]) -> Host:
    first = found[0][1]
    ranks = tuple(rank for rank, _ in found)
    return Host(**{name: getattr(first, name) for name in Host.__slots__} | {"ranks": ranks})


def host(environment: Mapping[str, str]) -> Host:
    """This host, without ranks."""
    gpus, why_not = gpus_of(nvml.load) if torch.cuda.is_available() else ((), "CUDA finds none")
    meminfo = Path("/proc/meminfo").read_text()
    kilobytes = re.search(r"^MemTotal:\s+(\d+)", meminfo, re.MULTILINE)
    return Host(
        name=socket.gethostname(),
        ranks=(),
        cpu=cpu(Path("/proc/cpuinfo").read_text()),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=int(kilobytes[1]) * 1024 if kilobytes else 0,
        load=os.getloadavg()[0],
        system=f"{platform.system()} {platform.release()}",
        gpus=gpus,
        gpus_why_not=why_not,
        interfaces=interfaces(Path("/sys/class/net")),
        variables=variables(environment),
    )


def cpu(cpuinfo: str) -> str:
    """From /proc/cpuinfo, which has no name on some architectures."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def gpus_of(load: Any) -> tuple[tuple[Gpu, ...], str]:
    """All GPUs of the host by NVML, or why there are none."""
    try:
        found = load()
        found.nvmlInit()
    except ImportError:
        return (), "nvidia-ml-py is not installed"
    except Exception as error:  # noqa: BLE001 - NVML's own errors, from a module that may be missing
        return (), f"NVML: {error}"
    driver = str(found.nvmlSystemGetDriverVersion())
    handles = [found.nvmlDeviceGetHandleByIndex(at) for at in range(found.nvmlDeviceGetCount())]
    return tuple(
        Gpu(found.nvmlDeviceGetName(h), int(found.nvmlDeviceGetMemoryInfo(h).total), driver)
        for h in handles
    ), ""


def interfaces(folder: Path) -> tuple[Interface, ...]:
    """`folder`: /sys/class/net. A speed is in megabits per second; -1 or an error if unknown."""
    found = []
    for path in sorted(folder.iterdir()):
        try:
            speed = int((path / "speed").read_text())
        except (OSError, ValueError):
            speed = 0
        found.append(Interface(path.name, max(0, speed)))
    return tuple(found)


def variables(environment: Mapping[str, str]) -> tuple[Variable, ...]:
    """The variables that affect training, without secrets."""
    return tuple(
        Variable(name, CREDENTIALS.sub("", value))
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES) and not SECRET.search(name)
    )


def ray_version() -> str:
    try:
        return version("ray")
    except PackageNotFoundError:
        return ""


def machine(result: Environment) -> str:
    """In one line: `2 hosts of 16 cores (AMD EPYC), 8 GPUs each (NVIDIA H100)`."""
    first = result.hosts[0]
    text = f"{first.cores} cores ({first.cpu}), {units.size(first.memory_bytes)} of memory"
    if first.gpus:
        text += f", {len(first.gpus)} × {first.gpus[0].name}"
    return text if len(result.hosts) == 1 else f"{len(result.hosts)} hosts of {text}"


def section(result: Environment) -> Section:
    software = (
        ("Python", result.python),
        ("torch", result.torch),
        ("CUDA of torch", result.cuda or "none"),
        ("cuDNN", result.cudnn or "none"),
        ("NCCL", result.nccl or "none"),
        ("process group", result.backend),
        ("Ray", result.ray or "not installed"),
    )
    hosts = tuple(
        (
            item.name,
            ", ".join(map(str, item.ranks)),
            f"{item.cores} × {item.cpu}",
            units.size(item.memory_bytes),
            f"{item.load:.1f}",
            "; ".join(f"{gpu.name}, driver {gpu.driver}" for gpu in item.gpus)
            or f"none ({item.gpus_why_not})",
            ", ".join(
                f"{nic.name} {nic.speed_mbit} Mbit/s" if nic.speed_mbit else nic.name
                for nic in item.interfaces
            ),
        )
        for item in result.hosts
    )
    columns = ("host", "ranks", "cores", "memory", "load", "GPUs", "interfaces")
    held = tuple((item.name, v.name, v.value) for item in result.hosts for v in item.variables)
    return Section(
        "Environment",
        f"{machine(result)}.",
        (
            Table(("software", "version"), software),
            Table(columns, hosts),
            Table(("host", "variable", "value"), held),
        ),
        (),
        findings(result),
    )


def findings(result: Environment) -> tuple[Finding, ...]:
    found = []
    for item in result.hosts:
        if item.load > BUSY * item.cores:
            found.append(
                Finding(
                    Level.NOTE,
                    f"{item.name} was busy when it began: load {item.load:.1f} on {item.cores} "
                    "cores. Ratios within this run still compare; times do not.",
                )
            )
        debug = next((v.value for v in item.variables if v.name == "NCCL_DEBUG"), "")
        if debug.upper() in ("INFO", "TRACE"):
            found.append(
                Finding(Level.NOTE, f"NCCL_DEBUG={debug} on {item.name}.", "Leave it at WARN.")
            )
        if not item.gpus and result.cuda and "CUDA finds none" not in item.gpus_why_not:
            found.append(Finding(Level.NOTE, f"{item.name}: {item.gpus_why_not}."))
    kinds = {(item.cpu, item.cores, tuple(gpu.name for gpu in item.gpus)) for item in result.hosts}
    if len(kinds) > 1:
        found.append(
            Finding(
                Level.PROBLEM,
                f"The {len(result.hosts)} hosts are of {len(kinds)} kinds: the slowest sets the "
                "pace of every step.",
                "Train on hosts of one kind.",
            )
        )
    return tuple(found)
