"""Choose the files of a folder that are uploaded with a job.

Left out are what .gitignore and .rayignore exclude (as Ray's own launcher does), version control,
virtual environments and caches, files that usually hold credentials, and links that lead out of the
folder: the package can be read by everyone who may use the cluster's dashboard.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cockpit.format import bytes_text, plural
from cockpit.model.error import UsageError
from cockpit.model.text import one_line

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", ".tox", ".nox", ".idea", ".vscode"}
    | {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"}
)
SKIPPED_FILES = ("*.pyc", "*.pyo", ".ds_store", "*.sw[op]")
_SECRET = re.compile(
    r"""
    \.env([-_.].+)? | .+\.env | \.envrc | [._]netrc | \.git-credentials | \.htpasswd | \.my\.cnf
    | \.npmrc | \.pgpass | \.pypirc | \.(aws|azure|boto|config|databrickscfg|docker|dockercfg)
    | \.(gcloud|gnupg|huggingface|kube|oci|ray|s3cfg|ssh|terraform\.d|vault-token) | \..*_history
    | \.(cargo|gem|password-store|secrets?) | \.?rclone\.conf | \.([a-z]+[-_])?token
    | (hf|auth|api|access)[-_]?token(\.txt)?
    | id_(rsa|dsa|ecdsa|ed25519).* | .+\.(pem|key|p12|pfx|jks|keystore|ppk|kdbx|kubeconfig)
    | kubeconfig(\.ya?ml)? | application_default_credentials\.json | service[-_]account.*\.json
    | (client_)?secrets?([-_.].*)?\.(toml|ya?ml|json)
    | (.+[-_.])?credentials\.(toml|ya?ml|json|ini|csv)
    | \.kaggle | kaggle\.json | \.modal\.toml | .+\.tfstate(\..+)? | .+\.tfvars(\.json)?
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Names of files and folders that usually hold credentials."""
_COPY = re.compile(r"#?(.+?)(?:#|~|\.(?:bak|backup|old|orig|save))*", re.IGNORECASE | re.DOTALL)
"""What editors and `cp` name a copy of a file."""
EXAMPLES = (".env.example", ".env.sample", ".env.template")
IGNORE_FILES = (".gitignore", ".rayignore")
WITHOUT_GITIGNORE = "RAY_RUNTIME_ENV_IGNORE_GITIGNORE"
"""Ray's own launcher reads no .gitignore when this is 1 (ray_constants.py of Ray 2.60)."""


class Why(StrEnum):
    """Why a file or folder is left out."""

    IGNORED = ".gitignore or .rayignore"
    SECRET = "may hold credentials"
    LINK = "link to a folder, or to outside the folder"


class File(Struct, frozen=True):
    name: str
    """Relative to the folder, with `/`."""
    path: Path
    size_bytes: int


class LeftOut(Struct, frozen=True):
    name: str
    """Relative to the folder; a folder ends with `/`."""
    why: Why


class Folder(Struct, frozen=True):
    """The files of a folder that are uploaded, and those that are not. Caches are in neither."""

    directory: Path
    files: tuple[File, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def folder(directory: Path, *, ignore_files: bool = True) -> Folder:
    """Return the files below `directory`, folder by folder, each in order of their names.

    Follows links to files inside the folder, and no links to folders. With `ignore_files` False,
    .gitignore and .rayignore files are not used. Raises UsageError for an invalid one.
    """
    root = directory.resolve()
    rules = _rules(root) if ignore_files else ()
    files: list[File] = []
    left_out: list[LeftOut] = []
    for at, folders, names in os.walk(root):
        here = Path(at)
        for rule in rules:
            rule.read(here)
        kept = []
        for name in sorted(each for each in folders if each not in SKIPPED):
            if why := _why_not(root, here / name, rules, is_folder=True):
                left_out.append(LeftOut(f"{(here / name).relative_to(root).as_posix()}/", why))
            else:
                kept.append(name)
        folders[:] = kept
        for name in sorted(each for each in names if not _is_skipped(each)):
            path = here / name
            relative = path.relative_to(root).as_posix()
            if why := _why_not(root, path, rules, is_folder=False):
                left_out.append(LeftOut(relative, why))
            elif path.is_file():  # no sockets, pipes or broken links
                _require_utf8(relative)
                files.append(File(relative, path, path.stat().st_size))
    return Folder(directory, tuple(files), tuple(left_out))


def is_secret(name: str) -> bool:
    """Whether a file or folder of that name, or a copy of one, usually holds credentials."""
    copied = _COPY.fullmatch(name)
    names = (name, copied[1]) if copied else (name,)
    return any(map(_SECRET.fullmatch, names)) and name.lower() not in EXAMPLES


def _require_utf8(name: str) -> None:
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise UsageError(
            f"The name of file {one_line(name)} is not UTF-8, and no package can have it.",
            todo="Rename it, or exclude its folder in .rayignore.",
        )


def _is_skipped(name: str) -> bool:
    lower = name.lower()
    return name in SKIPPED or any(fnmatch.fnmatchcase(lower, each) for each in SKIPPED_FILES)


def _why_not(root: Path, path: Path, rules: Sequence[_Rule], *, is_folder: bool) -> Why | None:
    if is_secret(path.name) or (path.name.lower() == "credentials" and not is_folder):
        return Why.SECRET  # a folder of that name may be a Python package
    if any(rule.excludes(path, is_folder=is_folder) for rule in rules):
        return Why.IGNORED
    if not path.is_symlink():
        return None
    target = Path(os.path.realpath(path))  # unlike `resolve`, it takes links in a circle
    if is_folder or not target.is_relative_to(root):
        return Why.LINK
    relative = target.relative_to(root)
    if any(is_secret(part) or _is_skipped(part) for part in relative.parts):
        return Why.SECRET
    above = [root / each for each in reversed(relative.parents)]
    for rule in rules:
        for each in above:
            rule.read(each)  # of folders that are not walked yet
        if rule.excludes(target, is_folder=False) or any(
            rule.excludes(each, is_folder=True) for each in above[1:]
        ):
            return Why.IGNORED
    return None


class _Rule:
    """All ignore files of one name, by the folder that each is in."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._specs: dict[Path, GitIgnoreSpec] = {}
        self._at: Path | None = None
        self._chain: list[tuple[int, GitIgnoreSpec]] = []

    def read(self, folder: Path) -> None:
        """Add the folder's own, if it has one."""
        path = folder / self._name
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read.", one_line(str(error))) from error
        self._specs[folder] = _spec(path, lines)
        self._at = None

    def forget(self, folder: Path) -> None:
        self._specs.pop(folder, None)
        self._at = None

    def excludes(self, path: Path, *, is_folder: bool) -> bool:
        """As git decides: the last pattern that matches counts, the deepest file's last."""
        if path.parent != self._at:
            # Called for the files of one folder in sequence: the same rules apply to them.
            above = reversed(path.parents)
            self._at = path.parent
            self._chain = [
                (len(str(each).rstrip("/")) + 1, self._specs[each])
                for each in above
                if each in self._specs
            ]
        excluded = False
        for start, spec in self._chain:
            found = spec.check_file(str(path)[start:] + "/" * is_folder).include
            excluded = excluded if found is None else found
        return excluded


def _rules(root: Path) -> tuple[_Rule, ...]:
    """The rules of the repository above the folder; the folder's own files are not read yet."""
    names = IGNORE_FILES[1:] if os.environ.get(WITHOUT_GITIGNORE) == "1" else IGNORE_FILES
    rules = tuple(_Rule(name) for name in names)
    above = [root, *root.parents]
    top = next((at for at, folder in enumerate(above) if (folder / ".git").exists()), 0)
    outer = above[1 : top + 1]
    for rule in rules:
        for folder in reversed(outer):
            rule.read(folder)
        if any(rule.excludes(folder, is_folder=True) for folder in above[:top]):
            # If the repository ignores this folder, a launch from it still uploads its files.
            for folder in outer:
                rule.forget(folder)
    return rules


def _spec(path: Path, lines: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # 30 ms

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise UsageError(
            f"{path} is not understood.",
            one_line(f"{error}."),
            "Patterns are those of git: see git help gitignore.",
        ) from error


ASK_ABOVE_BYTES = 10_000_000
"""A larger folder is confirmed first: it is more than code."""
NAMED = 3
"""This many names of each kind that is left out are in the plan; --dry-run lists all."""


def summary(chosen: Folder, config_map: str = "") -> list[str]:
    """Describe how many files and bytes are uploaded, where to, and what is left out.

    `config_map` is the object that holds the package; "": it is uploaded to the Ray cluster.
    """
    count = plural(len(chosen.files), "file")
    where = f" into the ConfigMap {config_map}" if config_map else ""
    lines = [
        f"Upload {count} ({bytes_text(chosen.size_bytes)}) of {one_line(str(chosen.directory))}"
        f"{where}; --dry-run lists them."
    ]
    if is_large(chosen):
        lines.append(
            f"That is more than {ASK_ABOVE_BYTES // 10**6} MB: exclude data in .rayignore."
        )
    for why in Why:
        names = [one_line(item.name) for item in chosen.left_out if item.why is why]
        if names:
            more = ", …" if len(names) > NAMED else ""
            named = ", ".join(names[:NAMED])
            lines.append(f"Left out {len(names)} ({why}): {named}{more}")
    return lines


def is_large(chosen: Folder) -> bool:
    """Whether it is confirmed before it is uploaded."""
    return chosen.size_bytes > ASK_ABOVE_BYTES
