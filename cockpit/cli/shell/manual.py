"""`cockpit manual`: the manual page, from the same parsers as `--help`.

Format: man(7). `cockpit manual > cockpit.1`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from cockpit import __version__
from cockpit.cli.options.parser import common_flags
from cockpit.cli.shell.parsers import parser_of
from cockpit.cli.verbs import VERBS, Verb
from cockpit.model.error import ExitCode

EXIT_CODES = "0 done, 1 failed, 2 usage, 3 unreachable, 4 not allowed, 130 interrupted."


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = "Print the manual page in the format of man(7)."


def run(args: argparse.Namespace) -> int:
    print("\n".join(page()))
    return int(ExitCode.DONE)


def page() -> Iterator[str]:
    """The lines of cockpit(1)."""
    yield f'.TH COCKPIT 1 "" "cockpit {__version__}" "User Commands"'
    yield from (".SH NAME", "cockpit \\- distributed training on Ray, from a terminal")
    yield from (".SH SYNOPSIS", ".B cockpit", "[options] [VERB] [options]")
    yield ".SH DESCRIPTION"
    yield _escaped("Without a verb, the UI starts on the cluster that cockpit finds.")
    yield ".SH OPTIONS OF EVERY VERB"
    yield from _options(common_flags()._actions)
    yield from (".TP", r"\fB\-\-help, \-h\fR", "describe the verb")
    section = ""
    for verb in VERBS:
        if verb.section != section:
            section = verb.section
            yield f".SH {section.upper()}"
        yield from _verb(verb)
    yield from (".SH EXIT STATUS", _escaped(EXIT_CODES))
    yield from (".SH ENVIRONMENT", _escaped("See docs/commands.md."))


def _verb(verb: Verb) -> Iterator[str]:
    parser = parser_of(verb)
    shared = {action.dest for action in common_flags()._actions} | {"help"}
    own = [action for action in parser._actions if action.dest not in shared]
    formatter = argparse.HelpFormatter(parser.prog, width=10_000)
    formatter.add_usage(None, own, [])
    usage = formatter.format_help().removeprefix("usage: ").strip()
    yield f".SS {_escaped(usage)}"
    yield _escaped(parser.description or verb.summary)
    yield from _options(own)


def _options(actions: Iterable[argparse.Action]) -> Iterator[str]:
    for action in actions:
        value = action.metavar or (action.dest if not action.option_strings else "")
        if isinstance(value, tuple):
            value = " ".join(value)
        if action.choices is not None:
            value = "|".join(map(str, action.choices))
        elif action.option_strings and action.nargs != 0 and not value:
            value = action.dest.upper()
        yield ".TP"
        yield f"\\fB{_escaped(', '.join(action.option_strings))}\\fR {_escaped(value)}".rstrip()
        yield _escaped(_help(action))


def _help(action: argparse.Action) -> str:
    text = action.help or ""
    return text % {**vars(action), "prog": "cockpit"} if "%(" in text else text.replace("%%", "%")


def _escaped(text: str) -> str:
    """Text that man(7) shows as it is: a line that begins with a dot would be a request."""
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe
