"""How a run does, in the numbers of every diagnosis: for a screen, a verb, a report."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cockpit.insight.causes.rules import REPEATED
from cockpit.insight.causes.types import Cause
from cockpit.insight.causes.verdict import causes_of_run
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.bottleneck import Shares, shares
from cockpit.insight.metrics.checkpoint import UnsavedWork, at_risk
from cockpit.insight.metrics.cost import Cost, cost
from cockpit.insight.metrics.eta import Eta, eta
from cockpit.insight.metrics.goodput import Goodput, goodput
from cockpit.insight.metrics.gpu_use import GpuUse, gpu_use
from cockpit.insight.metrics.prices import Prices, money_per_hour
from cockpit.insight.metrics.progress import as_it_ran, gpus_of
from cockpit.insight.metrics.save_interval import SaveInterval, save_interval
from cockpit.insight.metrics.scaling import Scale, scaling
from cockpit.insight.metrics.summary import others_of_job
from cockpit.model.run import RunSummary
from cockpit.store.run import RunView
from cockpit.store.store import Store


class Diagnosis(Struct, frozen=True):
    """None where nothing is known of it. `shares` and `gpus` of a run that has ended are those
    before its end.
    """

    shares: Shares | None
    goodput: Goodput | None
    eta: Eta | None
    at_risk: UnsavedWork | None
    cost: Cost | None
    scaling: tuple[Scale, ...] = ()
    cause: Cause | None = None
    """Why the newest attempt that ended badly did."""
    gpus: GpuUse | None = None
    save_interval: SaveInterval | None = None

    @property
    def knows_lost_time(self) -> bool:
        return self.goodput is not None and self.goodput.useful_s is not None


def diagnosis(
    store: Store,
    run: RunView,
    now_s: float,
    past: Sequence[RunSummary] = (),
    limits: Thresholds = Thresholds(),  # noqa: B008  it is frozen
    prices: Prices = Prices(),  # noqa: B008  it is frozen
) -> Diagnosis:
    """Pure: `now_s` in Unix seconds; `past` may hold runs of other jobs, and this one."""
    good = goodput(run, now_s)
    stepping = as_it_ran(run) if run.state.is_over else run
    per_hour = money_per_hour(store, run, prices)
    others = others_of_job(store, run, past)
    spent, interval = None, None
    if good is not None:
        interval = save_interval(run, good, others)
        spent = cost(good, gpus_of(run), limits.price_per_gpu_hour, per_hour, prices)
    return Diagnosis(
        shares(stepping, limits.window_s),
        good,
        eta(store, run, now_s),
        at_risk(run),
        spent,
        tuple(scaling(run, others, limits.warmup_s)),
        next(reversed(causes_of_run(store, run, REPEATED)), None),
        gpu_use(stepping, limits.window_s),
        interval,
    )
