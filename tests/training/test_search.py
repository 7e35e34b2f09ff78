"""The settings of a search and its final output, without Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.optim import Optimizer

from training.jobs.tune import Settings, check, kept, report_best, searchable
from training.loop.world import alone
from training.parallel.single_device import Whole
from training.search.best import TrialResult, chosen, commands, ranked, table
from training.search.folder import BEST, SEARCH, Folder, changed
from training.search.space import Draw, SpaceError, parse_space, within
from training.search.trial_resources import HEAD, parallel, trial_resources
from training.techniques.average import Average
from training.techniques.optimizer import optimizer

pytest.importorskip("ray.tune")


def draws(text: str) -> tuple[Draw, ...]:
    return parse_space(text, searchable())


def test_a_space_is_read_with_the_types_of_its_settings() -> None:
    assert draws("learning_rate=log(1e-4, 1) batch_size=choice(8,16)\n seed=uniform(0,9)") == (
        Draw("learning_rate", "log", (1e-4, 1.0)),
        Draw("batch_size", "choice", (8, 16)),
        Draw("seed", "uniform", (0, 9)),
    )
    assert draws("model=choice(mlp,convnet) fused=choice(true,false)") == (
        Draw("model", "choice", ("mlp", "convnet")),
        Draw("fused", "choice", (True, False)),
    )


@pytest.mark.parametrize(
    ("text", "why", "word"),
    [
        ("dropout=uniform(0,1) batch=choice(8)", "batch is no setting that can be", "batch"),
        ("epochs=choice(8)", "epochs is no setting that can be searched", "epochs"),
        ("dropout=normal(0,1)", "normal is none of choice, uniform, log", "normal"),
        ("batch_size=choice(8,x,9)", "x is no int, as batch_size is", "x"),
        ("batch_size=choice(8,0.5)", "0.5 is no int, as batch_size is", "0.5"),
        ("model=choice(mlp,mpl)", "model is one of convnet", "mpl"),
        ("model=uniform(mlp,vit-tiny)", "model is no number", "mlp,vit-tiny"),
        ("batch_size=log(16,8)", "log takes the least and the most", "16,8"),
        ("batch_size=uniform(16)", "uniform takes the least and the most", "16"),
        ("learning_rate=log(0,1)", "log begins above 0", "0"),
        ("label_smoothing=uniform(0,2)", "label_smoothing is at most 1, not 2", "2"),
        ("accumulate=choice(1,0)", "accumulate is at least 1, not 0", "0"),
        ("dropout=choice(0) dropout=choice(1)", "dropout is there twice", "dropout=choice(1)"),
        ("dropout=choice(0", "is not NAME=KIND(VALUES)", "dropout=choice(0"),
        ("dropout", "is not NAME=KIND(VALUES)", "dropout"),
    ],
)
def test_error_in_a_space_is_marked_below_its_term(text: str, why: str, word: str) -> None:
    with pytest.raises(SpaceError, match=why.replace("(", r"\(").replace(")", r"\)")) as raised:
        draws(text)
    _, shown, mark = str(raised.value).splitlines()
    assert shown == f"  {text}"
    at = mark.index("^")
    assert text[at - 2 :].startswith(word.partition("=choice(1)")[0])
    assert at - 2 == text.rindex(word), "of two it is the second"


def test_a_drawn_number_stays_within_its_bounds_and_a_whole_one_whole() -> None:
    from training.search.space import domains, mutations

    space = draws("batch_size=uniform(8,9) seed=log(1,3) learning_rate=log(1e-3,1e-2)")
    drawn = {name: {domain.sample() for _ in range(60)} for name, domain in domains(space).items()}
    assert drawn["batch_size"] == {8, 9}
    assert drawn["seed"] == {1, 2, 3}
    assert all(1e-3 <= value <= 1e-2 for value in drawn["learning_rate"])
    beyond = {"batch_size": 11, "seed": 1, "learning_rate": 1e-4}
    assert within(beyond, space) == {"batch_size": 9, "seed": 1, "learning_rate": 1e-3}
    assert mutations(draws("batch_size=choice(8,16)")) == {"batch_size": [8, 16]}


def test_a_population_may_change_only_what_goes_with_the_weights_of_another() -> None:
    with pytest.raises(SystemExit, match="cannot change width"):
        check(Settings(scheduler="pbt"), draws("learning_rate=log(1e-4,1) width=choice(8,16)"))
    check(Settings(scheduler="asha"), draws("width=choice(8,16)"))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (Settings(samples=0), "--samples"),
        (Settings(epochs=2, grace_epochs=3), "--grace-epochs is 1 to 2"),
        (Settings(reduction=1), "--reduction is at least 2"),
        (Settings(scheduler="pbt", checkpoint_every_steps=5), "not for pbt"),
    ],
)
def test_settings_that_do_not_go_together_are_reported(settings: Settings, why: str) -> None:
    with pytest.raises(SystemExit, match=why):
        check(settings, ())


def test_parallel_trials_are_limited_by_resources_and_by_the_setting() -> None:
    assert parallel(workers=1, max_parallel=0, most=8) == 0, "Tune counts their CPUs itself"
    assert parallel(workers=1, max_parallel=3, most=8) == 3
    assert parallel(workers=3, max_parallel=0, most=8) == 2
    assert parallel(workers=3, max_parallel=1, most=8) == 1
    assert parallel(workers=9, max_parallel=4, most=8) == 1, "it waits for a larger cluster"


def test_a_trial_holds_a_ticket_of_those_that_run_at_a_time() -> None:
    plain = trial_resources({"CPU": 1.0}, 8, workers=1, max_parallel=0)
    assert plain.bundles == [{"CPU": 1.0}]
    held = trial_resources({"GPU": 1.0}, 8, workers=1, max_parallel=7).bundles
    assert held[0] == {"GPU": 1.0}
    ticket = held[1][HEAD]
    assert 7 * ticket <= 0.9 < 8 * ticket
    ranks = trial_resources({"CPU": 1.0}, 8, workers=4, max_parallel=0)
    assert ranks.bundles == [{HEAD: 0.45}], "its ranks have their own"


def test_a_population_keeps_what_another_trial_may_be_about_to_begin_with() -> None:
    assert kept(Settings(num_to_keep=3)) == 3
    assert kept(Settings(scheduler="pbt", num_to_keep=3, exploit_every_epochs=5)) == 6
    assert kept(Settings(scheduler="pbt", num_to_keep=9, exploit_every_epochs=5)) == 9


TRIALS = [
    TrialResult("a", {"learning_rate": 0.5}, {"accuracy": 0.4, "loss": 0.1, "epoch": 1.0}),
    TrialResult(
        "b", {"learning_rate": 0.001}, {"accuracy": 0.8, "loss": 0.3, "epoch": 2.0}, "s/b/c1"
    ),
    TrialResult("c", {"learning_rate": 9.0}, {}, error="Stop: the loss became nan"),
    TrialResult("d", {"learning_rate": 0.2}, {"accuracy": float("nan"), "loss": 0.2, "epoch": 2.0}),
]


def test_the_best_is_the_one_with_the_best_number() -> None:
    assert [trial.id for trial in ranked(TRIALS, "accuracy", "max")] == ["b", "a", "c", "d"]
    assert [trial.id for trial in ranked(TRIALS, "loss", "min")] == ["a", "d", "b", "c"]


def test_the_table_reports_of_each_trial_how_it_ended() -> None:
    text = table(ranked(TRIALS, "accuracy", "max"), "accuracy", epochs=2)
    assert [line.split() for line in text.splitlines()[:-1]] == [
        ["trial", "ended", "epoch", "accuracy", "learning_rate"],
        ["b", "finished", "2", "0.8000", "0.001"],
        ["a", "stopped", "1", "0.4000", "0.5"],
        ["c", "failed", "0", "–", "9"],
        ["d", "finished", "2", "–", "0.2"],
    ]
    assert text.splitlines()[-1] == "c: Stop: the loss became nan"


def test_the_best_is_written_as_a_file_and_as_commands_that_a_job_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.jobs import ddp
    from training.settings import parse

    settings = Settings(epochs=2, width=8, gpu="false", run_name="x", storage_path="/s")
    report_best(TRIALS, settings, Folder(str(tmp_path)))
    data = json.loads((tmp_path / BEST).read_text())
    assert (data["trial"], data["value"], data["checkpoint"]) == ("b", 0.8, "s/b/c1")
    assert data["config"] == {"learning_rate": 0.001}
    wanted = {"workers": 1, "epochs": 2, "width": 8, "learning_rate": 0.001}
    assert (data["job"], data["settings"]) == ("ddp", wanted)
    assert data["launch"] == (
        "cockpit launch ddp --set workers=1 --set epochs=2 --set width=8 --set learning_rate=0.001"
    )
    terms = data["command"].split()
    assert terms[:3] == ["python", "-m", "training.jobs.ddp"]
    taken = parse(ddp.Settings, "", "", terms[3:])
    assert {name: getattr(taken, name) for name in wanted} == wanted
    printed = capsys.readouterr().out
    assert data["launch"] in printed
    assert data["command"] in printed


def test_the_best_is_trained_as_long_as_it_was_though_another_job_trains_so_long_by_default(
    tmp_path: Path,
) -> None:
    from training.jobs import ddp
    from training.settings import parse

    report_best(TRIALS, Settings(epochs=100), Folder(str(tmp_path)))
    text = json.loads((tmp_path / BEST).read_text())["command"].split()[3:]
    assert parse(ddp.Settings, "", "", text).epochs == 100


def test_a_search_without_a_single_result_reports_why(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no trial came as far as accuracy: Stop: the loss"):
        report_best(TRIALS[2:3], Settings(), Folder(str(tmp_path)))
    assert not (tmp_path / BEST).exists()


def test_arguments_with_spaces_are_quoted() -> None:
    launch, plain = commands("ddp", {"data_path": "/a b", "fused": True})
    assert launch == "cockpit launch ddp --set 'data_path=/a b' --set fused=true"
    assert plain == "python -m training.jobs.ddp --data-path '/a b' --fused true"


def test_changed_search_settings_are_reported_on_resume(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "new"))
    assert folder.read(SEARCH) == {}
    folder.write(SEARCH, {"samples": 4, "space": "a"})
    assert changed(folder.read(SEARCH), {"samples": 4, "space": "a"}) == ""
    assert changed(folder.read(SEARCH), {"samples": 8, "space": "a"}) == "samples was 4 and is 8"


def test_configuration_overrides_the_settings_of_the_search() -> None:
    settings = Settings(learning_rate=0.5, batch_size=64)
    reported = chosen(settings, {"learning_rate": 0.1}, Settings, without={"gpu"})
    assert reported == {"learning_rate": 0.1, "batch_size": 64}


def test_weights_that_are_taken_over_continue_with_the_new_weight_decay(tmp_path: Path) -> None:
    """The optimiser's own state would bring back that of the trial that they are from."""

    def learner(weight_decay: float) -> tuple[Whole, Optimizer]:
        model = Whole(torch.nn.Linear(4, 2), alone("false"))
        return model, optimizer(model.model.parameters(), Settings(weight_decay=weight_decay))

    (model, optimize), (other, goes_on) = learner(0.1), learner(0.5)
    model.model(torch.ones(1, 4)).sum().backward()
    optimize.step()
    for name, state in model.states(optimize, Average(model.model, 0)).items():
        torch.save(state, tmp_path / name)
    other.load(tmp_path, goes_on, Average(other.model, 0))
    assert [group["weight_decay"] for group in goes_on.param_groups] == [0.5, 0.0]
    for state, taken in zip(optimize.state.values(), goes_on.state.values(), strict=True):
        assert torch.equal(state["exp_avg"], taken["exp_avg"])
    weights = [item.model.state_dict()["weight"] for item in (model, other)]
    assert torch.equal(*weights)
