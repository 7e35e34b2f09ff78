"""A run with a fault as events, second by second, as each source would report them.

Seconds count from the injection at `T`; training runs for some time before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from msgspec.structs import replace

from cockpit.model.cluster import Node, NodeType, Pod, PodPhase
from cockpit.model.drill import Drill, Stage
from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    DrillInjected,
    DrillStaged,
    Event,
    NodesListed,
    PhaseEntered,
    PodsListed,
    RankSampled,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import Phase, Placement, RankSample, RunState
from cockpit.store.store import Store

T = 10_000.0
RUN = "run-1"
STEPS_PER_S = 10


def pod(number: int, *, phase: PodPhase = PodPhase.RUNNING, ready: bool = True) -> Pod:
    return Pod(f"w-{number}", "gpu", NodeType.WORKER, phase, ready, f"10.0.0.{number}", T - 500.0)


def falling(attempt: int, step: int) -> float:
    return 1.0 + 100.0 / (100 + step)


@dataclass
class Incident:
    """`skew_s`: how far the clocks of the run's nodes are ahead of cockpit's."""

    ranks: int = 2
    gpus: bool = False
    skew_s: float = 0.0
    loss: Callable[[int, int], float] = falling
    store: Store = field(default_factory=Store)
    now_s: float = -60.0
    step: int = 0
    attempt: int = 0
    saved: int = 0
    pods: dict[int, Pod] = field(default_factory=dict)
    _done: dict[int, int] = field(default_factory=dict)

    def tell(self, *events: Event) -> None:
        for event in events:
            self.store.apply(event)

    @property
    def clock(self) -> float:
        """Cockpit's."""
        return T + self.now_s

    @property
    def there(self) -> float:
        """The cluster's nodes'."""
        return T + self.now_s + self.skew_s

    def begin(self) -> Incident:
        """Pods, a run, an attempt, and a minute of training."""
        self.pods = {number: pod(number) for number in range(self.ranks)}
        self.list_pods()
        self.list_nodes(*self.pods)
        self.state(RunState.INITIALIZING)
        self.up(*range(self.ranks))
        self.train(60.0)
        assert self.now_s == 0.0
        return self

    def state(self, state: RunState) -> None:
        self.tell(RunSeen(at_s=self.there, source="telemetry", run_id=RUN, name="r", state=state))

    def phase(self, phase: Phase) -> None:
        self.tell(
            PhaseEntered(
                at_s=self.there,
                source="telemetry",
                run_id=RUN,
                attempt=self.attempt,
                phase=phase,
            )
        )

    def list_pods(self) -> None:
        listed = tuple(self.pods.values())
        self.tell(PodsListed(at_s=self.clock, source="backend", pods=listed))

    def list_nodes(self, *alive: int, dead: Collection[int] = ()) -> None:
        nodes = [Node(f"n{n}", f"10.0.0.{n}", "h", False, n not in dead) for n in (*alive, *dead)]
        self.tell(NodesListed(at_s=self.clock, source="ray", nodes=tuple(nodes)))

    def health(self, source: str = "telemetry", *, ok: bool = True, error: str = "") -> None:
        self.tell(SourceHealth(at_s=self.clock, source=source, ok=ok, error=error))

    def up(self, *on: int) -> None:
        """A worker group is up on these pods; nothing is done yet."""
        self.attempt += 1
        self._done = {}
        gpus = (0,) if self.gpus else ()
        placed = tuple(
            Placement(rank, f"n{number}", f"10.0.0.{number}", 100 + rank, gpus)
            for rank, number in enumerate(on)
        )
        self.tell(
            AttemptStarted(
                at_s=self.there,
                source="telemetry",
                run_id=RUN,
                attempt=self.attempt,
                placements=placed,
            )
        )
        self.state(RunState.RUNNING)
        self.ranks = len(on)

    def down(self, reason: str, budget: str = "max_failures") -> None:
        self.tell(
            AttemptEnded(
                at_s=self.there,
                source="telemetry",
                run_id=RUN,
                attempt=self.attempt,
                reason=reason,
                budget=budget,
            )
        )
        self.state(RunState.RESTARTING)
        self.step = self.saved

    def wait(self, seconds: float, *, telemetry: bool = True) -> None:
        """Nothing but that the sources are well."""
        until = self.now_s + seconds
        while self.now_s < until:
            self.now_s = min(until, self.now_s + 1.0)
            for source in ("backend", "ray", *(("telemetry",) if telemetry else ())):
                self.health(source)

    def train(self, seconds: float, speed: float = 1.0, *, stale: Collection[int] = ()) -> None:
        """Records of a second each."""
        until = self.now_s + seconds
        while self.now_s < until:
            self.now_s = min(until, self.now_s + 1.0)
            done = max(1, round(STEPS_PER_S * speed))
            first, self.step = self.step + 1, self.step + done
            samples = [
                self._sample(rank, first, done, speed)
                for rank in range(self.ranks)
                if rank not in stale
            ]
            self.tell(
                RankSampled(at_s=self.there, source="telemetry", run_id=RUN, samples=tuple(samples))
            )
            for source in ("backend", "ray", "telemetry"):
                self.health(source)

    def save(self) -> None:
        """The next attempt continues from here."""
        self.saved = self.step

    def _sample(self, rank: int, first: int, done: int, speed: float) -> RankSample:
        self._done[rank] = self._done.get(rank, 0) + done
        return RankSample(
            rank=rank,
            attempt=self.attempt,
            at_s=self.there,
            step=self.step,
            first_step=first,
            steps_total=self._done[rank],
            loss=self.loss(self.attempt, self.step),
            samples_per_s=100.0 * speed,
            step_time_s=1.0 / (STEPS_PER_S * speed),
        )

    def inject(
        self, fault: str, *pods: int, ranks: tuple[int, ...] = (), id: str = "drill-1"
    ) -> Drill:
        """The fault is reported as injected now."""
        drill = Drill(
            id=id,
            fault=fault,
            target=", ".join(f"w-{number}" for number in pods),
            ranks=ranks,
            injected_s=self.clock,
            grace_s=0.0,
            run_id=RUN,
            attempt=self.attempt,
            step=self.step,
            pods=tuple(f"w-{number}" for number in pods),
        )
        self.tell(DrillInjected(at_s=self.clock, source="user", drill=drill))
        return drill

    def stage(self, drill: Drill, stage: Stage) -> None:
        record = drill.id.partition(".")[0]
        self.tell(
            DrillStaged(at_s=self.clock, source="user", drill_id=record, name="d", stage=stage)
        )

    def lose(self, number: int) -> None:
        """A pod is removed from the list."""
        del self.pods[number]
        self.list_pods()

    def add(self, number: int, *, ready: bool) -> None:
        phase = PodPhase.RUNNING if ready else PodPhase.PENDING
        self.pods[number] = replace(pod(number), phase=phase, ready=ready, created_s=self.clock)
        self.list_pods()

    def restart(self, *on: int) -> None:
        """From the worker group to the first new step, 4 s."""
        self.up(*on)
        self.phase(Phase.PROCESS_GROUP)
        self.wait(2.0)
        self.phase(Phase.FIRST_STEP)
        self.phase(Phase.RESTORE)
        self.wait(1.0)
        self.phase(Phase.FIRST_STEP)
        self.wait(1.0)
        self.phase(Phase.RUNNING)
