"""`cockpit`: find the verb, run it, and map errors to a message and an exit code."""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from cockpit import __version__
from cockpit.cli.options import process_arguments
from cockpit.cli.options.parser import Parser, common_flags, settled
from cockpit.cli.output import streams
from cockpit.cli.verbs import BY_NAME, OLD_NAMES, VERBS
from cockpit.model.error import CockpitError, ExitCode, NotAllowedError, UsageError
from cockpit.model.text import one_line

LASTING = frozenset({"demo", "guard", "open", "record", "replay", "watch"})
"""Verbs that run for hours."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code of the process."""
    if argv is None and "_ARGCOMPLETE" in os.environ:
        from cockpit.cli.shell import completion

        completion.answer(os.environ)
    streams.prepare()
    if argv is None:
        process_arguments.hide_secrets()
    given = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in given[: _dashes(given)]
    try:
        code = _run(given)
        sys.stdout.flush()
        if argv is None:
            _end_at_once(code)
        return code
    except CockpitError as error:
        if debug:
            raise
        print(error, file=sys.stderr)
        return int(error.code)
    except KeyboardInterrupt:
        if argv is None:
            _ignore_more()
        print("Interrupted.", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader (`| head`) has what it wanted; without this, Python complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.DONE)
    except Exception as error:
        if debug:
            raise
        text = explain(error) if isinstance(error, OSError) else None
        if text is not None:
            print(text, file=sys.stderr)
            return int(text.code)
        message = one_line(
            f"cockpit failed with an internal error: {type(error).__name__}: {error}"
        )
        print(message, file=sys.stderr)
        print("Run the same command with --debug and report the traceback.", file=sys.stderr)
        return int(ExitCode.FAILED)
    finally:
        if argv is None:
            # The process ends. Python would search all objects for garbage that is to be freed.
            gc.freeze()


def _end_at_once(code: int) -> None:
    """End the process without freeing its modules: that takes 4 ms, of 180 for a short verb.

    What is registered for the end is called. Returns if a thread is still running.
    """
    if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
        return
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(argv: list[str]) -> int:
    # A short verb spends most of its time on imports, whose objects are permanent: a collection
    # every 700 objects takes a tenth of this time.
    gc.set_threshold(50_000, 20, 20)
    _end_politely()
    parser = Parser(
        prog="cockpit",
        parents=[common_flags()],
        add_help=False,
        usage="cockpit [options] [VERB] [options]",
    )
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--version", action="version", version=f"cockpit {__version__}")
    parser.add_argument("verb", nargs="?")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    # Argparse drops the dashes right after the verb, and then takes the command's flags for ours.
    dashes = _dashes(argv)
    first = parser.parse_args(argv[:dashes])
    name, *implied = OLD_NAMES.get(first.verb, (first.verb,))
    rest = [*implied, *first.rest, *argv[dashes:]]
    del first.verb, first.rest
    if first.help:
        print(help_text())
        return int(ExitCode.DONE)
    if name is None or name in LASTING:
        from cockpit.session.memory import set_allocator

        set_allocator()  # imports make holes in the heap too
    if name is None:
        from cockpit.cli.screen.screen import run

        return run(settled(first))
    verb = BY_NAME.get(name)
    if verb is None:
        from difflib import get_close_matches

        near = get_close_matches(name, BY_NAME, n=1)
        hint = f"Did you mean: cockpit {near[0]}" if near else "See: cockpit --help"
        raise UsageError(f"cockpit has no verb {name!r}.", todo=hint)
    from importlib import import_module

    module = import_module(f"cockpit.cli.{verb.module}")
    inner = Parser(prog=f"cockpit {name}", parents=[common_flags()], description=verb.summary)
    module.arguments(inner, name)
    ours, command = rest, []
    if getattr(module, "COMMAND_AFTER_DASHES", False) and "--" in rest:
        # Argparse takes no list of arguments when flags are between them and the one before.
        at = rest.index("--")
        ours, command = rest[:at], rest[at + 1 :]
    args = inner.parse_args(ours, first)
    if command:
        if args.command:
            inner.error(f"unrecognized arguments: {' '.join(args.command)}")
        args.command, args.after_dashes = command, True
    args.verb = name
    return int(module.run(settled(args)))


def _dashes(argv: Sequence[str]) -> int:
    """Where the command after `--` begins; the end without one."""
    return argv.index("--") if "--" in argv else len(argv)


def help_text() -> str:
    lines = [
        "cockpit: distributed training on Ray, from a terminal",
        "",
        "  cockpit                 the UI",
    ]
    section = ""
    for verb in VERBS:
        if verb.section != section:
            section = verb.section
            lines += ["", section]
        lines.append(f"  cockpit {verb.name:<15} {verb.summary}")
    return "\n".join(
        [
            *lines,
            "",
            "To select a cluster, add --local, --context NAME -n NAMESPACE, --hosts FILE or",
            "--address URL, and --cluster NAME, before or after the verb, or save them as a",
            "profile (cockpit config). Every verb has --help. Verbs that read take",
            "-o table|json|yaml|…, and verbs that change something take --yes and --dry-run.",
            "Exit codes: 0 done, 1 failed, 2 usage, 3 unreachable, 4 not allowed,",
            "130 interrupted.",
        ]
    )


def _ignore_more() -> None:
    """All is cleaned up, and the process is about to end: one more Ctrl-C would only spoil how."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _end_politely() -> None:
    """Let a closed SSH session or a `kill` end us as Ctrl-C does, so that clean-up runs."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        # asyncio converts a SIGINT to a cancellation; it would only log an exception in its loop. A
        # background job of a shell ignores SIGINT, and must still end.
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    for name in ("SIGTERM", "SIGHUP"):
        # nohup sets SIGHUP to be ignored: leave that as the user wanted it.
        if signal.getsignal(getattr(signal, name)) is signal.SIG_DFL:
            signal.signal(getattr(signal, name), interrupt)


if __name__ == "__main__":
    sys.exit(main())


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
NO_SUCH_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
MOVE = (
    "Check the path and its permissions. XDG_STATE_HOME and XDG_CACHE_HOME move cockpit's own "
    "files."
)


def explain(error: OSError) -> CockpitError | None:
    """Return the message of an operating system error, or None if the user cannot fix it."""
    name = error.filename2 or error.filename
    what = one_line(os.fsdecode(name)) if isinstance(name, (str, bytes)) else ""
    why = f"{error.strerror or type(error).__name__}."
    if error.errno in FULL:
        return CockpitError(
            f"{what or 'The output'} cannot be written.", why, "Free some disk space there."
        )
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN):
        return CockpitError(
            "cockpit has reached a resource limit of this host.", why, "See: ulimit -a"
        )
    if not what:
        return None
    if error.errno in FORBIDDEN:
        return NotAllowedError(f"cockpit has no permission to use {what}.", why, MOVE)
    if error.errno in NO_SUCH_PATH:
        return CockpitError(f"cockpit cannot use {what}.", why, MOVE)
    return None
