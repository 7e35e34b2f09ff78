"""A search for good settings, on Ray Tune.

    python -m training.jobs.tune --scheduler asha --samples 8 \
        --space "learning_rate=log(1e-4,1e-1) batch_size=choice(8,16,32) dropout=uniform(0,0.5)"

Each trial trains as the other jobs do, in its own process or as a Ray Train run of `workers` ranks.
With the same name and path, an interrupted search continues.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from training.jobs import ddp, job, missing_resources
from training.jobs.fit import OnRay, storage
from training.jobs.placement import resources as rank_resources
from training.jobs.worker import work
from training.loop.settings import RunSettings, TrainSettings
from training.parallel.replicated import replicated
from training.search.best import TrialResult, chosen, commands, ranked, table
from training.search.folder import BEST, SEARCH, Folder, changed
from training.search.settings import METRICS, SearchSettings
from training.search.space import KEEPS_SHAPE, Draw, SpaceError, domains, parse_space
from training.search.trial_resources import trial_resources
from training.settings import Setting, describe, parse, setting
from training.stop import Stop
from training.telemetry.names import TUNE_CALLBACK


@dataclass(frozen=True)
class Settings(SearchSettings, OnRay):
    workers: int = setting(1, "number of ranks of each trial, one CPU or GPU each", at_least=1)
    epochs: int = setting(20, "passes over the data, for a trial that is not stopped")
    max_failures: int = setting(1, "restarts of a failed trial from its newest checkpoint")


TRAINS = "ddp"
"""The job that trains with the best settings."""


def trial(config: dict[str, Any], settings: Settings, name: str, variables: dict[str, str]) -> None:
    """Train with the sampled settings. Raises Stop if training stops itself: the trial failed."""
    from ray import tune

    from training.search.multi_rank_trial import train_ranks
    from training.search.single_process_trial import train_alone

    run_name = f"{name}-{tune.get_context().get_trial_id()}"
    settings = replace(settings, **config, run_name=run_name)
    if settings.workers == 1:
        result = train_alone(settings, variables)
    else:
        result = train_ranks(train_on_ray, settings, variables)
    if stopped := result.get("stopped"):
        raise Stop(stopped)


def train_on_ray(config: dict[str, Any]) -> dict[str, Any]:
    from training.search.multi_rank_trial import START_FROM

    start_from = config.pop(START_FROM)
    settings = replace(Settings(**config), memory_every_steps=0)  # a trial has no holders
    return work(settings, replicated, start_from=start_from)


def search(settings: Settings, draws: tuple[Draw, ...]) -> None:
    import ray
    from ray import tune
    from ray.tune.search import BasicVariantGenerator

    from training.search.schedulers import EPOCH, scheduler
    from training.search.trials import tried

    if not ray.is_initialized():
        ray.init()
    room = missing_resources.found(
        settings.gpu, settings.workers, settings.when_lacking, wanted=settings
    )
    settings = replace(settings, gpu="true" if room.resource == "GPU" else "false")

    name = settings.run_name or time.strftime("tune-%Y%m%d-%H%M%S")
    path = storage(settings.storage_path or "~/ray_results")
    folder = Folder(f"{path}/{name}")
    trains = tune.with_parameters(trial, settings=settings, name=name, variables=train_variables())
    each = rank_resources(settings, room.resource)
    takes = trial_resources(each, room.most, settings.workers, settings.max_parallel)
    trains = tune.with_resources(trains, takes)
    mode = METRICS[settings.metric]
    callbacks = telemetry(settings.metric, mode)
    names = [*(item.name for item in describe(SearchSettings)), "epochs", "workers"]
    asked = {item: getattr(settings, item) for item in names}

    # A resumed search repeats the trials that it does not know.
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")
    if tune.Tuner.can_restore(folder.place):
        if other := changed(folder.read(SEARCH), asked):
            raise SystemExit(f"the search {name} resumes with its original settings, but {other}")
        print(f"the search {name} resumes: finished trials stay finished", flush=True)
        tuner = tune.Tuner.restore(folder.place, trains, resume_errored=True)
    else:
        folder.write(SEARCH, asked)
        random.seed(settings.seed)  # the schedulers'
        np.random.seed(settings.seed)
        tuner = tune.Tuner(
            trains,
            param_space=domains(draws),
            tune_config=tune.TuneConfig(
                num_samples=settings.samples,
                scheduler=scheduler(settings, settings.epochs, mode, draws),
                search_alg=BasicVariantGenerator(random_state=settings.seed),
                reuse_actors=settings.workers == 1,
                trial_dirname_creator=trial_id,
            ),
            run_config=tune.RunConfig(
                name=name,
                storage_path=path,
                stop={EPOCH: settings.epochs},
                failure_config=tune.FailureConfig(max_failures=settings.max_failures),
                checkpoint_config=tune.CheckpointConfig(num_to_keep=kept(settings)),
                callbacks=callbacks,
                verbose=1,
            ),
        )
    report_best(tried(tuner.fit()), settings, folder)


def report_best(trials: list[TrialResult], settings: Settings, folder: Folder) -> None:
    """Print the table, and write the best settings as a file and as commands. Exits if there are
    none.
    """
    trials = ranked(trials, settings.metric, METRICS[settings.metric])
    print(table(trials, settings.metric, settings.epochs), flush=True)
    best = trials[0]
    if (value := best.value(settings.metric)) is None:
        raise SystemExit(f"no trial came as far as {settings.metric}: {best.error or 'stopped'}")
    others = {item.name for item in describe(ddp.Settings)} - {item.name for item in searchable()}
    train_with = chosen(settings, best.config, ddp.Settings, without=others - OF_TRIALS)
    launch, plain = commands(TRAINS, train_with)
    data = {
        "trial": best.id,
        "metric": settings.metric,
        "mode": METRICS[settings.metric],
        "value": value,
        "epoch": best.metrics["epoch"],
        "config": dict(best.config),
        "job": TRAINS,
        "settings": train_with,
        "checkpoint": best.checkpoint,
        "launch": launch,
        "command": plain,
    }
    path = folder.write(BEST, data)
    print(f"best: {best.id} with {settings.metric} {value:.4f}, in {path}", flush=True)
    if settings.scheduler == "pbt":
        print("pbt changed the settings on the way: these are its last, with the weights in")
        print(best.checkpoint, flush=True)
    print(f"train with it:\n  {launch}\n  {plain}", flush=True)


OF_RUN = frozenset(item.name for item in describe(RunSettings))
"""Settings that are not searched."""
OF_TRIALS = frozenset({"seed", "workers", "epochs", "max_steps"})
"""Those that the best trial used."""


def searchable() -> list[Setting]:
    return [item for item in describe(TrainSettings) if item.name not in OF_RUN - {"seed"}]


def kept(settings: Settings) -> int:
    """The number of checkpoints of a trial that are kept. With pbt also the one of the last
    exploit, until the next: another trial may not have loaded it yet.
    """
    since = settings.exploit_every_epochs + 1 if settings.scheduler == "pbt" else 1
    return max(settings.num_to_keep, since)


def trial_id(trial: Any) -> str:
    """The name of its folder."""
    return str(trial.trial_id)


def train_variables() -> dict[str, str]:
    """The variables of the driver's environment for Ray Train, which a trial drives."""
    return {key: value for key, value in os.environ.items() if key.startswith("RAY_TRAIN_")}


def telemetry(metric: str, mode: str) -> list[Any]:
    """The callback that the environment names, with the optimised metric."""
    named = os.environ.get("RAY_TUNE_CALLBACKS", "").split(",")
    if TUNE_CALLBACK not in named:
        return []
    from training.telemetry.tune import TuneTelemetry

    os.environ["RAY_TUNE_CALLBACKS"] = ",".join(item for item in named if item != TUNE_CALLBACK)
    return [TuneTelemetry(metric, mode)]


def check(settings: Settings, draws: tuple[Draw, ...]) -> None:
    """Exits with a message if the settings are inconsistent."""
    if min(settings.samples, settings.epochs, settings.workers) < 1 or settings.max_parallel < 0:
        raise SystemExit("--samples, --epochs and --workers are at least 1, --max-parallel 0")
    if not 1 <= settings.grace_epochs <= settings.epochs:
        raise SystemExit(f"--grace-epochs is 1 to {settings.epochs}, the epochs of a trial")
    by_step = settings.checkpoint_every_steps or settings.checkpoint_every == "auto"
    if settings.scheduler == "pbt" and by_step:
        raise SystemExit(
            "--checkpoint-every-steps and --checkpoint-every auto are not for pbt: it goes by "
            "whole epochs"
        )
    if settings.reduction < 2 or settings.exploit_every_epochs < 1:
        raise SystemExit("--reduction is at least 2, --exploit-every-epochs at least 1")
    for draw in draws if settings.scheduler == "pbt" else ():
        if draw.name not in KEEPS_SHAPE:
            raise SystemExit(
                f"--space: pbt copies the weights of another trial, so that it cannot change "
                f"{draw.name};\nwhat it can: {', '.join(sorted(KEEPS_SHAPE))}"
            )


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.tune", job("tune").summary)
    try:
        draws = parse_space(settings.space, searchable())
    except SpaceError as error:
        raise SystemExit(f"--space: {error}") from None
    check(settings, draws)
    search(settings, draws)


if __name__ == "__main__":
    main()
