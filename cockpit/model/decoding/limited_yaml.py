"""YAML, encoded, and decoded within limits where its origin is unknown.

PyYAML composes recursively in C, and 100,000 brackets end the process. Aliases of aliases make a
document of 500 bytes one of 9**9 values. The events of its parser are read without either.
"""

from __future__ import annotations

from typing import Any

from cockpit.model.decoding import block_yaml
from cockpit.model.decoding.limited_json import MAX_DEPTH, LimitError
from cockpit.model.text import one_line

MAX_CHARACTERS = 16 << 20
MAX_VALUES = 200_000
"""Of a kubeconfig with 5,000 clusters, aliases expanded."""


class InvalidYamlError(ValueError):
    """One line, without the line of the document: `line`, from 1, where it is known."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.line = line


def loads(text: str) -> Any:
    """The decoded document, of plain types.

    Raises LimitError, and InvalidYamlError also for an invalid date or number.
    """
    if (document := block_yaml.loads(text)) is not None:
        return document
    import yaml

    # The C loader is ten times faster; a build of PyYAML without it has the other.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check(text, loader)
        return yaml.load(text, loader)
    except LimitError:
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = one_line(str(getattr(error, "problem", "") or error))
        raise InvalidYamlError(problem, mark.line + 1 if mark is not None else None) from error
    except (ValueError, OverflowError) as error:  # of a date or a number
        raise InvalidYamlError(one_line(str(error))) from error


def dumps(*documents: Any) -> str:
    """The documents as YAML, with their keys in the order in which they are."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump_all(documents, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120)
    return str(text)


def _check(text: str, loader: Any) -> None:
    import yaml

    if len(text) > MAX_CHARACTERS:
        raise LimitError(f"it has more than {MAX_CHARACTERS:,} characters")
    sizes: dict[str, int] = {}
    within: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(text, loader):
        anchor, size = getattr(event, "anchor", None), 0
        if isinstance(event, yaml.CollectionStartEvent):
            within.append((anchor, 1))
        elif isinstance(event, yaml.AliasEvent):
            size = sizes.get(event.anchor or "", MAX_VALUES)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = within.pop()
        elif isinstance(event, yaml.ScalarEvent):
            size = 1
        if anchor is not None and size and not isinstance(event, yaml.AliasEvent):
            sizes[anchor] = size
        within[-1] = (within[-1][0], within[-1][1] + size)
        if len(within) > MAX_DEPTH:
            raise LimitError(f"it is nested more than {MAX_DEPTH} levels deep")
        if within[-1][1] > MAX_VALUES:
            raise LimitError(f"it has more than {MAX_VALUES:,} values")
