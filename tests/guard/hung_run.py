"""A real run that is made to hang, and a guard that restarts it, on a local cluster."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cockpit.actions.guard import Guard
from cockpit.actions.guard_acts import GuardActions
from cockpit.backends.local import GroupSpec
from cockpit.guard.policy import Action, Decision, Policy
from cockpit.launch import submission
from cockpit.launch.environment import JobEnvironment
from cockpit.model.cluster import Resources
from cockpit.model.recovery import FAST, RecoveryProfile
from cockpit.session.session import Session
from cockpit.store.run import AttemptView, RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from tests.bench.process import cpu_of
from tests.bench.recovery import wait_for_spares
from tests.local_cluster import running_job

SCRIPT = Path(__file__).parents[1] / "training" / "scripts" / "stuck_torch.py"
RANKS = 2
POLICY = Policy(hang=Action.RESTART, budget=100)
START_TIMEOUT_S = 240.0
HANG_TIMEOUT_S = 600.0
FROZEN_S = 600.0
"""Ray's default. The `fast` profile has 12 s: Ray would restart the run before the guard does."""
SETTLE_S = 8.0
"""Steps before a hang: its pace is known."""


@dataclass(frozen=True, slots=True)
class Hang:
    """One hang, in seconds after it began."""

    kind: str
    profile: str
    verdict: str
    decided_s: float
    killed_s: float
    first_step_s: float | None
    attempts: int
    """That the guard needed."""
    started_s: float | None
    """When the processes of the new ranks had started and imported their libraries."""
    cpu_s: float
    """The processor time of the process of one new rank until its first steps."""

    @property
    def recovered_s(self) -> float | None:
        """From the detection to the first new step."""
        return None if self.first_step_s is None else self.first_step_s - self.decided_s


class Noting(GuardActions):
    """With the time of each decision."""

    decided: list[tuple[float, Decision]]

    async def act(self, decision: Decision) -> str:
        self.decided.append((self._clock(), decision))
        return await super().act(decision)


@dataclass(slots=True)
class HungRun:
    session: Session
    directory: Path
    profile: str
    lines: list[str] = field(default_factory=list)

    @property
    def run(self) -> RunView:
        run = current_run(self.session.store)
        assert run is not None
        return run

    @property
    def attempt(self) -> AttemptView:
        attempt = self.run.attempt
        assert attempt is not None
        return attempt

    def settle(self) -> None:
        def settled(store: Store) -> bool:
            run = current_run(store)
            attempt = run.attempt if run else None
            return (
                run is not None
                and attempt is not None
                and attempt.ended_s is None
                and len(attempt.placements) == RANKS
                and attempt.reported_s is not None
                and self.session.clock() - attempt.reported_s > SETTLE_S
            )

        assert self.session.wait(settled, START_TIMEOUT_S), self.session.store.jobs
        if self.profile == FAST.name:
            wait_for_spares(self.session)

    def hang(self, kind: str) -> Hang:
        """Rank 1 is stopped (`frozen`), or sleeps (`user code`); a guard restarts the run."""
        self.settle()
        actions = Noting(self.session)
        actions.decided = []
        guard = Guard(self.session, actions, POLICY, self.lines.append)
        watching = self.session.submit(guard.watch())
        before = self.attempt
        began_s = self.session.clock()
        if kind == "frozen":
            os.kill(next(p.pid for p in before.placements if p.rank == 1), signal.SIGSTOP)
        else:
            (self.directory / "stick").touch()

        def resumed(store: Store) -> bool:
            new = self.run.attempt
            return new is not None and new.number > before.number and new.reported_s is not None

        is_back = self.session.wait(resumed, HANG_TIMEOUT_S)
        guard.end()
        self.session.wait(lambda store: watching.done(), 60.0)
        watching.result()
        assert is_back, self.lines
        assert actions.decided, self.lines
        decided_s, decision = actions.decided[0]
        drill = self.session.store.drills[-1]
        new = self.attempt
        first_s = new.first_step_s if new.first_step_s is not None else new.reported_s
        return Hang(
            kind,
            self.profile,
            decision.trouble.sentence,
            decided_s - began_s,
            drill.injected_s - began_s,
            None if first_s is None else first_s - began_s,
            len(actions.decided),
            None if new.started_s is None else new.started_s - began_s,
            sum(cpu_of(placed.pid) for placed in new.placements) / len(new.placements),
        )


@contextmanager
def hung_run(directory: Path, profile: RecoveryProfile, name: str = "guarded") -> Iterator[HungRun]:
    """A cluster with a pod more than ranks, and a run on it that makes checkpoints."""
    code, storage = directory / "code", directory / "storage"
    code.mkdir()
    storage.mkdir()
    shutil.copy(SCRIPT, code)
    pods = RANKS + 1
    group = GroupSpec("workers", pods, min=0, max=pods, resources=Resources(cpus=1.0))
    spec = submission.script_spec(
        ("python", SCRIPT.name, str(storage)),
        code,
        environment=JobEnvironment({"RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": f"{FROZEN_S:g}"}),
    )
    with running_job(spec, name, [group], profile) as (session, _):
        yield HungRun(session, storage, profile.name)
