"""The benchmark's recommendations, threshold by threshold."""

from __future__ import annotations

import pytest

from tests.training import bench_results as made
from tests.training.bench_results import EVERY, steady
from training.bench import (
    batches,
    communication,
    environment,
    launchers,
    loading,
    saving,
    scaling,
    targets,
    techniques,
    tracing,
)
from training.bench.repeated import Quartiles
from training.bench.run import PARTS
from training.bench.section import Finding, Level
from training.bench.settings import BenchSettings


def one(findings: tuple[Finding, ...]) -> Finding:
    assert len(findings) == 1
    return findings[0]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_each_part_is_reported_with_a_table_and_without_a_problem_where_there_is_none(
    part: object,
) -> None:
    section = part.section(EVERY[part.name])  # type: ignore[attr-defined]
    assert section.tables
    for table in section.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
    assert all(finding.level is not Level.PROBLEM for finding in section.findings)


def test_efficient_scaling_is_good() -> None:
    found = one(scaling.findings(made.scaling(0.92)))
    assert found == Finding(Level.GOOD, "Weak scaling to 2 ranks has an efficiency of 92.0%.")


def test_scaling_that_loses_to_the_exchange_reports_to_exchange_less() -> None:
    found = one(scaling.findings(made.scaling(0.60, apart=0.95)))
    assert found.level is Level.PROBLEM
    assert "36.8% is the exchange of gradients, 5.0% the sharing of the machine" in found.sentence
    assert "accumulate" in found.advice


def test_scaling_that_loses_without_an_exchange_reports_to_share_less() -> None:
    found = one(scaling.findings(made.scaling(0.75, apart=0.80)))
    assert found.level is Level.NOTE
    assert "20.0% is lost though nothing is exchanged" in found.sentence
    assert "spread them over hosts" in found.advice


def test_ranks_without_cores_of_their_own_are_not_judged() -> None:
    found = one(scaling.findings(made.scaling(0.5, own_cores=False)))
    assert found.level is Level.NOTE
    assert "fewer cores each" in found.sentence


def test_one_rank_alone_does_not_scale() -> None:
    assert "one rank alone" in one(scaling.findings(made.scaling(1.0, ranks=1))).sentence


def test_scaling_in_uneven_turns_is_not_judged() -> None:
    rates = {
        (scaling.STRONG, 1): [100.0] * 3,
        (scaling.WEAK, 1): [100.0] * 3,
        (scaling.STRONG, 2): [160.0] * 3,
        (scaling.WEAK, 2): [100.0, 160.0, 250.0],
        (scaling.APART, 2): [190.0] * 3,
    }
    points = scaling.points(rates, dict.fromkeys(rates, 16), own_cores=True)
    found = one(scaling.findings(scaling.Scaling("convnet", "cpu", 1, points)))
    assert found.level is Level.NOTE
    assert "too uneven for a result" in found.sentence


def test_speedup_is_over_one_rank_in_the_same_turn() -> None:
    rates = {(scaling.STRONG, 1): [100.0, 10.0], (scaling.STRONG, 2): [180.0, 18.0]}
    points = scaling.points(rates, dict.fromkeys(rates, 8), own_cores=True)
    assert points[1].speedup == Quartiles(1.8, 1.8, 1.8, 2)
    assert points[1].efficiency == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 4, 0.75),
        ("broadcast", 8, 1.0),
    ],
)
def test_bus_bandwidth_is_the_slowest_links(operation: str, ranks: int, factor: float) -> None:
    found = communication.collective(operation, 1_000_000, [0.001], ranks)
    assert found.algorithm_bytes_per_s == pytest.approx(1e9)
    assert found.bus_bytes_per_s == pytest.approx(factor * 1e9)


def test_communication_hidden_by_backward_is_not_counted() -> None:
    exchange = communication.Exchange(100, steady(0.12), steady(0.10), steady(0.05))
    assert exchange.exposed_s == pytest.approx(0.02)
    assert exchange.exposed_share == pytest.approx(1 / 6)
    assert exchange.hidden_share == pytest.approx(0.6)


def test_an_exchange_longer_than_the_computing_reports_to_send_less() -> None:
    found, bandwidth = communication.findings(made.communication(0.30, 0.10, 0.20))
    assert found.level is Level.PROBLEM
    assert "66.7% of a step waits for gradients" in found.sentence
    assert "comm_hook" in found.advice
    assert "half of that from 1.05 MB" in bandwidth.sentence


def test_an_exchange_that_could_be_hidden_reports_to_begin_earlier() -> None:
    found, _ = communication.findings(made.communication(0.20, 0.15, 0.05))
    assert found.level is Level.PROBLEM
    assert "bucket_mb" in found.advice


def test_waiting_longer_than_an_exchange_takes_is_waiting_for_a_rank() -> None:
    found, _ = communication.findings(made.communication(0.20, 0.15, 0.02))
    assert found.level is Level.PROBLEM
    assert "ranks wait for one another" in found.sentence


def test_a_hidden_exchange_is_good() -> None:
    found, _ = communication.findings(made.communication(0.11, 0.10, 0.05))
    assert found.level is Level.GOOD


def test_one_rank_exchanges_nothing() -> None:
    assert one(communication.findings(made.communication(1, 1, 1, ranks=1))).level is Level.NOTE


def test_loading_slower_than_computing_wants_more_workers() -> None:
    found = one(loading.findings(made.loading(load_s=0.2, both_s=0.2)))
    assert found.level is Level.PROBLEM
    assert "50.0% of a step" in found.sentence
    assert "more loader_workers" in found.advice


def test_loading_that_is_not_hidden_wants_to_be() -> None:
    found = one(loading.findings(made.loading(load_s=0.05, both_s=0.15, workers=0)))
    assert found.level is Level.PROBLEM
    assert "could be hidden" in found.advice


def test_hidden_loading_is_good() -> None:
    assert one(loading.findings(made.loading(load_s=0.05, both_s=0.104))).level is Level.GOOD


@pytest.mark.parametrize(("stall_s", "level"), [(0.02, Level.GOOD), (0.03, Level.PROBLEM)])
def test_a_checkpoint_in_the_background_stalls_two_percent_at_most(
    stall_s: float, level: Level
) -> None:
    found, best = saving.findings(made.saving(stall_s))
    assert found.level is level
    assert f"torch.save, {saving.BACKGROUND} stalls least" in best.sentence
    assert "torch.save, waited for restores fastest" in best.sentence


def test_the_smallest_batch_that_is_as_fast_is_named() -> None:
    fp32 = {8: 50.0, 16: 90.0, 32: 100.0, 64: 101.0}
    found, lower, faster = batches.findings(made.batches(fp32, {8: 100.0, 16: 180.0, 32: 200.0}))
    assert "fp32: 64 examples are the most that fit; from 32 on" in found.sentence
    assert "bf16: 32 examples are the most that fit; larger ones are faster" in lower.sentence
    assert faster.sentence == "bf16 is 1.98 times as fast as fp32."
    assert "precision=bf16" in faster.advice


def test_where_the_search_ended_before_memory_did_it_reports_it() -> None:
    found, *_ = batches.findings(made.batches({32: 10.0, 64: 20.0}, {}, most=64))
    assert found.sentence == (
        "fp32: 64 examples fit, and no more were tried; larger ones are faster up to there."
    )


def test_a_model_that_does_not_fit_at_all_is_a_problem() -> None:
    found = one(batches.findings(made.batches({}, {})))
    assert found.level is Level.PROBLEM
    assert "activation_checkpointing" in found.advice
    assert not batches.section(made.batches({}, {})).plots


def test_techniques_are_switched_on_or_left_off_when_the_quartiles_agree() -> None:
    found = techniques.findings(
        made.techniques(
            bf16=Quartiles(1.5, 1.4, 1.6, 9),
            fused=Quartiles(1.1, 0.9, 1.3, 9),
            channels_last=Quartiles(0.8, 0.7, 0.9, 9),
            **{"activation checkpointing": Quartiles(0.7, 0.6, 0.8, 9)},
        )
    )
    assert [(item.sentence, item.advice) for item in found] == [
        ("bf16 is 1.50 times as fast as plain fp32.", "Switch bf16 on."),
        (
            "channels_last is 0.80 times as fast as plain fp32.",
            "Leave channels_last off on this cpu with batches of 16.",
        ),
        ("activation checkpointing is 0.70 times as fast as plain fp32: the price of its memory.",
         ""),
        ("compile is not available here.", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ratio", "level"),
    [
        (Quartiles(0.99, 0.97, 1.01, 9), Level.GOOD),
        (Quartiles(0.97, 0.95, 0.99, 9), Level.NOTE),
        (Quartiles(0.90, 0.89, 0.91, 9), Level.PROBLEM),
    ],
)
def test_ray_train_is_held_to_torchruns_throughput(ratio: Quartiles, level: Level) -> None:
    assert one(launchers.findings(made.launchers(ratio))).level is level


def test_the_ratio_of_launchers_is_of_throughput() -> None:
    found = launchers.result(BenchSettings(), [0.2, 0.2], [0.1, 0.1])
    assert found.ratio.median == 0.5


def test_a_gpu_that_waits_for_the_host_is_a_problem() -> None:
    _, idle = tracing.findings(made.traced(total_s=0.3))
    assert idle.level is Level.PROBLEM
    assert "nothing to do in 70.0%" in idle.sentence
    assert one(tracing.findings(made.traced(total_s=0.3, device="cpu"))).level is Level.NOTE
    assert one(tracing.findings(made.traced(named=False))).level is Level.PROBLEM


def test_targets_that_are_missed_are_problems_with_the_cards_name() -> None:
    found = targets.findings(made.targets(ratio=0.95, input_share=0.10, mfu=30.0, busy=60.0))
    assert [item.level for item in found] == [Level.PROBLEM] * 4
    assert all("NVIDIA H100" in item.sentence for item in found)


def test_a_target_that_cannot_be_known_is_not_judged() -> None:
    found = targets.findings(made.targets(mfu=None, busy=None))
    assert [item.level for item in found] == [Level.GOOD, Level.GOOD]


def test_nothing_is_promised_of_a_cpu() -> None:
    assert one(targets.findings(made.targets(promised=False, ratio=0.5))).level is Level.NOTE


def test_a_busy_or_uneven_machine_is_reported_before_its_numbers() -> None:
    assert environment.findings(made.environment()) == ()
    busy = one(environment.findings(made.environment(load=6.0)))
    assert "load 6.0 on 8 cores" in busy.sentence
    uneven = one(environment.findings(made.environment(cpus=("EPYC", "Xeon"))))
    assert uneven.level is Level.PROBLEM
    assert "NCCL_DEBUG=INFO" in one(environment.findings(made.environment(debug="INFO"))).sentence
