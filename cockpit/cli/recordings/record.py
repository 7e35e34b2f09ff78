"""`cockpit record [RUN]`: the flight recorder without a screen, for nohup and systemd."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from cockpit.cli.change import guard
from cockpit.cli.options import confirm, connect
from cockpit.cli.output.signals import ended_by_a_signal
from cockpit.cli.output.streams import log
from cockpit.cli.recordings import report
from cockpit.model.error import CockpitError, ExitCode
from cockpit.model.event import Notice
from cockpit.model.text import one_line
from cockpit.recorder.writing.recorder import Recorder
from cockpit.session import monitored
from cockpit.session.memory import collect_often
from cockpit.session.monitored import MonitoredSession
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.logs import job_log_source
from cockpit.store.run import RunView
from cockpit.store.selectors import loss_of, step_of

LINE_EVERY_S = 60.0
CHECK_EVERY_S = 1.0


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("run", nargs="?", default="", help="only this run, by id or name")
    parser.add_argument(
        "--forever", action="store_true", help="continue with the next run, until interrupted"
    )
    parser.add_argument(
        "--guard",
        action="store_true",
        help="also act on hangs and failures, as [guard] in the configuration defines",
    )
    parser.add_argument(
        "--mlflow",
        action="store_true",
        help="add the report of each recorded run to its MLflow run, as the artifact report.html",
    )
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    # Continue when the terminal closes; only SIGTERM and Ctrl-C end it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    collect_often()
    if args.mlflow:
        report.refuse_read_only(args)
    backend = connect.backend(args, log=log)
    session = monitored.monitored_session_on(backend, record=args.run)
    watch = Watch(session, args.run, to_mlflow=args.mlflow)
    with _closed_in_the_end(session):
        if args.guard:
            policy = guard.policy_of(args).on(backend.ref, args.protected, read_only=args.read_only)
            if not guard.confirmed(args, session, policy):
                return confirm.not_confirmed(args)
            watch.guarding = session.submit(guard.guard_on(session, policy, args.run).watch())
        with ended_by_a_signal(watch.end):
            watch.until_over(forever=args.forever)
    if watch.is_ended and not watch.has_failed:
        log("Stopped; the recording is complete.")
    return int(ExitCode.FAILED if watch.has_failed else ExitCode.DONE)


class Watch:
    """Log the state once a minute, and detect when there is nothing left to record."""

    def __init__(self, session: MonitoredSession, wanted: str, *, to_mlflow: bool = False) -> None:
        self.session, self.wanted, self._to_mlflow = session, wanted, to_mlflow
        self._begun: dict[str, Recorder] = {}
        """Recorders that are not done, by run."""
        self._is_any_done = False
        self._has_failed = False
        self._followed: dict[str, str] = {}
        """By run, the name of the source of its job's log."""
        self._printed_s = float("-inf")
        self._notices = 0
        self.is_ended = False
        """The user has had enough."""
        self.guarding: Future[None] | None = None

    @property
    def has_failed(self) -> bool:
        """Whether a recording could not be written to its end."""
        return self._has_failed or any(recorder.trouble for recorder in self._begun.values())

    def end(self) -> None:
        self.is_ended = True

    def until_over(self, *, forever: bool) -> None:
        """Until each run that was recorded is over; with `forever`, until it is ended."""
        while not self.is_ended and (forever or self._begun or not self._is_any_done):
            self.session.wait(lambda store: False, CHECK_EVERY_S)
            self._poll()
            if self.guarding is not None and self.guarding.done():
                self.guarding.result()

    def _poll(self) -> None:
        recording = self.session.recording
        assert recording is not None  # requested by the user
        going, store = recording.recorders(), self.session.store
        for run_id, recorder in going.items():
            run = store.runs.get(run_id)
            if self._begun.get(run_id) is not recorder:
                self._begun[run_id] = recorder
                log(f"{_clock()} recording {_name(run, run_id)} in {recorder.path}")
            self._follow_log(run)
        for run_id, recorder in list(self._begun.items()):
            if run_id not in going and not recorder.going:
                run = store.runs.get(run_id)
                about = f"{_clock()} {run_id}" if run is None else self._line(run)
                if recorder.trouble:
                    self._has_failed = True
                    log(f"{about}. Not recorded to its end: {recorder.trouble}")
                else:
                    log(f"{about}. Done: {recorder.path}")
                    if self._to_mlflow:
                        self._add_to_mlflow(recorder)
                del self._begun[run_id]
                self._is_any_done = True
                self._unfollow_log(run_id)
        self._print_notices()
        if time.monotonic() - self._printed_s >= LINE_EVERY_S:
            self._printed_s = time.monotonic()
            lines = [self._line(store.runs[run_id]) for run_id in going if run_id in store.runs]
            for line in lines or [f"{_clock()} waiting for {self.wanted or 'a run'}"]:
                log(line)

    def _add_to_mlflow(self, recorder: Recorder) -> None:
        """Without the server, the recording continues with the next run."""
        try:
            log(f"{_clock()} {report.added_to_mlflow(str(recorder.path))}")
        except CockpitError as error:
            log(f"{_clock()} The report was not added to MLflow: {one_line(str(error))}")

    def _follow_log(self, run: RunView | None) -> None:
        """No screen shows the log here, so only this reads it."""
        if run is not None and run.submission_id and run.id not in self._followed:
            source = job_log_source(Dashboard(self.session.backend.dashboard), run.submission_id)
            if source.name not in self._followed.values():  # a job may have several runs
                self.session.add(source)
            self._followed[run.id] = source.name

    def _unfollow_log(self, run_id: str) -> None:
        name = self._followed.pop(run_id, "")
        if name and name not in self._followed.values():
            self.session.remove(name)

    def _print_notices(self) -> None:
        """The recorder's own notices."""
        own = [notice for notice in self.session.store.notices if _is_own(notice)]
        for notice in own[self._notices :]:
            log(f"{_clock()} {notice.message}")
        self._notices = len(own)

    def _line(self, run: RunView) -> str:
        parts = [f"{_clock()} {_name(run, run.id)} {run.state.value}"]
        if run.attempt is not None:
            parts.append(f"attempt {run.attempt.number}")
        if (step := step_of(run)) is not None:
            parts.append(f"step {step}")
        if (loss := loss_of(run)) is not None:
            parts.append(f"loss {loss:.4g}")
        if (rate := run.curves["samples_per_s"].last) is not None:
            parts.append(f"{rate:.4g} samples/s")
        recorder = self._begun.get(run.id)
        if recorder is not None and recorder.path.exists():
            parts.append(f"{recorder.path.stat().st_size / 1e6:.1f} MB")
            if recorder.dropped:
                parts.append(f"{recorder.dropped} events lost")
        for state in self.session.store.sources.values():
            if not state.ok and not state.absent:
                parts.append(f"{state.name}: {one_line(state.error, 80)}")
        return ", ".join(parts)


def _is_own(notice: Notice) -> bool:
    return notice.source == "recorder"


def _name(run: RunView | None, run_id: str) -> str:
    return one_line(run.name if run is not None and run.name else run_id, 80)


def _clock() -> str:
    return time.strftime("%H:%M:%S")


@contextmanager
def _closed_in_the_end(session: MonitoredSession) -> Iterator[None]:
    session.start()
    try:
        yield
    finally:
        session.close()
