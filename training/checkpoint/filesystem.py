"""The file system of a storage path: a folder, or an object store such as S3.

All of them are pyarrow's, as Ray Train's are. S3 needs no code of its own beyond this module: an
object appears when it was written completely, so a file that is written last completes a checkpoint
there too.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pyarrow.fs import (  # type: ignore[import-untyped]
    AwsStandardS3RetryStrategy,
    FileSelector,
    FileSystem,
    FileType,
    LocalFileSystem,
    S3FileSystem,
    copy_files,
    resolve_s3_region,
)

from training.stop import Stop

ATTEMPTS = 8
"""Of each request. AWS's standard strategy waits up to 2^n s before attempt n + 1, at most 20 s,
with jitter: a request of a storage that stays unavailable fails after 36 s on average.
"""
ATTEMPTS_OF_PROBE = 3
CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S = 5.0, 30.0
"""Without a byte; by default a request that waits for 3 s fails (AWS SDK for C++)."""
TEXT_OPTIONS = ("region", "scheme", "endpoint_override", "tls_ca_file_path")
SWITCHES = ("allow_bucket_creation", "force_virtual_addressing")
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
PROBE = ".storage_probe"
COPY = "cockpit-restored-"
"""The prefix of temporary directories."""
YOUNG_S = 60.0
"""A temporary directory is not locked yet in the moment in which it is made."""


class StorageUnusable(Stop):
    """A storage path that cannot be used: why, and what to do."""


class S3(S3FileSystem):  # type: ignore[misc]
    """S3, with the same number of attempts in each process.

    The client itself retries throttling (503 SlowDown), other 5xx and lost connections: each
    request separately, with exponential backoff and jitter. A copy in another process would have
    the default number of attempts (pyarrow 25, S3FileSystem.__reduce__ omits the strategy).
    """

    def __init__(self, attempts: int, **options: Any) -> None:
        super().__init__(
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=attempts),
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=REQUEST_TIMEOUT_S,
            **options,
        )
        self._made_of = (attempts, options)

    def __reduce__(self) -> Any:
        return _s3, self._made_of


def _s3(attempts: int, options: dict[str, Any]) -> S3:
    return S3(attempts, **options)


def is_address(path: str) -> bool:
    """Whether it is the address of an object store instead of a folder."""
    return "://" in path


def located(path: str) -> tuple[Any, str]:
    """The file system of a storage path, and the path on it.

    An address is `s3://BUCKET/PATH`, with the options of pyarrow:
    `?region=…&scheme=http&endpoint_override=HOST:PORT`. Raises StorageUnusable if it is invalid.
    """
    if not is_address(path):
        return LocalFileSystem(), absolute(path)
    if path.startswith("s3://"):
        return S3(ATTEMPTS, **_s3_options(path)), _s3_path(path)
    try:
        filesystem, found = FileSystem.from_uri(path)
    except (ValueError, OSError) as error:
        raise StorageUnusable(f"{without_options(path)}: {error}") from None
    return filesystem, found


def absolute(path: str) -> str:
    """A folder with this host's home and working directory; an address unchanged."""
    return path if is_address(path) else str(Path(path).expanduser().absolute())


def joined(path: str, name: str) -> str:
    """The storage path of `name` in `path`; the options of an address remain its end."""
    place, mark, options = path.partition("?") if is_address(path) else (path, "", "")
    return f"{place.rstrip('/')}/{name}{mark}{options}"


def shown(filesystem: Any, path: str) -> str:
    """A path on a file system as users write it."""
    return f"s3://{path}" if isinstance(filesystem, S3FileSystem) else path


def probe(path: str) -> None:
    """Write a small object and delete it. Raises StorageUnusable if the object store does not
    accept it: before a run starts, not at its first checkpoint.

    Folders are not probed: they are created when the first checkpoint is written.
    """
    if not path.startswith("s3://"):
        return
    try:
        filesystem, folder = opened_for_probe(path)
        at = f"{folder}/{PROBE}-{os.getpid()}"
        with filesystem.open_output_stream(at) as stream:
            stream.write(b"probe")
        filesystem.delete_file(at)
    except OSError as error:
        raise StorageUnusable(f"{without_options(path)}: {reason(path, error)}") from None


def opened_for_probe(path: str) -> tuple[Any, str]:
    """As `located` for S3, with few attempts. Raises StorageUnusable if the address is invalid."""
    return S3(ATTEMPTS_OF_PROBE, **_s3_options(path)), _s3_path(path)


def write_at_once(filesystem: Any, path: str, content: bytes) -> None:
    """Write a file that is complete as soon as it exists."""
    if not isinstance(filesystem, LocalFileSystem):
        # An object store shows an object when it was written completely, and cannot rename one.
        with filesystem.open_output_stream(path) as stream:
            stream.write(content)
        return
    with filesystem.open_output_stream(f"{path}.part") as stream:
        stream.write(content)
    filesystem.move(f"{path}.part", path)


def exists(filesystem: Any, path: str) -> bool:
    return bool(filesystem.get_file_info(path).type != FileType.NotFound)


def size_bytes(filesystem: Any, directory: str) -> int:
    """Of all files in a directory."""
    found = filesystem.get_file_info(FileSelector(directory, recursive=True))
    return sum(item.size for item in found if item.is_file)


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A directory for a copy of a checkpoint. Copies that killed processes have left are removed.

    A process locks its own: the file system may be shared by containers, which do not see each
    other's processes.
    """
    for old in Path(gettempdir()).glob(f"{COPY}*"):
        with suppress(OSError):  # another user's, locked, or removed by another rank
            if time.time() - old.stat().st_mtime > YOUNG_S:
                with _locked(old):
                    shutil.rmtree(old)
    directory = Path(mkdtemp(prefix=COPY))
    try:
        with _locked(directory):
            yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Raises BlockingIOError if another process has locked it."""
    held = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(held)


@contextmanager
def on_disk(filesystem: Any, directory: str) -> Iterator[str]:
    """A directory on this host with the files of another one, which is itself if it is local.

    Raises FileNotFoundError, and OSError if the storage cannot be read at the moment.
    """
    if isinstance(filesystem, LocalFileSystem):
        yield directory
        return
    with temporary_directory() as copy:
        if not exists(filesystem, directory):
            raise FileNotFoundError(f"{shown(filesystem, directory)} does not exist")
        try:
            copy_files(directory, str(copy), source_filesystem=filesystem)
        except FileNotFoundError:
            raise
        except OSError as error:  # which does not name the object
            place = shown(filesystem, directory)
            raise OSError(f"{place} cannot be read: {reason(place, error)}") from error
        yield str(copy)


def _s3_options(path: str, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    parts = urlsplit(path)
    if "@" in parts.netloc:
        raise StorageUnusable(
            f"{without_options(path)} contains credentials, which logs and records would show: "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the job"
        )
    if not parts.netloc:
        raise StorageUnusable(f"{path} names no bucket: use s3://BUCKET/PATH")
    options: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in SWITCHES:
            options[name] = value.lower() == "true"
        elif name in TEXT_OPTIONS:
            options[name] = value
        else:
            allowed = ", ".join((*TEXT_OPTIONS, *SWITCHES))
            raise StorageUnusable(
                f"{without_options(path)}: {name} is not an option of S3; allowed: {allowed}"
            )
    if "endpoint_override" not in options and (url := _endpoint(environment)):
        scheme, _, server = url.rpartition("://")
        options = {"scheme": scheme or "https", **options, "endpoint_override": server.rstrip("/")}
    if "region" not in options and not any(environment.get(name) for name in REGIONS):
        # Servers other than AWS accept any.
        options["region"] = "us-east-1" if "endpoint_override" in options else _region(parts.netloc)
    return options


def _endpoint(environment: Mapping[str, str]) -> str:
    """pyarrow reads these variables only in FileSystem.from_uri (pyarrow 25)."""
    return next((environment[name] for name in ENDPOINTS if environment.get(name)), "")


def _region(bucket: str) -> str:
    try:
        return str(resolve_s3_region(bucket))
    except OSError as error:
        raise StorageUnusable(
            f"s3://{bucket}: its region is not known ({_first_line(str(error))}); "
            "set AWS_REGION, or AWS_ENDPOINT_URL for a server other than AWS"
        ) from None


def _s3_path(path: str) -> str:
    parts = urlsplit(path)
    return f"{parts.netloc}{parts.path}".rstrip("/")


def without_options(path: str) -> str:
    """A path or address, without credentials and options."""
    return re.sub(r"//[^/?#\s]*@", "//", path.partition("?")[0])


def reason(path: str, raised: OSError) -> str:
    """Why an address cannot be used, and what to do, in one line."""
    bucket, error = urlsplit(path).netloc, str(raised)
    if "NO_SUCH_BUCKET" in error or f"Bucket '{bucket}' not found" in error:
        return f"there is no bucket {bucket}; create it, or correct the name"
    if re.search(r"TIME_TOO_SKEWED|TimeTooSkewed|REQUEST_EXPIRED", error):
        return (
            "the clock of this host differs from that of the server by more than it accepts, 15 "
            "minutes on AWS; synchronize the clocks of the nodes (NTP, chrony)"
        )
    if re.search(r"ACCESS_DENIED|HTTP status 403|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT", error):
        return (
            "access denied; the workers need AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a "
            "role, that may list, read, write and delete in it"
        )
    if "NETWORK_CONNECTION" in error:
        parts = dict(parse_qsl(urlsplit(path).query))
        server = parts.get("endpoint_override") or _endpoint(os.environ) or "AWS"
        return f"{server} does not respond; check AWS_ENDPOINT_URL and the network of the workers"
    if re.search(r"SLOW_DOWN|HTTP status 5\d\d|INTERNAL_FAILURE|SERVICE_UNAVAILABLE", error):
        return f"the server fails ({_first_line(error)}); start the run again later"
    return _first_line(error)


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["unknown error"])[0][:300]
