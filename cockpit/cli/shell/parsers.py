"""The parser of a verb, as completion and the manual page need it: nothing of it is run."""

from __future__ import annotations

import argparse
from importlib import import_module

from cockpit.cli.options.parser import Parser, common_flags
from cockpit.cli.verbs import VERBS, Verb


def parser_of(verb: Verb) -> Parser:
    """The flags and arguments of a verb, as `cockpit VERB` parses them."""
    parser = Parser(prog=f"cockpit {verb.name}", parents=[common_flags()], description=verb.summary)
    import_module(f"cockpit.cli.{verb.module}").arguments(parser, verb.name)
    return parser


def verbs_parser() -> argparse.ArgumentParser:
    """Of a command line that has no verb yet."""
    parser = argparse.ArgumentParser(prog="cockpit", parents=[common_flags()])
    parser.add_argument("--version", action="store_true", help="print cockpit's version")
    parser.add_argument("verb", choices=[verb.name for verb in VERBS])
    return parser
