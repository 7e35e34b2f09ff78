"""View 5: jobs, and below them the log of one of them, or of a pod.

All logs of a run take the whole view.
"""

from __future__ import annotations

from textual.app import ComposeResult

from cockpit.model.text import one_line
from cockpit.session.session import Source
from cockpit.store.store import LogBuffer, Store
from cockpit.tui.keys import Key, shown_key
from cockpit.tui.main.titles import entitle
from cockpit.tui.rows.sort import HEAD_LINES
from cockpit.tui.view_state import Target, ViewState
from cockpit.tui.views.jobs.rows import job_columns, job_rows
from cockpit.tui.views.sorted_view import SortedView
from cockpit.tui.widgets.log.view import LogView
from cockpit.tui.widgets.table.table import LineTable

RUN = "run:"
"""The prefix of the streams of all logs of a run; with nothing after it, of the newest."""
NO_LINES = "No lines yet. Press enter on a job to show its log."
NO_LINES_OF_ALL = "No lines yet. Press esc to list the jobs."


class JobsView(SortedView):
    NAME = "jobs"
    TABLES = ("jobs",)
    KIND = "job"
    SCOPED_CSS = False  # it uses the screen's size classes
    DEFAULT_CSS = """
    JobsView LineTable, JobsView LogView { border-top: solid $border-blurred;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface; }
    JobsView LineTable:focus, JobsView LogView:focus { border-top: solid $border; }
    JobsView #jobs { max-height: 40%; }
    JobsView #log { height: 1fr; }
    .-tiny JobsView #jobs, JobsView.-all #jobs { display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.stream = ""
        self._sources: dict[str, Source] = {}
        self._empty = LogBuffer()

    def compose(self) -> ComposeResult:
        empty = f"No jobs yet. Press {shown_key('launch')} to launch one."
        yield LineTable((), id="jobs", empty=empty)
        yield LogView(id="log")

    def redraw(self, state: ViewState) -> None:
        table = self.query_one(LineTable)
        if (columns := job_columns(state.store)) != table.columns:
            table.set_columns(columns)
        shown = self.show_rows(job_rows(state.store, state.now_s), "Jobs")
        table.styles.height = len(shown) + HEAD_LINES if shown else 4
        if not self.stream and table.cursor_key is not None:
            self.follow(f"job:{table.cursor_key}")
        if not _awaits_submission(state.store, self.stream):
            self._start_source()
        log = self.query_one(LogView)
        entitle(log, f"{self._heading(state)}{self._state(state)}{self._keys()}")
        log.set_empty(NO_LINES_OF_ALL if self.stream.startswith(RUN) else NO_LINES)
        log.show(state.store.logs.get(self.stream, self._empty))

    def _heading(self, state: ViewState) -> str:
        if not self.stream.startswith(RUN):
            return f"Log · {self.stream}" if self.stream else "Log"
        run = state.store.runs.get(self.stream.removeprefix(RUN))
        of = f"run {run.name or run.id}" if run is not None else "the newest run or job"
        return f"All logs of {of}"

    def _keys(self) -> str:
        """Those that the footer does not show; they are cut first."""
        return " · e first error · esc jobs" if self.stream.startswith(RUN) else ""

    def _state(self, state: ViewState) -> str:
        source = state.store.sources.get(self.stream)
        if source is None:
            if self.stream.startswith(RUN) and self.stream not in state.store.logs:
                return " · reading" if self.stream in self._sources else " · not available here"
            waits = _awaits_submission(state.store, self.stream)
            return " · waiting until the operator has submitted the job" if waits else ""
        if not source.ok:
            return f" · {one_line(source.error, 120)}"
        return " · ended" if source.absent else ""

    def follow(self, stream: str) -> None:
        """Show that log; its source is started on first use."""
        self.stream = stream
        self.set_class(stream.startswith(RUN), "-all")
        if stream.startswith(RUN):
            self.query_one(LogView).focus(scroll_visible=False)

    def target(self) -> Target | None:
        """No job while its row is hidden."""
        return None if self.has_class("-all") else super().target()

    def usable(self, keys: tuple[Key, ...]) -> tuple[Key, ...]:
        if not self.has_class("-all"):
            return keys
        return tuple(key for key in keys if key.everywhere or key.id == "filter")

    def to_start(self) -> None:
        """The key of the view always shows the jobs: all logs have a key of their own."""
        self.back()

    def back(self) -> bool:
        """From all logs to the jobs."""
        if not self.has_class("-all"):
            return False
        self.query_one(LogView).set_filter("")
        self.stream = ""
        self.remove_class("-all")
        self.query_one(LineTable).focus(scroll_visible=False)
        return True

    def _start_source(self) -> None:
        connection, session, stream = self.cockpit.connection, self.cockpit.session, self.stream
        if not stream or connection is None or session is None or connection.log_source is None:
            return
        if stream not in self._sources and (source := connection.log_source(stream)) is not None:
            self._sources[stream] = source
            session.add(source)

    def forget(self) -> None:
        super().forget()
        self.query_one(LogView).set_filter("")
        self.stream = ""
        self.remove_class("-all")
        self._sources.clear()

    def filter(self, text: str) -> None:
        log = self.query_one(LogView)
        if self.pane is log or not text:
            log.set_filter(text)
        if self.pane is not log or not text:
            super().filter(text)


def _awaits_submission(store: Store, stream: str) -> bool:
    """Whether it is the log of a RayJob that Ray does not know yet: its source would end."""
    kind, _, name = stream.partition(":")
    job = store.jobs.get(name) if kind == "job" else None
    return job is not None and bool(job.rayjob) and not (job.submitted or job.status.is_over)
