"""`cockpit exec POD -- COMMAND`: run a command in the pod, with a pseudo-terminal on a terminal."""

from __future__ import annotations

import argparse
import asyncio
import codecs
import os
import shlex
import shutil
import sys
import threading

from cockpit.actions.cluster import SHELL, ClusterActions
from cockpit.backends.protocol import Terminal
from cockpit.cli.options import confirm, connect
from cockpit.launch.closest_name import did_you_mean
from cockpit.model.cluster import is_protected
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.secret import masked_command
from cockpit.model.text import clean, for_terminal, one_line
from cockpit.session.session import Session

CHUNK = 65_536
COMMAND_AFTER_DASHES = True


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("pod", help="the pod's name: see cockpit pods")
    parser.add_argument("command", nargs="*", help="the command, after -- (default: a shell)")
    parser.add_argument(
        "-i", "--stdin", action="store_true", help="pass standard input to the command"
    )
    parser.add_argument(
        "-t", "--tty", action="store_true", help="allocate a terminal for the command"
    )
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    confirm.refuse_read_only(args)
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if args.tty and not on_terminal:
        raise UsageError(
            "-t needs a terminal, but standard input or output is not one.",
            todo="Leave it out, or use -i.",
        )
    if not args.command and not on_terminal:
        raise UsageError(
            "There is no command to run, and no terminal for a shell.",
            todo="For example: cockpit exec POD -- hostname",
        )
    argv = args.command or list(SHELL)
    with connect.session(args, sources=(), kinds=("pods",)) as session:
        confirm.require_permission(session, "exec")
        connect.wait_for(session, ("backend",))
        if session.store.pods and args.pod not in session.store.pods:
            raise UsageError(
                f"There is no pod {args.pod!r}{did_you_mean(args.pod, session.store.pods) or '.'}",
                todo="cockpit pods lists them.",
            )
        ref = session.backend.ref
        if args.dry_run or is_protected(ref, args.protected):
            plan = [f"Run {shlex.join(masked_command(argv))} in pod {one_line(args.pod)}."]
            if not confirm.confirmed(args, plan, ref, destroys=True):
                return confirm.not_confirmed(args)
        if on_terminal:
            return _on_terminal(session, args.pod, argv)
        if args.stdin:
            return session.call(_piped(ClusterActions.on(session), args.pod, argv))
        return _plain(session, args.pod, argv)


def _plain(session: Session, pod: str, argv: list[str]) -> int:
    """Standard output and standard error, separately."""
    done = session.call(ClusterActions.on(session).exec(pod, argv))
    for stream, text in ((sys.stdout, done.stdout), (sys.stderr, done.stderr)):
        if stream.isatty():
            stream.write(_shown(text))
        else:
            # A file or a program gets what the command wrote, as `kubectl exec` has it.
            stream.flush()
            stream.buffer.write(text.encode(errors="replace"))
            stream.buffer.flush()
    return done.exit_code


def _shown(text: str) -> str:
    """On a terminal, without what would take hold of it."""
    return "".join(clean(line) + "\n" for line in text.splitlines())


async def _piped(actions: ClusterActions, pod: str, argv: list[str]) -> int:
    """Standard input to the command, until it ends; what it writes to standard output.

    A terminal gets no control sequences, as in `_plain`.
    """
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    terminal = await actions.attach(pod, argv, tty=False)
    feeding = asyncio.create_task(_feed(terminal))
    try:
        async for chunk in terminal.output():
            if sys.stdout.isatty():
                sys.stdout.write(for_terminal(decode(chunk)))
            else:
                sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
        return await terminal.wait()
    finally:
        feeding.cancel()
        await terminal.aclose()


async def _feed(terminal: Terminal) -> None:
    chunks: asyncio.Queue[bytes] = asyncio.Queue(8)
    loop = asyncio.get_running_loop()

    def read() -> None:
        chunk = b"begin"
        while chunk:
            chunk = os.read(0, CHUNK)
            # Waiting here for the command to take it keeps a large file out of memory.
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()

    # Do not block the end of the process: more input may never arrive.
    threading.Thread(target=read, name="cockpit-stdin", daemon=True).start()
    while chunk := await chunks.get():
        await terminal.write(chunk)
    await terminal.close_input()


def _on_terminal(session: Session, pod: str, argv: list[str]) -> int:
    from cockpit.tui.changes.shell import KEYBOARD, SCREEN, forwarded_resizes, pump, raw

    columns, rows = shutil.get_terminal_size()
    attach = ClusterActions.on(session).attach(pod, argv, tty=True, rows=rows, columns=columns)
    terminal = session.call(attach)
    with raw(KEYBOARD), forwarded_resizes(session, terminal):
        code = session.call(pump(terminal, KEYBOARD, SCREEN))
    return int(ExitCode.INTERRUPTED) if code is None else code
