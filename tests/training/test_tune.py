"""Reports of trials: on changes, of bounded size, without secrets."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from training.telemetry.ray_train.trials import TrialRuns
from training.telemetry.wire import Body, Run, Trial, Trials

pytest.importorskip("ray.tune")

from training.telemetry.tune import TuneTelemetry, trial_of


@dataclass
class ListOutbox:
    said: list[Body] = field(default_factory=list)
    drained: int = 0

    def send(self, t: float, body: Body) -> None:
        self.said.append(body)

    def drain(self, timeout_s: float) -> None:
        self.drained += 1


class Clock:
    s = 100.0

    def __call__(self) -> float:
        return self.s


def trial(number: int = 0, status: str = "RUNNING", **result: Any) -> Any:
    return SimpleNamespace(
        trial_id=f"t{number}",
        status=status,
        experiment_dir_name="search",
        config={"lr": 0.1, "model": {"width": 8}},
        last_result=result,
        run_metadata=SimpleNamespace(start_time=5.0),
        get_error=lambda: "Traceback:\n  File x\nValueError: it diverged\n",
    )


def told(outbox: ListOutbox) -> list[tuple[str, str]]:
    bodies = [body for body in outbox.said if isinstance(body, Trials)]
    return [(item.id, item.status) for body in bodies for item in body.trials]


def test_a_trial_is_reported_when_it_is_new_or_changed_and_at_most_once_a_second() -> None:
    outbox, clock = ListOutbox(), Clock()
    telemetry = TuneTelemetry("loss", "min", lambda: outbox, clock)
    telemetry.setup()
    trials = [trial(0), trial(1, "PENDING")]
    telemetry.on_step_end(1, trials)
    trials[1].status = "RUNNING"
    telemetry.on_step_end(2, trials)
    clock.s += 1
    telemetry.on_step_end(3, trials)
    clock.s += 1
    telemetry.on_step_end(4, trials)
    trials[0].status = "TERMINATED"
    telemetry.on_experiment_end(trials)
    assert told(outbox) == [
        ("t0", "RUNNING"),
        ("t1", "PENDING"),
        ("t1", "RUNNING"),
        ("t0", "TERMINATED"),
    ]
    first = outbox.said[0]
    assert isinstance(first, Trials)
    assert (first.experiment, first.metric, first.mode) == ("search", "loss", "min")
    assert outbox.drained == 1


def test_callback_error_does_not_affect_the_experiment(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = TuneTelemetry(outbox=ListOutbox, clock=Clock())
    telemetry.on_step_end(1, [object()])
    telemetry.on_experiment_end([object()])
    assert caplog.records


def test_tune_callback_can_be_pickled() -> None:
    telemetry = TuneTelemetry("loss", "min")
    telemetry._outbox = ListOutbox()
    again = pickle.loads(pickle.dumps(telemetry))
    assert again._outbox is None


def test_a_trials_numbers_are_flat_and_its_secrets_are_left_out() -> None:
    made = trial(
        0,
        "ERROR",
        training_iteration=3,
        timestamp=7,
        pid=9,
        node_ip="10.0.0.1",
        loss=0.5,
        done=True,
        eval={"loss": 0.75},
        config={"lr": 0.1},
    )
    made.config["wandb_api_key"] = "hush"
    assert trial_of(made) == Trial(
        id="t0",
        status="ERROR",
        config={"lr": "0.1", "model/width": "8", "wandb_api_key": "***"},
        metrics={"loss": 0.5, "eval/loss": 0.75},
        iteration=3,
        started_s=5.0,
        updated_s=7.0,
        node_ip="10.0.0.1",
        pid=9,
        error="ValueError: it diverged",
    )


def test_a_huge_configuration_is_cut() -> None:
    made = trial()
    made.last_result = {f"m{number}": 1.0 for number in range(1000)}
    made.config = {f"c{number}": "x" * 10_000 for number in range(1000)}
    of = trial_of(made)
    assert len(of.config) == len(of.metrics) == 64
    assert max(map(len, of.config.values())) == 200


def test_a_trial_is_reported_again_when_its_run_is_known() -> None:
    runs = TrialRuns()
    pending = Trials(experiment="e", trials=(Trial(id="t1"), Trial(id="t2")))
    assert runs.wrote(pending) == (pending,)
    began = Run(run="ab", trial="t1")
    linked = Trials(experiment="e", trials=(Trial(id="t1", run="ab"),))
    assert runs.wrote(began) == (began, linked)
    assert runs.wrote(began) == (began,)
    assert runs.wrote(Trials(experiment="e", trials=(Trial(id="t1"),))) == (linked,)
    plain = Run(run="cd")
    assert runs.wrote(plain) == (plain,)


def test_a_run_that_was_killed_with_its_trial_ends_with_it() -> None:
    runs = TrialRuns()
    runs.wrote(Run(run="ab", trial="t1", state="RUNNING"))
    runs.wrote(Run(run="cd", trial="t2", state="FINISHED"))
    stopped = tuple(Trial(id=item, status="TERMINATED") for item in ("t1", "t2"))
    reported, ended = runs.wrote(Trials(experiment="e", trials=stopped))
    assert isinstance(reported, Trials)
    assert ended == Run(run="ab", trial="t1", state="FINISHED", message="its trial ended")
    assert len(runs.wrote(Trials(experiment="e", trials=stopped))) == 1, "it is told once"


def test_the_error_of_a_trial_is_read_from_the_storage_once() -> None:
    outbox, clock, reads = ListOutbox(), Clock(), list[int]()

    def read() -> str:
        reads.append(1)
        return "ValueError: it diverged"

    failed = trial(0, "ERROR")
    failed.get_error = read
    telemetry = TuneTelemetry(outbox=lambda: outbox, clock=clock)
    for _ in range(5):
        telemetry.on_step_end(1, [failed])
        clock.s += 1
    assert len(reads) == 1
    (body,) = outbox.said
    assert isinstance(body, Trials)
    assert body.trials[0].error == "ValueError: it diverged"


def test_a_trial_that_cannot_be_reported_leaves_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outbox, clock = ListOutbox(), Clock()
    telemetry = TuneTelemetry(outbox=lambda: outbox, clock=clock)

    def unreadable() -> str:
        raise OSError("the bucket does not answer")

    failed = trial(1, "ERROR")
    failed.get_error = unreadable
    for _ in range(3):
        telemetry.on_step_end(1, [trial(0), object(), failed, trial(2, "TERMINATED")])
        clock.s += 1
    assert told(outbox) == [("t0", "RUNNING"), ("t1", "ERROR"), ("t2", "TERMINATED")]
    assert len(caplog.records) == 1


def test_what_could_not_be_sent_is_reported_again() -> None:
    clock, is_down = Clock(), [True]

    class Down(ListOutbox):
        def send(self, t: float, body: Body) -> None:
            if is_down[0]:
                raise ConnectionError
            super().send(t, body)

    outbox = Down()
    telemetry = TuneTelemetry(outbox=lambda: outbox, clock=clock)
    telemetry.on_step_end(1, [trial(0, "TERMINATED")])
    clock.s += 1
    is_down[0] = False
    telemetry.on_step_end(2, [trial(0, "TERMINATED")])
    assert told(outbox) == [("t0", "TERMINATED")]


def test_secrets_within_a_value_are_left_out() -> None:
    made = trial()
    made.config = {
        "env": [{"db_password": "hush"}],
        "args": "--lr=1 api_key=hush",
        "tracking": "https://me:hush@mlflow:5000",
        "model": "org/tokenizer",
        "layers": [64, 64],
        "data": "s3://bucket/x:y@2",
    }
    config = trial_of(made).config
    assert "hush" not in str(config)
    shown = {name: text for name, text in config.items() if text != "***"}
    assert shown == {"model": "org/tokenizer", "layers": "[64, 64]", "data": "s3://bucket/x:y@2"}
