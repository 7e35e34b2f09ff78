"""The head of a report: the run, its verdict and its key numbers."""

from __future__ import annotations

from itertools import pairwise

from cockpit.format import duration, plural
from cockpit.model.alert import Severity
from cockpit.model.run import RunState
from cockpit.plot import points
from cockpit.report import values
from cockpit.report.document import Fact, Facts, Kind, Tone
from cockpit.report.time_range import extent, running_periods
from cockpit.store.run import RunView
from cockpit.store.selectors import step_of
from cockpit.store.series import Series
from cockpit.store.store import Store


def head(store: Store, run: RunView, *, left: bool = False) -> Facts:
    """The run, its cluster and times; `left` as for `verdict`."""
    job = store.jobs.get(run.submission_id)
    when = extent(run)
    ended = run.ended_s if run.state.is_over else None
    facts = [
        Fact("run_id", run.id, title="run"),
        Fact("submission_id", run.submission_id, title="job"),
        Fact("entrypoint", job.entrypoint if job else ""),
        Fact("cluster", str(store.ref) if store.ref else ""),
        Fact("ray_version", store.ray_version, title="Ray"),
        Fact("state", run.state.value, Kind.LABEL),
        Fact("message", run.message, title="message"),
        Fact("world_size", run.world_size, Kind.COUNT, title="ranks"),
        Fact("started", values.date(when.begin_s), Kind.LABEL, title="started"),
        Fact("ended", values.date(ended) if ended else "", Kind.LABEL, title="ended"),
    ]
    if not run.state.is_over:
        title = "recorded until" if left else "known until"
        facts.append(Fact("known_until", values.date(when.end_s), Kind.LABEL, title=title))
    return Facts(tuple(fact for fact in facts if fact.value not in ("", None)))


def verdict(
    store: Store, run: RunView, goodput_percent: float | None, *, left: bool = False
) -> tuple[str, Tone]:
    """Describe the run in one line, with its state.

    `left`: the run is no longer recorded, so that its later states are unknown.
    """
    tone = _tone(store, run)
    took = duration(extent(run).duration_s)
    doing = run.state.value.lower().replace("_", " ")
    how = {
        RunState.FINISHED: f"Finished after {took}",
        RunState.ERRORED: f"Failed after {took}",
        RunState.ABORTED: f"Aborted after {took}",
    }.get(run.state)
    unknown = run.state is RunState.UNKNOWN
    if how is None and left:
        was = "whose state was unknown" if unknown else f"which was {doing}"
        how = f"The recording ends after {took}, before the end of the run, {was}"
    elif how is None:
        how = f"State unknown after {took}" if unknown else f"Still {doing} after {took}"
    if run.state in (RunState.ERRORED, RunState.ABORTED) and run.message:
        how += f": {values.text(run.message, 160).rstrip('.')}"
    parts = []
    if (step := step_of(run)) is not None:
        parts.append(plural(step, "step"))
    losses = _losses(run).values
    if losses:
        first, last = (values.shown(value, Kind.NUMBER) for value in (losses[0], losses[-1]))
        parts.append(f"loss {first} → {last}")
    if len(run.attempts) > 1:
        parts.append(plural(len(run.attempts), "attempt"))
    if (lost := sum(steps_lost(run).values())) > 0:
        parts.append(f"{plural(lost, 'step')} repeated")
    if goodput_percent is not None:
        parts.append(f"goodput {values.shown(goodput_percent, Kind.PERCENT)}")
    return how + ("; " + ", ".join(parts) if parts else "") + ".", tone


def _tone(store: Store, run: RunView) -> Tone:
    if run.state in (RunState.ERRORED, RunState.ABORTED):
        return Tone.BAD
    if not run.state.is_over:
        return Tone.GOING
    findings = (view.alert.finding for view in store.alerts.values())
    warned = any(f.run_id == run.id and f.severity is not Severity.INFO for f in findings)
    return Tone.MIXED if warned or len(run.attempts) > 1 else Tone.GOOD


def key_numbers(run: RunView, goodput_percent: float | None) -> Facts:
    """The key numbers of one run. Rates are over the time that the run was RUNNING."""
    facts = [
        Fact("duration_s", extent(run).duration_s, Kind.SECONDS, "duration"),
        Fact("steps", step_of(run), Kind.COUNT),
        _over_time(run, "samples_per_s", Kind.RATE, "throughput"),
        _over_time(run, "step_time_s", Kind.SECONDS, "step time"),
        Fact("loss", _losses(run).last, Kind.NUMBER, "final loss", _lowest(run)),
        Fact("goodput_percent", goodput_percent, Kind.PERCENT, "goodput"),
        Fact("attempts", len(run.attempts) or None, Kind.COUNT),
        Fact("steps_lost", sum(steps_lost(run).values()), Kind.COUNT, "steps repeated"),
        Fact("checkpoints", run.checkpoint_count, Kind.COUNT),
        _over_time(run, "tokens_per_s", Kind.RATE, "tokens"),
        _over_time(run, "mfu_percent", Kind.PERCENT, "MFU"),
        _over_time(run, "gpu_utilization_percent", Kind.PERCENT, "GPU utilization"),
        Fact("rank_samples", run.samples_seen, Kind.COUNT, "records", "one per rank and tick"),
    ]
    return Facts(tuple(fact for fact in facts if fact.value is not None), large=True)


def steps_lost(run: RunView) -> dict[int, int]:
    """By attempt: its steps that the next one repeated, since no checkpoint contained them."""
    lost = {}
    numbers = sorted(run.attempts)
    for number, following in pairwise(numbers):
        last, first = run.attempts[number].last_step, run.attempts[following].first_step
        if last is not None and first is not None:
            lost[number] = max(0, last - (first - 1))
    return lost


def _over_time(run: RunView, name: str, kind: Kind, title: str) -> Fact:
    """The median over time, and between what it was for four fifths of it."""
    curve = run.curves[name]
    reported = points.weighted(*points.between(curve.times, curve.values, running_periods(run)))
    low, middle, high = (points.quantile(reported, q) for q in (0.1, 0.5, 0.9))
    note = ""
    if low is not None and high is not None:
        note = f"p10 {values.shown(low, kind)}, p90 {values.shown(high, kind)}"
    return Fact(name, middle, kind, title, note)


def _losses(run: RunView) -> Series:
    """Of each step, or of what the job reports when nothing reports its steps."""
    return run.curves["loss"] if "loss" in run.curves else run.reported["loss"]


def _lowest(run: RunView) -> str:
    finite = [value for value in _losses(run).values if value - value == 0]
    return f"lowest {values.number(min(finite))}" if finite else ""
