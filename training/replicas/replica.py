"""The training loop of one replica."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training import telemetry
from training.data import load
from training.data.example_random import Draws
from training.data.loader import Step
from training.loop import evaluate, recipe
from training.loop.checkpoints import Checkpoints
from training.loop.generators import seed_all
from training.loop.progress import Progress
from training.loop.settings import TrainSettings
from training.loop.step import Due, Pace, after_step, update
from training.loop.train import build_model, sampler
from training.loop.world import World
from training.parallel.single_device import Whole
from training.replicas.client import QuorumClient
from training.replicas.gradient_sum import GradientSum, SumFailed
from training.replicas.membership import Decision, Quorum
from training.replicas.messages import QuorumAddress
from training.replicas.shares import Numbers, parts
from training.replicas.snapshots import HealError, Snapshots, fetch
from training.stop import Stop
from training.techniques.average import Average
from training.techniques.precision import Precision
from training.techniques.schedule import schedule

JOINS = 3
"""How often a replica that joins asks for the state, if replicas that have it are lost."""
TRIES = 20
"""How often a step is tried before the replica ends: the network between replicas is broken."""

OpenCheckpoints = Callable[[], AbstractContextManager[Checkpoints]]
"""The checkpoints of the run, for the replica that writes them."""


@dataclass(frozen=True)
class Place:
    """Of one replica."""

    replica: int
    host: str
    """An address of its host that the other replicas reach."""
    quorum: QuorumAddress
    """Of the run's QuorumServer."""

    @property
    def token(self) -> bytes:
        """The secret of the run's replicas."""
        return self.quorum.server.token


def train(settings: TrainSettings, place: Place, checkpoints: OpenCheckpoints) -> dict[str, Any]:
    """Returns the last step and the model's evaluation after it, or why training stopped, on every
    replica that is in the quorum then.

    A step has the same examples with any number of replicas, and its gradient is the mean over
    them, so neither the size of a batch nor the learning rate depends on how many there are.
    """
    with Snapshots(place.host, place.token) as snapshots:
        try:
            training = _Training(settings, place, snapshots)
        except Stop as why:
            result = {"stopped": f"rank {place.replica}: {why}"}
            with QuorumClient(place.quorum, place.replica) as client:
                if not client.refuse(result):
                    raise  # the others train: Ray Train starts another process
            return result
        for left in reversed(range(JOINS)):
            try:
                with QuorumClient(place.quorum, place.replica) as client:
                    return training.run(client, checkpoints)
            except HealError as why:
                print(f"replica {place.replica} has no state: {why}", flush=True)
                if not left:
                    raise
    raise AssertionError("unreachable")


class _Training:
    def __init__(self, settings: TrainSettings, place: Place, snapshots: Snapshots) -> None:
        self._settings, self._snapshots = settings, snapshots
        self._replica, self._token = place.replica, place.token
        self._data = load(settings)
        # A world of this replica alone. What all replicas do together is `GradientSum`.
        self._world = World(0, 1, 0, torch.device("cpu"))
        self._parallel = Whole(build_model(settings, self._data), self._world)
        self._optimizer = self._parallel.optimizer(settings)
        self._precision = Precision(settings.precision, self._world.device)
        self._average = Average(self._parallel.model, settings.ema_decay)
        self._sampler = sampler(
            settings, self._world, len(self._data.train), chunks=self._data.chunks
        )
        self._rates = schedule(
            settings,
            self._sampler.steps,
            settings.epochs,
            settings.batch_size * settings.accumulate * settings.workers,
        )
        self._progress = Progress(
            self._parallel,
            self._optimizer,
            self._precision,
            self._average,
            model=settings.model,
            steps=self._sampler.steps,
            made=recipe.saved(settings, self._data),
        )
        self._learnt = [item for item in self._parallel.model.parameters() if item.requires_grad]
        self._buffers = [
            item for item in self._parallel.model.buffers() if item.is_floating_point()
        ]
        self._epoch_steps: tuple[int, list[Numbers]] = (-1, [])
        self._committed_s = time.monotonic()
        seed_all(settings.seed, self._replica)  # other noise in every replica

    def run(self, client: QuorumClient, open_checkpoints: OpenCheckpoints) -> dict[str, Any]:
        """Raises HealError if the replica that has the state is lost before it is received."""
        settings, progress = self._settings, self._progress
        decision = client.join(self._snapshots.address)
        if decision.result is not None:
            return dict(decision.result)
        quorum = decision.quorum
        self._sum = GradientSum(client, settings.timeout_s)
        checkpoint_s = 0.0
        with open_checkpoints() as checkpoints:
            if all(heal.replica != self._replica for heal in quorum.heals):
                try:
                    self._resume(checkpoints)
                except Stop as why:
                    return self._end(client, quorum, {"stopped": str(why)})
            self._begin(quorum)
            pace = Pace(settings.min_step_s)
            while not self._is_over():
                decision, loss, samples = self._step(client, quorum)
                with telemetry.section("optimizer"):
                    grad_norm = self._parallel.clip(settings.clip_norm)
                    if settings.stop_on_nan and not torch.isfinite(loss + grad_norm):
                        telemetry.step(loss=loss, grad_norm=grad_norm)
                        text = f"the loss became {float(loss)} at step {progress.step + 1}"
                        return self._end(client, decision.quorum, {"stopped": text})
                    learning_rate = update(progress, self._rates)
                pace.wait()
                due = after_step(settings, progress)
                progress.end_step(loss)
                telemetry.step(
                    loss=loss,
                    samples=samples,
                    epoch=progress.epochs,
                    learning_rate=learning_rate,
                    grad_norm=grad_norm,
                    step=progress.step,
                    checkpoint_s=checkpoint_s,
                )
                is_first = decision.quorum.first == self._replica
                checkpoint_s = self._end_step(due, checkpoints if is_first else None)
                # After the epoch is counted: a replica that joins starts where this one is.
                if decision.quorum.number != quorum.number:
                    self._begin(decision.quorum)
                quorum = decision.quorum
        return self._conclude(client, quorum, open_checkpoints)

    def _is_over(self) -> bool:
        settings, progress = self._settings, self._progress
        return progress.epochs >= settings.epochs or 0 < settings.max_steps <= progress.step

    def _resume(self, checkpoints: Checkpoints) -> None:
        with checkpoints.newest() as directory:
            if directory is not None:
                self._progress.load(directory, 0, 1)
                print(f"resumed at step {self._progress.step}", flush=True)

    def _begin(self, quorum: Quorum) -> None:
        """Send or receive the state that the quorum needs. Raises HealError."""
        began_s = time.monotonic()
        if any(heal.source == self._replica for heal in quorum.heals):
            self._snapshots.publish(quorum.number, self._state())
        for heal in quorum.heals:
            if heal.replica == self._replica:
                state = fetch(heal.address, self._token, quorum.number)
                self._load(state)
                took_s = time.monotonic() - began_s
                print(
                    f"replica {heal.replica} received the state of replica {heal.source} after "
                    f"step {self._progress.step}: {len(state) / 1e6:.1f} MB in {took_s:.3f} s",
                    flush=True,
                )
                # Other noise than this replica had in the steps before.
                seed_all(self._settings.seed, (1 + self._progress.step) * 4096 + self._replica)
                telemetry.resume(step=self._progress.step)

    def _state(self) -> bytes:
        progress = self._progress
        state = {
            "model": self._parallel.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "average": self._average.state(),
            "counts": {
                name: getattr(progress, name)
                for name in ("epoch", "batch", "step", "trained_s", "interruptions", "tracked")
            },
            "epoch_loss": progress.epoch_loss,
        }
        file = io.BytesIO()
        torch.save(state, file)
        return file.getvalue()

    def _load(self, content: bytes) -> None:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        self._parallel.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._average.load(state["average"])
        for name, value in state["counts"].items():
            setattr(self._progress, name, value)
        self._progress.epoch_loss = state["epoch_loss"]

    def _step(self, client: QuorumClient, quorum: Quorum) -> tuple[Decision, Tensor, int]:
        """Try the next step until it is committed. The gradients are then those of all its
        examples.

        A part of the examples is computed once: when the sum fails, the gradients stay, and only
        what lost members leave is added. Returns the mean loss over the step's examples, and how
        many of them this replica computed.
        """
        number = self._progress.step + 1
        examples = self._examples()
        done, samples, loss = 0, 0, torch.zeros(())
        while True:
            own = parts(examples, quorum.rounds, self._replica)
            for part in own[done:]:
                loss = loss + self._compute(part, len(examples))
                samples += len(part)
            done = len(own)
            summed = None
            with telemetry.section("communication"):
                try:
                    self._sum.form(quorum)
                    summed = self._flat(loss, sends_buffers=quorum.first == self._replica)
                    self._sum.add(summed)
                except SumFailed as why:
                    self._sum.abort()
                    print(f"step {number} is tried again: {why}", flush=True)
                    summed = None
                decision = client.vote(quorum.number, number, ok=summed is not None)
            if decision.committed and summed is not None:
                self._note_change(number, quorum)
                return decision, self._unflatten(summed), samples
            if len(decision.quorum.rounds) > TRIES:
                raise SumFailed(f"step {number} failed {TRIES} times")
            quorum = decision.quorum

    def _note_change(self, step: int, quorum: Quorum) -> None:
        """Log how long a change of the quorum stopped this replica."""
        now_s = time.monotonic()
        took_s, self._committed_s = now_s - self._committed_s, now_s
        lost = sorted(set(quorum.rounds[0]) - set(quorum.members))
        healed = [heal.replica for heal in quorum.heals if heal.replica in quorum.members]
        if len(quorum.rounds) > 1:
            change = f"committed without {_named(lost)}" if lost else "committed after another try"
        elif healed and step > 1 and self._replica not in healed:
            change = f"committed with {_named(healed)} again"
        else:
            return
        print(f"step {step} is {change}, {took_s:.3f} s after the step before", flush=True)

    def _examples(self) -> Numbers:
        """Of the next step, of all replicas."""
        progress = self._progress
        if self._epoch_steps[0] != progress.epoch:
            steps = [
                np.concatenate(share.micro_batches) for share in self._sampler.epoch(progress.epoch)
            ]
            self._epoch_steps = progress.epoch, steps
        return self._epoch_steps[1][progress.batch]

    def _compute(self, examples: Numbers, of: int) -> Tensor:
        """Add the gradient of these examples, of a step with `of` examples."""
        settings = self._settings
        # With fewer replicas, a share has more micro-batches, not larger ones.
        count = -(-len(examples) // settings.batch_size)
        draws = Draws(settings.seed, self._progress.epoch)
        micro_batches = (
            self._data.train.batch(part, draws) for part in np.array_split(examples, count)
        )
        loss, _ = self._parallel.passes(
            Step(of, micro_batches), self._precision, replace(settings, accumulate=count)
        )
        return loss

    def _flat(self, loss: Tensor, *, sends_buffers: bool) -> Tensor:
        """What is summed: the gradients, the loss, and the buffers of one of the replicas, which
        all take over, as DDP does it.
        """
        gradients = [
            (item.grad if item.grad is not None else torch.zeros_like(item)).flatten()
            for item in self._learnt
        ]
        buffers = [
            (item if sends_buffers else torch.zeros_like(item)).flatten() for item in self._buffers
        ]
        return torch.cat([*gradients, *buffers, loss.reshape(1)]).detach()

    @torch.no_grad()
    def _unflatten(self, summed: Tensor) -> Tensor:
        at = 0
        for item in self._learnt:
            item.grad = summed[at : at + item.numel()].view_as(item).clone()
            at += item.numel()
        for buffer in self._buffers:
            buffer.copy_(summed[at : at + buffer.numel()].view_as(buffer))
            at += buffer.numel()
        return summed[-1]

    def _end_step(self, due: Due, checkpoints: Checkpoints | None) -> float:
        """At the end of an epoch, and before a checkpoint, evaluate and report; `checkpoints`: of
        the replica that does it. Returns how long a checkpoint blocked training.
        """
        progress = self._progress
        if due.training_ends:
            return 0.0  # `_conclude` does it
        reports = checkpoints is not None and due.evaluates
        metrics = self._metrics() if reports else {}
        if due.epoch_ends:
            progress.end_epoch()
        if checkpoints is None or not reports:
            return 0.0
        if not due.saves:
            checkpoints.evaluated(metrics)
            return 0.0
        began = time.perf_counter()
        checkpoints.report(metrics, progress.step, progress.states(0, 1))
        return time.perf_counter() - began

    def _metrics(self, *, ends: bool = False) -> dict[str, float]:
        return evaluate.metrics(
            self._settings, self._data, self._world, self._progress, with_test=ends
        )

    def _conclude(
        self, client: QuorumClient, quorum: Quorum, open_checkpoints: OpenCheckpoints
    ) -> dict[str, Any]:
        """The first member evaluates and saves the model; the others wait for its result. If it is
        lost before, the next one does it.
        """
        progress = self._progress
        result: dict[str, Any] | None = None
        while True:
            if quorum.first == self._replica and result is None:
                metrics = self._metrics(ends=True)
                if progress.batch == progress.steps:
                    progress.end_epoch()
                with open_checkpoints() as checkpoints:
                    checkpoints.report(metrics, progress.step, progress.states(0, 1))
                result = {"step": progress.step, **metrics}
            decision = client.vote(quorum.number, progress.step, ok=True, final=True, result=result)
            if decision.result is not None:
                return dict(decision.result)
            if decision.quorum.number != quorum.number:
                self._begin(decision.quorum)
            quorum = decision.quorum

    def _end(
        self, client: QuorumClient, quorum: Quorum, result: Mapping[str, Any]
    ) -> dict[str, Any]:
        """All members have the same result; a replica that joins later receives it."""
        # Those that wait for the state ask again, and receive the result.
        self._snapshots.publish(quorum.number + 1, b"")
        while True:
            decision = client.vote(
                quorum.number, self._progress.step, ok=True, final=True, result=result
            )
            if decision.result is not None:
                return dict(decision.result)
            quorum = decision.quorum


def _named(replicas: Sequence[int]) -> str:
    return f"replica{'' if len(replicas) == 1 else 's'} {', '.join(map(str, replicas))}"
