"""View 7: the trials of Ray Tune, the best first."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content

from cockpit import format
from cockpit.model.run import Trial
from cockpit.model.text import one_line
from cockpit.store.store import Experiment, Store
from cockpit.store.trials import best
from cockpit.tui.dialogs.reading import Reading
from cockpit.tui.keys import shown_key
from cockpit.tui.main.frame import Line
from cockpit.tui.rows.text import facts_text
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.sorted_view import SortedView
from cockpit.tui.views.trials.rows import TrialLine, TrialRows, counts
from cockpit.tui.widgets.table.table import LineTable

MANY = 200


class TrialsView(SortedView):
    NAME = "trials"
    TABLES = ("trials",)
    KIND = "trial"
    DEFAULT_CSS = """
    TrialsView LineTable { height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.trials = TrialRows()
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield Line(id="summary")
        yield LineTable(self.trials.columns, id="trials")

    def redraw(self, state: ViewState) -> None:
        # Of many trials, a second's rows are built once.
        version = 0 if len(self.trials.lines) > MANY else state.store.version
        order = (self.order.by, self.order.down, self.order.text)
        drawn = (int(state.now_s), version, order, self.size)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        table = self.query_one(LineTable)
        rows = self.trials.rows(state.store, state.now_s, self.order)
        if self.trials.columns != table.columns:
            table.set_columns(self.trials.columns)
        table.set_sort(self.order.by, self.order.down)
        table.set_rows(rows)
        if table.display != bool(self.trials.lines):
            table.display = bool(self.trials.lines)
            self.call_after_refresh(self.refocus)
        self.query_one("#summary", Line).show(self._summary(state.store, len(rows)))

    def forget(self) -> None:
        super().forget()
        self._drawn = ()

    def on_line_table_selected(self, message: LineTable.Selected) -> None:
        """A trial has no page that lives: all that is known of it is read at once."""
        message.stop()
        state = self.cockpit
        page = page_of(state.store, message.key, state.now_s)
        if page is not None:
            self.app.push_screen(page)

    def _summary(self, store: Store, shown: int) -> Content:
        if self.trials.problem:
            return Content.styled(f" {self.trials.problem}", "$warning")
        lines = self.trials.lines
        if not lines:
            text = f" No Tune trials yet. Press {shown_key('launch')} to launch a job such as tune."
            return Content.styled(text, "$muted")
        parts = [Content(" ")]
        for experiment in store.experiments.values():
            if not experiment.trials:
                continue
            parts.append(Content.styled(f"{experiment.name}  ", "bold"))
            if (top := best(experiment)) is not None:
                value = format.number(top.metrics[experiment.metric])
                text = f"best {experiment.metric} ({experiment.mode}) {value}: {top.id}  "
                parts.append(Content.styled(text, "$accent"))
            text = ", ".join(
                f"{number:,} {status.value.lower()}"
                for status, number in counts(list(experiment.trials.values()))
            )
            parts.append(Content.styled(f"{text}  ", "$muted"))
        if self.order.text:
            parts.append(
                Content.styled(f"{shown:,} of {len(lines):,} with “{self.order.text}”", "$muted")
            )
        return Content.assemble(*parts)


def page_of(store: Store, key: str, now_s: float) -> Reading | None:
    """All that is known of a trial, by the key of its row; None when it is not there any more."""
    name, _, trial_id = key.rpartition("/")
    experiment = store.experiments.get(name)
    trial = experiment.trials.get(trial_id) if experiment else None
    if experiment is None or trial is None:
        return None
    facts = details(experiment, trial, now_s)
    return Reading(f"Trial {trial.id}", facts_text(facts, bad="error"))


def details(experiment: Experiment, trial: Trial, now_s: float) -> list[tuple[str, str]]:
    """All that is known of a trial, as (name, text); an empty text makes a heading."""
    line = TrialLine(trial, experiment.metric, False, now_s)
    top = best(experiment)
    found = [
        ("experiment", trial.experiment),
        ("status", trial.status.value + (" · the best" if top and top.id == trial.id else "")),
        ("iteration", format.count(trial.iteration)),
        ("time", format.duration(line.took_s)),
        ("node", f"{trial.node_ip or format.DASH}  pid {trial.pid or format.DASH}"),
    ]
    found += [("run", trial.run_id)] if trial.run_id else []
    found += [("error", one_line(trial.error, 2000))] if trial.error else []
    found += [("Configuration", "")] if trial.config else []
    found += [(one_line(name), one_line(text, 400)) for name, text in sorted(trial.config.items())]
    found += [("Newest result", "")] if trial.metrics else []
    for name, value in sorted(trial.metrics.items()):
        goal = f"  ({experiment.mode})" if name == experiment.metric else ""
        found.append((one_line(name), format.number(value, 6) + goal))
    return found
