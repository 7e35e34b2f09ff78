"""Files that others wrote: game days, kubeconfigs and manifests of checkpoints."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from cockpit.backends.kuberay.api import kubeconfig
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.drills.gamedays import file
from cockpit.model.error import CockpitError, UsageError
from tests.fuzz.cases import broken, broken_bytes, examine, quick_and_nightly
from training.checkpoint import manifest
from training.checkpoint.manifest import Damaged, File, Manifest
from training.checkpoint.storage import RunDirectory

DAYS = [
    (files("cockpit.drills") / "gamedays" / f"{name}.toml").read_bytes() for name in file.shipped()
]
_TOML = (
    "= -1",
    "= 1e400",
    "= nan",
    "= [[]]",
    "= {}",
    '= "\\u001b[2J"',
    "= 99" + "9" * 500,
    "= 1979-05-27",
)
_WORDS = tuple(sorted({word for day in DAYS for word in day.decode().split()}))


@quick_and_nightly(4_500)
def test_game_day_is_understood_or_a_usage_error(cases: int) -> None:
    def check(text: bytes) -> None:
        with suppress(CockpitError):
            file.parsed(text.decode(errors="replace"), "day.toml", "day")

    message = st.lists(
        st.tuples(st.integers(0, 1 << 12), st.sampled_from(_WORDS + _TOML)), max_size=3
    )
    days = st.builds(_with_words, st.sampled_from(DAYS), message)
    examine(days | broken_bytes(days), check, cases)


def _with_words(day: bytes, terms: list[tuple[int, str]]) -> bytes:
    """Other text at the end of some lines, instead of one value or of all."""
    lines = day.decode().split("\n")
    for number, text in terms:
        at = number % len(lines)
        lines[at] = f"{lines[at].partition('=')[0]} {text}" if number % 3 else text
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "{a = " * 50_000,
        "a." * 20_000 + "b = 1",
        "[" + "a." * 20_000 + "b]",
        '"a".' * 20_000 + "b = 1",
        "a = " + "9" * 5000,
        "# " + "x" * (2 << 20),
        "[[step]]\nwait_s = 1" + "0" * 400,
        "seed = 1" + "0" * 400,
    ],
    ids=["lists", "tables", "key", "header", "quoted", "digits", "size", "seconds", "seed"],
)
def test_excessive_game_day_is_a_usage_error(text: str) -> None:
    """Nested deeper than the parser recurses, or slow: 39 s for 20,000 parts of a key."""
    with pytest.raises(UsageError):
        file.parsed(text, "day.toml", "day")


KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "ml"}}],
    "clusters": [
        {
            "name": "k",
            "cluster": {
                "server": "https://10.0.0.1:6443",
                "certificate-authority": "ca.crt",
                "proxy-url": "http://proxy:3128",
                "tls-server-name": "kubernetes",
            },
        }
    ],
    "users": [
        {"name": "u", "user": {"token": "t", "tokenFile": "token", "client-key": "k.pem"}},
        {"name": "v", "user": {"exec": {"command": "./login", "args": ["a"], "env": None}}},
    ],
}


@quick_and_nightly(5_000)
def test_kubeconfig_is_read_or_a_usage_error(cases: int, tmp_path: Path) -> None:
    path = tmp_path / "config"

    def check(text: bytes) -> None:
        path.write_bytes(text)
        with suppress(CockpitError):
            found = kubeconfig.read([path])
            for context in found.contexts:
                with suppress(CockpitError):
                    repr(Credentials(context))
            found.context()

    # YAML is a superset of JSON; what JSON cannot express is in the bytes.
    as_json = broken(KUBECONFIG).map(lambda raw: json.dumps(raw).encode())
    as_yaml = st.just(yaml.safe_dump(KUBECONFIG).encode())
    examine(as_json | broken_bytes(as_yaml) | broken_bytes(as_json), check, cases)


ALIASES = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
MULTIPLIED = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *ALIASES])


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{a: " * 50_000,
        "- " * 100_000,
        f"{MULTIPLIED}\nclusters: [{{name: k, cluster: {{server: *a9}}}}]",
        "a: &a [*a]",
        "users: 2001-99-99",
        "x" * (17 << 20),
    ],
    ids=["lists", "mappings", "sequences", "aliases", "recursive", "date", "size"],
)
def test_excessive_kubeconfig_is_a_usage_error(text: str, tmp_path: Path) -> None:
    """The lists ended the process; the aliases are a document of 9**9 values in 500 bytes."""
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UsageError):
        kubeconfig.read([path])


def _manifest(world_size: int = 2) -> dict[str, Any]:
    listed = (File("model.pt", 5, hashlib.sha256(b"model").hexdigest()),)
    whole: dict[str, Any] = json.loads(Manifest(0, world_size, 40, listed).encode())
    return whole


@quick_and_nightly(4_500)
def test_manifest_is_whole_or_damage(cases: int, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"model")
    second = Manifest(1, 2, 40, ()).encode()
    (tmp_path / "manifest-1.json").write_bytes(second)

    def check(raw: bytes) -> None:
        (tmp_path / "manifest-0.json").write_bytes(raw)
        with suppress(Damaged):
            RunDirectory(LocalFileSystem(), str(tmp_path)).is_finished(str(tmp_path))
            found = manifest.check(tmp_path)
            assert found.world_size in (1, 2)
            assert set(manifest.files(tmp_path)) <= {"model.pt"}

    def signed(raw: Any, right: bool) -> bytes:
        """Who can write the directory can write the digest too."""
        if right and isinstance(raw, dict) and "manifest" in raw:
            with suppress(TypeError):
                raw["sha256"] = manifest._digest(raw["manifest"])
        return json.dumps(raw).encode()

    changed = st.builds(signed, broken(_manifest(), _manifest(1)), st.booleans())
    examine(changed | broken_bytes(changed), check, cases)
