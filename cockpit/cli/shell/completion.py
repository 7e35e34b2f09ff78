"""Completion for bash, zsh, fish and `kubectl cockpit`, with the names of the cluster's objects.

The shell runs cockpit with the line in its environment, as argcomplete's scripts do; see
https://github.com/kislyuk/argcomplete. kubectl instead passes the
line's arguments to the program `kubectl_complete-cockpit`, and expects the output of Cobra: one
name a line, and then a directive for the shell.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from argcomplete.completers import FilesCompleter, SuppressCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line
from argcomplete.shell_integration import shellcode

from cockpit.cli.options.parser import common_flags
from cockpit.cli.shell.names import KINDS, LOCAL, names
from cockpit.cli.shell.parsers import parser_of, verbs_parser
from cockpit.cli.verbs import BY_NAME
from cockpit.model.error import ExitCode

SHELLS = ("bash", "zsh", "fish")
PROGRAMS = ("cockpit", "kubectl-cockpit")
FILES = frozenset({"FILE", "PATH", "DIRECTORY", "FOLDER"})
"""Metavars of arguments that are paths."""
IN_SHELL = "_ARGCOMPLETE"
"""A shell's script sets this variable when it requests completion."""
SEPARATOR = "\013"
NO_FILES = ":4"
"""Cobra's ShellCompDirectiveNoFileComp: kubectl's shell offers no files in place of names."""


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = "Print the script that completes verbs, flags and names in a shell."
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")


def run(args: argparse.Namespace) -> int:
    print(shellcode(PROGRAMS, shell=args.shell))
    return int(ExitCode.DONE)


def answer(environment: Mapping[str, str]) -> None:
    """Answer the shell that runs this process, and end it."""
    complete(environment["COMP_LINE"], int(environment["COMP_POINT"]))


def complete(line: str, point: int, output: TextIO | None = None) -> None:
    """Write the completions of the argument that ends at `point` (bytes).

    Without an `output` they are written to the shell, and the process ends.
    """
    CompletionFinder()(
        _completed(line.encode()[:point].decode(errors="replace")),
        always_complete_options=False,
        default_completer=SuppressCompleter(),
        output_stream=output,
        exit_method=_no_exit if output else os._exit,
    )


def kubectl() -> int:
    """The program `kubectl_complete-cockpit`: its last argument is the one to complete."""
    line = shlex.join(["cockpit", *sys.argv[1:-1]]) + " " + (sys.argv[-1] if sys.argv[1:] else "")
    os.environ.update({IN_SHELL: "1", "_ARGCOMPLETE_IFS": SEPARATOR, "COMP_LINE": line})
    os.environ["COMP_POINT"] = str(len(line.encode()))
    found = io.StringIO()
    complete(line, len(line.encode()), found)
    for name in filter(None, found.getvalue().split(SEPARATOR)):
        print(name.rstrip())
    print(NO_FILES)
    return int(ExitCode.DONE)


def _no_exit(code: int) -> None:
    """In place of `os._exit`."""


def _completed(line: str) -> argparse.ArgumentParser:
    """The parser of the verb on the line, or of all verbs; its arguments know their names."""
    verb = BY_NAME.get(next(_positionals(_arguments(line)), ""))
    if verb is None:
        parser: argparse.ArgumentParser = verbs_parser()
    else:
        parser = parser_of(verb)
        # On the line, the verb is the first argument.
        own = parser._positionals._group_actions
        parser.add_argument("verb", choices=[verb.name])
        own.insert(0, own.pop())
        parser._actions.sort(key=lambda action: action.dest != "verb")
    for action in parser._actions:
        kinds = KINDS.get((verb.name if verb else "", action.dest))
        if kinds is None and action.dest in LOCAL and action.option_strings:
            kinds = (LOCAL[action.dest],)
        if kinds is not None:
            action.completer = _Names(kinds)  # type: ignore[attr-defined]
        elif action.metavar in FILES:
            action.completer = FilesCompleter()  # type: ignore[attr-defined]
    return parser


class _Names:
    """A completer of argcomplete."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = kinds

    def __call__(self, *, prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        parsed_args.typed = prefix
        return names(self._kinds, parsed_args)


def _arguments(line: str) -> list[str]:
    """The complete arguments after the program's name."""
    *_, found, _ = split_line(line)
    return list(found[1:])


def _positionals(line: Sequence[str]) -> Iterator[str]:
    """The arguments without the flags that every verb has, and without their values."""
    flags = common_flags()._option_string_actions
    rest = iter(line)
    for argument in rest:
        if not argument.startswith("-"):
            yield argument
        elif (flag := flags.get(argument)) is not None and flag.nargs is None:
            next(rest, None)
