"""Build the programs of the test cluster from Go modules into a cache outside the repository.

`modules/` pins the sources. A program's file name contains a hash of its pins, so that a changed
pin triggers a build. The file is renamed to it only when it is complete.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "modules"
KUBERNETES = "1.34.4"
_VERSION = "k8s.io/component-base/version"

PACKAGES = (
    "containerd",
    "runc",
    "containernetworking-plugins",
    "nftables",
    "iproute2",
    "conntrack",
)
"""Debian's part; `iproute2` gives `ip`."""
_GO_SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
_FASTER = {"GOGC": "400"}
"""The compiler collects garbage less often. With no debugging data, a build takes 12 % less."""
GO, NIGHTLY_GO = (1, 24), (1, 25)
"""The oldest that the modules are written for."""
COMMAND = "python -m tests.cluster.build"
BUILD_TIME = "about 10 minutes on 2 cores"
COMMANDS = ("containerd", "runc", "nft", "ip", "conntrack", "nsenter", "unshare")
CNI_PLUGINS = Path("/usr/lib/cni")


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    module: str
    """The folder under `modules/`."""
    package: str
    ldflags: str = "-s -w"
    tags: str = ""
    """Go's build tags, separated by commas."""


_KUBERNETES_FLAGS = (
    f"-s -w -X {_VERSION}.gitVersion=v{KUBERNETES}"
    f" -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=34"
)
PROGRAMS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    *(
        Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", _KUBERNETES_FLAGS)
        for name in (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
        )
    ),
    Program("coredns", "coredns", "."),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    Program("pause", "pause", "."),
    Program("kustomize", "kustomize", "sigs.k8s.io/kustomize/kustomize/v5"),
)


OBJECT_STORE = Program("gofakes3", "gofakes3", "github.com/johannesboyne/gofakes3/cmd/gofakes3")
"""An S3 server. Kubernetes does not need it, and it needs neither root nor Debian packages."""
NIGHTLY = (
    Program("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue"),
    # Debian's Prometheus has no discovery of Kubernetes' pods. The tags leave out all other ones.
    Program(
        "prometheus",
        "prometheus",
        "github.com/prometheus/prometheus/cmd/prometheus",
        tags="remove_all_sd,enable_kubernetes_sd",
    ),
    Program("kubectl", "kubectl", ".", _KUBERNETES_FLAGS),
)
"""What only nightly tests start. `COMMAND --nightly` builds them."""


def cache(environment: Mapping[str, str] = os.environ) -> Path:
    """COCKPIT_TESTBED_CACHE, or the user's cache folder."""
    if named := environment.get("COCKPIT_TESTBED_CACHE"):
        return Path(named)
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "cockpit-testbed"


CACHE = cache()
"""Read when the module is imported: tests change XDG_CACHE_HOME for what they test."""


def program(name: str) -> Path:
    """The path of the built program, which may not exist yet."""
    [wanted] = [each for each in (*PROGRAMS, OBJECT_STORE, *NIGHTLY) if each.name == name]
    return CACHE / f"{name}-{_fingerprint(wanted)}"


def unusable() -> str:
    """Why no test cluster can run here even once it is built, in one line; empty when it can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "it needs root: namespaces, mounts and a kubelet"
    lacking = [command for command in COMMANDS if shutil.which(command) is None]
    if lacking or not (CNI_PLUGINS / "bridge").exists():
        return (
            f"apt-get install {' '.join(PACKAGES)} ({', '.join(lacking) or 'CNI plugins'} lacking)"
        )
    # Root of a container may lack the right to do any of this.
    probe = ["unshare", "--mount", "--net", "--pid", "--fork"]
    probe += ["ip", "link", "add", "one", "type", "veth", "peer", "name", "two"]
    tried = subprocess.run(probe, capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"this root may make no namespaces ({tried.stderr.strip()})"
    return ""


def unbuilt(programs: Iterable[Program] = (*PROGRAMS, OBJECT_STORE)) -> list[Program]:
    """Return those of the programs that have yet to be built."""
    return [each for each in programs if not program(each.name).exists()]


def missing() -> str:
    """Why no test cluster can be started now, in one line; empty when it can."""
    if why := unusable():
        return why
    if not {OBJECT_STORE}.issuperset(unbuilt()):
        return f"its programs are not built; `{COMMAND}` builds them, in {BUILD_TIME}"
    return ""


def missing_nightly(name: str) -> str:
    """Why a program of NIGHTLY cannot be started now, in one line; empty when it can."""
    return "" if program(name).exists() else f"{name} is not built; `{COMMAND} --nightly` builds it"


def _go_lacking(oldest: tuple[int, int]) -> str:
    if shutil.which("go") is None:
        return "Go is not installed"
    reported = subprocess.run(["go", "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", reported)
    if found is None or (int(found[1]), int(found[2])) < oldest:
        return f"Go is older than {oldest[0]}.{oldest[1]} ({reported.strip()})"
    return ""


def build(wanted: Sequence[Program], report: Callable[[str], None]) -> None:
    """Build them, and report each step. CalledProcessError when a build fails."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for count, each in enumerate(wanted, start=1):
        whole = program(each.name)
        report(f"building {each.name} ({count} of {len(wanted)}) …")
        begun = time.monotonic()
        half = whole.with_name(f"{whole.name}.{os.getpid()}.half")
        try:
            subprocess.run(
                [
                    *("go", "build", "-trimpath", "-ldflags", each.ldflags, "-tags", each.tags),
                    *("-gcflags=all=-dwarf=false", "-o", half, each.package),
                ],
                cwd=MODULES / each.module,
                env={**_FASTER, **os.environ, **_GO_SETTINGS},
                check=True,
            )
            half.rename(whole)
        finally:
            half.unlink(missing_ok=True)
        for old in CACHE.glob(f"{each.name}-*"):
            if old != whole and not old.name.endswith(".half"):
                old.unlink()
        report(f"built {each.name} in {time.monotonic() - begun:.0f} s")


def _fingerprint(wanted: Program) -> str:
    made_of = [wanted.package, wanted.ldflags, *filter(None, [wanted.tags])]
    folder = MODULES / wanted.module
    made_of += [path.read_text() for path in sorted(folder.iterdir()) if path.is_file()]
    return hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:12]


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--nightly", action="store_true", help="also what nightly tests start")
    nightly = parser.parse_args(arguments).nightly
    wanted = unbuilt((*PROGRAMS, OBJECT_STORE, *(NIGHTLY if nightly else ())))
    oldest = NIGHTLY_GO if set(NIGHTLY) & set(wanted) else GO
    if why := unusable() or (_go_lacking(oldest) if wanted else ""):
        print(f"No Kubernetes can be started here: {why}.", file=sys.stderr)
        return 1
    try:
        build(wanted, lambda line: print(line, flush=True))
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd))
        print(f"{command} failed with exit code {error.returncode}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
