"""One telemetry stream as numbered records: each once, in order, however often it is read."""

from __future__ import annotations

from msgspec import Struct, field

from cockpit.format import plural
from cockpit.model.decoding.limited_json import loads
from training.telemetry.wire import Record, Segment, WireError, decode

MOST_AHEAD = 100_000_000
"""A number that is further ahead is no number: at 4 lines a second it is ten months."""

REMEMBERED = 1_000
"""How many of the newest sequence numbers are remembered: lines may be out of order."""

_MOST_SEGMENTS = 999_999_999


class RereadError(Exception):
    """The response does not continue the previous one: the file must be read from its start."""


class Progress(Struct):
    """How far a stream has been read, and what of it could not be."""

    seq: int = 0
    """The highest number received."""
    skipped: int = 0
    """Lines that are garbage, torn or of a later version."""
    skipped_why: str = ""
    missing: int = 0
    """Numbers that are not in the stream."""
    next_segment: int = 0
    """The newest file that the stream has announced as its continuation."""
    _whole: bool = True
    _caught_up: bool = True
    _unnumbered: int = 0
    _repeats_until: int = 0
    """Lines below this number are repeated from deleted files: gaps between them are expected."""
    _counts_repeats: bool = False
    _came: dict[int, tuple[float, int]] = field(default_factory=dict)
    """By number, the first and the newest: the record's time, and the last answer with it."""
    _first: int = 0
    _is_first: bool = True
    """No numbered line of this response was received yet."""
    _jumped: int = 0
    """How many are missing by the last line's number alone, when that is beyond belief."""
    _leapt_from: int = 0
    _answer: int = 0

    def begin(self, *, whole: bool) -> None:
        """A new connection reads the `whole` file again, or only its end."""
        self._whole = whole
        self._caught_up = self.seq == 0
        self._unnumbered = 0
        self._is_first = True
        self._answer += 1

    def take(self, line: bytes) -> Record | None:
        """Return the record of this line if it is new.

        Raises RereadError after a gap, unless the complete file is being read: then the missing
        lines do not exist. Also raised when the file was replaced.
        """
        record: Record | None = None
        broken: WireError | None = None
        try:
            record = decode(line, loads)
        except WireError as error:
            broken = error
        number = (record.seq, record.t) if record else _number(line)
        if number is None:
            # It may be a repetition, unless it follows the last line received.
            if broken is not None and self._caught_up:
                self._unnumbered += 1
                self._skip(broken)
            return None
        seq, t = number
        if seq > self.seq + MOST_AHEAD:
            self._skip(WireError(f"numbered {seq} after {self.seq}"))
            return None
        is_first, self._is_first = self._is_first, False
        if record is not None and isinstance(record.body, Segment):
            self.next_segment = max(self.next_segment, min(record.body.segment, _MOST_SEGMENTS))
            if is_first and self._begins_file(record):
                return None
        if self._has_come(seq, t):
            self._caught_up = self._caught_up or seq >= self.seq
            return None
        if self._jumped and self._leapt_from < seq < self.seq:
            # The number before this one was no number: on from where it was.
            del self._came[self.seq]
            self._first = 0 if self._first == self.seq else self._first
            self.seq, self.missing = self._leapt_from, self.missing - self._jumped
        self._jumped = 0
        if seq < self.seq:
            return self._late(seq, t, record)
        if seq < self._repeats_until:
            if not self._whole:
                raise RereadError
            self.missing = max(0, self.missing - self._counts_repeats)
        else:
            gap = seq - max(self.seq, self._repeats_until) - 1
            if gap and not self._whole:
                raise RereadError
            lost = max(0, gap - self._unnumbered)
            self.missing += lost
            if gap > REMEMBERED:
                self._jumped, self._leapt_from = lost, self.seq
        self._caught_up = True
        self.seq, self._unnumbered = seq, 0
        self._note(seq, t)
        if broken is not None:
            self._skip(broken)
        return record

    def _begins_file(self, record: Record) -> bool:
        """A file's first line, when earlier lines are not known."""
        if record.seq <= self.seq + 1 or not self._whole:
            return False
        if record.seq == self._repeats_until:
            return True  # the answer before this one was cut
        self._repeats_until = record.seq
        # Who has read an earlier file, and lost the ones between, misses what is not repeated.
        self._counts_repeats = self.seq > 0
        if self._counts_repeats:
            self.missing += record.seq - self.seq - 1
        return True

    def finish(self) -> None:
        """The reading has ended: forget the received numbers, but keep the unreadable ones."""
        self._came.clear()

    @property
    def complaint(self) -> str:
        parts = []
        if self.skipped:
            parts.append(f"{plural(self.skipped, 'line')} skipped ({self.skipped_why})")
        if self.missing:
            parts.append(f"{plural(self.missing, 'record')} missing in the stream")
        return ", ".join(parts)

    def _skip(self, error: WireError) -> None:
        self.skipped += 1
        self.skipped_why = str(error)

    def _has_come(self, seq: int, t: float) -> bool:
        """Raise RereadError if it was received with another time: the file was replaced.

        Twice in one response is no replacement: two writers overlapped for a short time.
        """
        came = self._came.get(seq)
        if came is None:
            return False
        if came[0] != t and came[1] != self._answer:
            self.seq = self._repeats_until = self._first = 0
            self._came.clear()
            raise RereadError
        self._came[seq] = (came[0], self._answer)
        return True

    def _late(self, seq: int, t: float, record: Record | None) -> Record | None:
        """A number that was skipped; None when it is too old to know."""
        if seq <= self.seq - REMEMBERED or seq < self._first:
            return None
        self._note(seq, t)
        self.missing = max(0, self.missing - 1)
        return record

    def _note(self, seq: int, t: float) -> None:
        self._first = self._first or seq
        self._came[seq] = (t, self._answer)
        if len(self._came) > REMEMBERED + 1:
            # The first is kept: its time identifies a replaced file.
            oldest = next(number for number in self._came if number != self._first)
            del self._came[oldest]


def _number(line: bytes) -> tuple[int, float] | None:
    """The number and time of a line whose body this version does not know."""
    try:
        raw = loads(line)
        return int(raw["seq"]), float(raw["t"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
