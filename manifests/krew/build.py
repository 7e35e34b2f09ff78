"""Build the krew plugin: an archive with the wheel, and the manifest that krew installs it by.

python manifests/krew/build.py --uri https://example.com/cockpit.tar.gz --output dist

writes `dist/cockpit.tar.gz` and `dist/cockpit.yaml`. The manifest holds the checksum of the
archive, so that both are made together. The same sources make the same archive.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLUGIN = "kubectl-cockpit"
API_VERSION = "krew.googlecontainertools.github.com/v1alpha2"
FILES = (HERE / PLUGIN, ROOT / "constraints.txt", ROOT / "LICENSE")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--uri", required=True, help="where the archive will be published")
    parser.add_argument("--output", type=Path, required=True, help="the folder of both files")
    parser.add_argument("--wheel", type=Path, help="one that exists; else it is built")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        content = archive((*FILES, args.wheel or wheel(Path(folder))))
    packed, described = args.output / "cockpit.tar.gz", args.output / "cockpit.yaml"
    packed.write_bytes(content)
    described.write_text(manifest(args.uri, content))
    print(f"Wrote {packed} and {described}. To install the plugin from these files, run:")
    print(f"kubectl krew install --manifest={described} --archive={packed}")
    return 0


def wheel(folder: Path, root: Path = ROOT) -> Path:
    """Build the wheel of `root` into `folder`, in an environment of the build backend."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(folder),
        str(root),
    ]
    subprocess.run(command, check=True)
    return next(folder.glob("cockpit-*.whl"))


def archive(files: tuple[Path, ...]) -> bytes:
    """A tar.gz of the files, without times and owners."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for path in files:
            entry = tarfile.TarInfo(path.name)
            entry.size, entry.mode = path.stat().st_size, 0o755 if path.name == PLUGIN else 0o644
            with path.open("rb") as content:
                tar.addfile(entry, content)
    return gzip.compress(plain.getvalue(), mtime=0)


def manifest(uri: str, content: bytes) -> str:
    """The plugin manifest of krew (krew/pkg/index/types.go) for an archive at `uri`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    plugin = {
        "apiVersion": API_VERSION,
        "kind": "Plugin",
        "metadata": {"name": "cockpit"},
        "spec": {
            "version": f"v{project['version']}",
            "shortDescription": "Watch and drill distributed training on Ray",
            "description": project["description"],
            "caveats": "Needs Python 3.11 or newer. The first call installs Python packages.",
            "platforms": [
                {
                    "uri": uri,
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "selector": {"matchLabels": {"os": "linux"}},
                    "bin": PLUGIN,
                }
            ],
        },
    }
    return yaml.safe_dump(plugin, sort_keys=False, width=1000)


if __name__ == "__main__":
    sys.exit(main())
