"""Tags and a note of a recorded run, in a file beside its recording."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec import Struct

from cockpit.config import paths
from cockpit.model.decoding import limited_json
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.text import one_line

MOST_TAGS, MOST_CHARS, MOST_BYTES = 20, 500, 65_536
_TAG = re.compile(r"[\w.:/=+-]{1,40}")


class Annotation(Struct, frozen=True):
    tags: tuple[str, ...] = ()
    note: str = ""
    """One line."""

    @property
    def line(self) -> str:
        """As it is typed: `#tag #tag note`."""
        return " ".join((*(f"#{tag}" for tag in self.tags), self.note)).strip()


def parsed(line: str) -> Annotation:
    """The tags and the note of `#tag #tag note`. Raises UsageError."""
    terms = line.split()
    tags = [term[1:] for term in terms if term.startswith("#")]
    return checked(tags, " ".join(term for term in terms if not term.startswith("#")))


def checked(tags: list[str], note: str) -> Annotation:
    """Raises UsageError for a tag with other characters, and for too many of them."""
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise UsageError(
                f"{one_line(tag)!r} cannot be a tag.",
                "A tag has up to 40 letters, digits and . : / = + - _",
            )
    if len(unique := tuple(dict.fromkeys(tags))) > MOST_TAGS:
        raise UsageError(f"A recording has at most {MOST_TAGS} tags.")
    return Annotation(unique, one_line(note, MOST_CHARS))


def path_of(recording: Path) -> Path:
    return recording.with_name(f"{recording.name}-notes")


def read(recording: Path) -> Annotation:
    """Empty without a file; of one that cannot be read, the note is the error."""
    try:
        return _read(recording)
    except (ValueError, OSError, UsageError) as error:
        return Annotation(note=f"its notes cannot be read: {one_line(str(error))}")


def _read(recording: Path) -> Annotation:
    try:
        with path_of(recording).open("rb") as file:
            raw = file.read(MOST_BYTES)
    except FileNotFoundError:
        return Annotation()
    limited_json.check(raw)
    found = msgspec.json.decode(raw, type=Annotation)
    return checked(list(found.tags), found.note)


def write(recording: Path, notes: Annotation) -> None:
    """Replace the notes atomically; empty ones remove the file. Raises CockpitError."""
    path = path_of(recording)
    try:
        _read(recording)  # `read` gives the error as the note, which would replace the real one
    except (ValueError, OSError, UsageError) as error:
        raise CockpitError(
            f"The notes of {recording.stem} cannot be read, and are not replaced.",
            f"{one_line(str(error)).rstrip('.')}.",
            f"Correct or remove {path}.",
        ) from error
    try:
        if notes == Annotation():
            path.unlink(missing_ok=True)
        else:
            paths.replace_file(path, msgspec.json.encode(notes), durable=True)
    except OSError as error:
        raise CockpitError(
            f"The notes of {recording.stem} cannot be written.", error.strerror or str(error)
        ) from error
