"""The output of the benchmark: spreads, JSON, plots, report and notebook."""

from __future__ import annotations

import contextlib
import io
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.bench_results import EVERY, environment, scaling, steady
from training.bench.environment import Environment, cpu, interfaces, machine, variables
from training.bench.largest_batch import edge
from training.bench.notebook import notebook
from training.bench.plot import Axis, nice_step, svg
from training.bench.record import Unreadable, decode
from training.bench.repeated import Quartiles, ratios, spread
from training.bench.report import in_short, markdown, table
from training.bench.results import Results, read
from training.bench.run import PARTS, chosen, sections
from training.bench.scaling import sizes
from training.bench.section import Finding, Level, Line, Plot, Table
from training.bench.settings import BenchSettings
from training.bench.units import bandwidth, seconds, size
from training.jobs.benchmark import written
from training.settings import parse

PLOT = Plot("speed", "a < b & c", "ranks", "per second", (Line("fast", ((1, 2), (2, 4), (4, 7))),))


def results(**changed: Any) -> Results:
    parts = json.loads(json.dumps({name: asdict(result) for name, result in EVERY.items()}))
    return replace(
        Results("8 cores", "2026-01-02T03:04:05+00:00", 12.3, "2 ranks", False, {}, parts),
        **changed,
    )


def test_a_spread_is_the_median_and_the_quartiles() -> None:
    assert spread([5, 1, 4, 2, 3]) == Quartiles(3, 2, 4, 5)
    assert spread([7]) == Quartiles(7, 7, 7, 1)
    with pytest.raises(ValueError, match="nothing was measured"):
        spread([])


def test_ratios_are_taken_turn_by_turn_so_that_a_slow_turn_is_in_neither() -> None:
    assert ratios([2, 20, 2], [1, 10, 1]) == Quartiles(2, 2, 2, 3)
    with pytest.raises(ValueError, match="argument"):
        ratios([1, 2], [1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (seconds(0.0000123), "12.3 µs"),
        (seconds(0.00456), "4.56 ms"),
        (seconds(123.4), "123 s"),
        (size(999), "999 B"),
        (size(1_500_000), "1.50 MB"),
        (bandwidth(2.5e10), "25.0 GB/s"),
    ],
)
def test_quantities_have_three_digits_and_their_unit(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(100, [1, 2, 4, 8, 16, 32, 64, 96]), (1, [1]), (0, []), (5, [1, 2, 4, 5])],
)
def test_the_edge_of_memory_is_found_to_a_part_in_eight(limit: int, expected: list[int]) -> None:
    tried = []

    def attempt(batch_size: int) -> int | None:
        tried.append(batch_size)
        return batch_size if batch_size <= limit else None

    found = [batch_size for batch_size, _ in edge(attempt)]
    assert found == expected
    assert len(tried) == len(set(tried))


def test_beyond_the_most_nothing_is_tried() -> None:
    assert [batch_size for batch_size, _ in edge(lambda n: n, most=20)] == [1, 2, 4, 8, 16]


def test_worlds_are_powers_of_two_and_all_ranks() -> None:
    assert sizes(1) == [1]
    assert sizes(2) == [1, 2]
    assert sizes(6) == [1, 2, 4, 6]
    assert sizes(8) == [1, 2, 4, 8]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_each_parts_result_comes_back_from_json_as_it_was(part: Any) -> None:
    result = EVERY[part.name]
    assert decode(part.result, json.loads(json.dumps(asdict(result)))) == result


def without(text: dict[str, Any]) -> None:
    del text["torch"]


def with_a_number(text: dict[str, Any]) -> None:
    text["torch"] = 2


def with_no_hosts(text: dict[str, Any]) -> None:
    text["hosts"] = None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without, "Environment does not have the fields of this version: torch"),
        (with_a_number, "Environment.torch is 2, and should be of type str"),
        (with_no_hosts, "Environment.hosts is None, and should be of type list"),
    ],
)
def test_a_result_of_another_version_is_refused_and_named(
    change: Callable[[dict[str, Any]], None], why: str
) -> None:
    text = json.loads(json.dumps(asdict(environment())))
    change(text)
    with pytest.raises(Unreadable, match=why):
        decode(Environment, text)


def test_a_file_of_results_is_read_as_it_was_written(tmp_path: Path) -> None:
    results().write(tmp_path / "results.json")
    assert read(tmp_path / "results.json") == results()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"schema": 99}', "is of schema 99, and this reads 1"),
        ("[1]", "holds no results"),
        ("{", "holds no results"),
        ('{"schema": 1}', "holds no results"),
    ],
)
def test_a_file_that_holds_no_results_reports_why(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(Unreadable, match=why):
        read(tmp_path / "results.json")


@pytest.mark.parametrize("log", [False, True])
def test_a_plot_is_well_formed_and_stays_within_its_picture(log: bool) -> None:
    root = ElementTree.fromstring(svg(replace(PLOT, log_x=log, log_y=log)))
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 3
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= width
        assert 0 <= float(circle.attrib["cy"]) <= height
    ups = [float(circle.attrib["cy"]) for circle in circles]
    assert ups == sorted(ups, reverse=True)
    assert "a < b & c" in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_non_finite_points_are_omitted_from_a_plot() -> None:
    odd = Line("odd", ((1.0, float("nan")), (2.0, float("inf")), (3.0, 1.0)))
    assert svg(replace(PLOT, lines=(odd,))).count("<circle") == 1
    with pytest.raises(ValueError, match="nothing to plot"):
        svg(replace(PLOT, lines=(Line("none", ()),)))


def test_axes_have_round_ticks_around_all_values() -> None:
    linear = Axis([3.0, 97.0], log=False)
    assert linear.ticks == [0, 20, 40, 60, 80, 100]
    assert (linear.part(0), linear.part(100)) == (0, 1)
    logarithmic = Axis([30.0, 5000.0], log=True)
    assert logarithmic.ticks == pytest.approx([10, 100, 1000, 10_000])
    assert logarithmic.part(100) == pytest.approx(1 / 3)
    assert Axis([0.0, 0.0], log=True).part(0.0) == 0
    assert [nice_step(span) for span in (1, 4, 9, 60)] == [0.2, 1.0, 2.0, 20.0]


def test_a_report_reports_first_what_to_do_and_then_the_numbers() -> None:
    parts = json.loads(json.dumps(asdict(scaling(0.5, 0.9))))
    missed = results(parts={**results().parts, "scaling": parts}, failed={"data": "NoData: gone"})
    report = markdown(missed, sections(missed.parts))
    headings = [line for line in report.splitlines() if line.startswith("#")]
    assert headings[:6] == [
        "# Benchmark of training on 8 cores",
        "## In short",
        "### Problems",
        "### Notes",
        "### As it should be",
        "### Not measured",
    ]
    assert headings[6:] == [f"## {section.title}" for section in sections(missed.parts).values()]
    assert "1. Exchange less often or less" in report
    assert "- data: NoData: gone" in report
    assert "![Speed-up by ranks](scaling.svg)" in report


def test_in_short_counts_thresholds_and_lists_each_advice_once() -> None:
    problem = Finding(Level.PROBLEM, "It is slow.", "Be quick.")
    good, note = Finding(Level.GOOD, "It is fast."), Finding(Level.NOTE, "It is blue.", "Paint it.")
    assert in_short([good, note]) == "Nothing that was measured misses its threshold (1 met)."
    text = in_short([problem, problem, good, note])
    assert text == "2 of 3 thresholds are missed. What to do:\n\n1. Be quick."


def test_a_tables_cells_cannot_break_it() -> None:
    assert table(Table(("a", "b"), (("x|y", "1\n2"),))).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| x\\|y | 1 2 |",
    ]


def test_results_are_written_as_json_report_plots_and_notebook(tmp_path: Path) -> None:
    report = written(results(), tmp_path)
    assert (tmp_path / "report.md").read_text() == report
    assert read(tmp_path / "results.json") == results()
    plots = sorted(tmp_path.glob("*.svg"))
    assert [plot.name for plot in plots] == ["batches.svg", "communication.svg", "scaling.svg"]
    for plot in plots:
        ElementTree.parse(plot)
        assert f"({plot.name})" in report
    text = execute(tmp_path / "notebook.ipynb")
    assert "samples_per_s" in text
    assert "1.5 (1.485–1.515)" in text  # bf16, of `techniques`


def execute(file: Path) -> str:
    """The output of a notebook's code, with the values of its last lines shown as in Jupyter."""
    cells = json.loads(file.read_text())["cells"]
    text, names = io.StringIO(), dict[str, Any]()
    with contextlib.chdir(file.parent), contextlib.redirect_stdout(text):
        for cell in cells:
            if cell["cell_type"] == "code":
                source = "".join(cell["source"])
                exec(compile(source, cell["id"], "exec"), names)
                if source.startswith("Picture"):
                    assert eval(source, names)._repr_svg_().startswith("<svg")
    return text.getvalue()


def test_a_notebook_has_what_its_format_wants() -> None:
    whole = json.loads(notebook(["scaling"], ["scaling.svg"]))
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in whole["cells"]]
    assert len(ids) == len(set(ids))
    for cell in whole["cells"]:
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | code


def test_parts_are_chosen_by_name_with_the_environment_always() -> None:
    assert chosen("all") == [part.name for part in PARTS]
    assert chosen("techniques, scaling") == ["environment", "scaling", "techniques"]
    with pytest.raises(ValueError, match="there is no part speed; there are environment, scaling"):
        chosen("scaling,speed")


def test_quick_needs_no_value() -> None:
    for argv in (["--quick", "--workers", "4"], ["--workers", "4", "--quick", "true"]):
        given = parse(BenchSettings, "benchmark", "", argv)
        assert (given.quick, given.workers) == (True, 4)


def test_a_quick_run_has_few_steps_and_no_run_tracks_its_loops() -> None:
    own = BenchSettings(quick=True, mlflow="http://tracking", memory_mb=512).for_this_run()
    assert (own.rounds, own.turn_steps, own.memory_mb, own.mlflow) == (2, 3, 64, "")
    assert BenchSettings(rounds=5).for_this_run().rounds == 5
    assert own.learning_rate == 0, "all steps are alike"


def test_variables_are_those_of_training_without_secrets() -> None:
    held = {
        "NCCL_DEBUG": "WARN",
        "HOME": "/root",
        "RAY_TRAIN_WANDB_API_KEY": "1234",
        "TORCH_AUTH_TOKEN": "1234",
        "GLOO_PROXY": "http://me:1234@proxy:80",
        "OMP_NUM_THREADS": "1",
    }
    assert {item.name: item.value for item in variables(held)} == {
        "NCCL_DEBUG": "WARN",
        "GLOO_PROXY": "http://proxy:80",
        "OMP_NUM_THREADS": "1",
    }


def test_interfaces_have_a_speed_where_the_system_reports_one(tmp_path: Path) -> None:
    for name, speed in {"eth0": "10000\n", "lo": "", "wlan0": "-1\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text(speed)
    (tmp_path / "tun0").mkdir()
    found = {item.name: item.speed_mbit for item in interfaces(tmp_path)}
    assert found == {"eth0": 10_000, "lo": 0, "tun0": 0, "wlan0": 0}


def test_a_processor_without_a_name_is_its_architecture() -> None:
    assert cpu("processor\t: 0\nmodel name\t: EPYC 9B14\nflags: x\n") == "EPYC 9B14"
    assert cpu("processor : 0\n")


def test_a_machine_is_named_with_its_cards() -> None:
    assert machine(environment()) == "8 cores (EPYC), 64.0 GB of memory, 1 × NVIDIA H100"
    assert machine(environment(cpus=("EPYC", "EPYC"))).startswith("2 hosts of 8 cores (EPYC)")


def test_a_spread_is_reported_with_its_quartiles() -> None:
    assert steady(0.1).text(seconds) == "100 ms (99.0 ms–101 ms)"
