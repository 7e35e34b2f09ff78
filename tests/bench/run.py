"""The run that is measured: `training.jobs.checkpointed`, with a note of each step's end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cockpit.backends.local import LocalBackend
from cockpit.launch import submission
from cockpit.session import builder
from cockpit.session.session import Session
from tests.bench import timed_checkpointed
from tests.bench.cluster import WORKERS
from tests.bench.table import say

START_TIMEOUT_S = 180.0
FIRST = timed_checkpointed.FIRST
notes = timed_checkpointed.notes
Note = timed_checkpointed.Note


@contextmanager
def training(
    backend: LocalBackend, directory: Path, *, mute_every_other_epoch: bool = False
) -> Iterator[Session]:
    """A run that has made a checkpoint, and a session on it. `directory` gets the notes."""
    code = directory / "code"
    code.mkdir()
    shutil.copy(Path(timed_checkpointed.__file__), code)
    script = ["python", "timed_checkpointed.py", str(directory), str(WORKERS)]
    script.append(str(int(mute_every_other_epoch)))
    say("starting a run …")
    with builder.session_on(backend) as session:
        job = session.call(submit(backend, tuple(script), code))
        if not session.wait(
            lambda store: any(run.checkpoints for run in store.runs.values()), START_TIMEOUT_S
        ):
            raise TimeoutError(f"{job} made no checkpoint: {session.store.jobs.get(job)}")
        yield session


async def submit(backend: LocalBackend, argv: tuple[str, ...], code: Path) -> str:
    from cockpit.sources.ray.dashboard import Dashboard

    async with Dashboard(backend.dashboard) as dashboard:
        return (await submission.launch(dashboard, submission.script_spec(argv, code))).id
