"""Write an object to a bucket, read and delete that of another pod, and print what failed.

    bucket.py REQUEST

REQUEST is a JSON object: `path` is the address of the storage, `own` the name of the object that
this pod writes there, `other` the one that another pod writes, `within_s` how long it waits for
that one, `environment` variables of the job, and `library` the text of the modules of `training`
by name, in the order in which they are needed: the job accesses its storage with them.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from importlib import import_module
from pathlib import Path
from typing import Any

from cockpit.drills.pod_scripts.linux.process import ended

LOOK_S = 0.1
KEYS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables that name credentials (AWS SDK, default provider chain)."""


def has_keys() -> bool:
    """Whether credentials are configured. The role of a node has no trace in its pods."""
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return any(os.environ.get(name) for name in KEYS) or Path(file).expanduser().is_file()


def filesystem(library: dict[str, str]) -> Any:
    for name, text in library.items():
        module = sys.modules[name] = types.ModuleType(name)
        exec(compile(text, name, "exec"), module.__dict__)
    return module


def exchange(storage: Any, request: dict[str, Any]) -> bool:
    """Whether the object of the other pod was read. Both are deleted at the end."""
    path = request["path"]
    bucket, folder = storage.opened_for_probe(path)
    own, other = f"{folder}/{request['own']}", f"{folder}/{request['other']}"
    until = time.monotonic() + request["within_s"]
    with bucket.open_output_stream(own) as stream:
        stream.write(request["own"].encode())
    was_read = False
    try:
        while not was_read and time.monotonic() < until:
            if storage.exists(bucket, other):
                with bucket.open_input_stream(other) as stream:
                    was_read = stream.read() == request["other"].encode()
                bucket.delete_file(other)
            else:
                time.sleep(LOOK_S)
        while storage.exists(bucket, own) and time.monotonic() < until:
            time.sleep(LOOK_S)  # until its reader has deleted it
    finally:
        if storage.exists(bucket, own):
            bucket.delete_file(own)
    return was_read


def main() -> None:
    request = json.loads(sys.argv[1])
    os.environ.update(request["environment"])
    found = {"error": "", "has_keys": has_keys(), "was_read": False}
    try:
        import_module("pyarrow.fs")
    except ImportError as error:
        found["error"] = f"{error}; the job accesses S3 with pyarrow"
    else:
        storage = filesystem(request["library"])
        try:
            found["was_read"] = exchange(storage, request)
        except storage.StorageUnusable as error:
            found["error"] = str(error).partition(": ")[2] or str(error)
        except OSError as error:
            found["error"] = storage.reason(request["path"], error)
    print(json.dumps(found))


sys.exit(ended(main))
