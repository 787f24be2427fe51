"""The command line: find the command, run it, give its exit status.

0: nothing to complain about; 1: the command found a problem; 2: it could not run as asked.
What ends it early counts as a shell counts it: 130 for an interrupt, 141 for a closed pipe.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import deerflow_saver
from deerflow_saver.cli import bench, demo, doctor, fence, fixes, patches
from deerflow_saver.cli.errors import UsageError

__all__ = ["main"]

COMMANDS = {
    "bench": bench,
    "demo": demo,
    "doctor": doctor,
    "fence": fence,
    "fixes": fixes,
    "patches": patches,
}
"""Each module has `SUMMARY`, `add_arguments(parser)` and `run(arguments) -> int`."""

_USAGE = 2
_INTERRUPTED = 130
_PIPE_CLOSED = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is returned, also that of `--help` and of bad usage."""
    try:
        status = _run(argv)
        sys.stdout.flush()  # here, and not when the interpreter ends, where nobody could answer
    except BrokenPipeError:
        _write_no_more()
        return _PIPE_CLOSED
    return status


def _run(argv: Sequence[str] | None) -> int:
    parser = _parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else _USAGE
    try:
        status: int = COMMANDS[arguments.command].run(arguments)
    except UsageError as error:
        print(f"deerflow-saver {arguments.command}: error: {error}", file=sys.stderr)
        return _USAGE
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _write_no_more() -> None:
    """Whoever read the output has gone, as `head` does: let the rest go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deerflow-saver", description=deerflow_saver.__doc__)
    version = f"%(prog)s {deerflow_saver.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        command.add_arguments(
            commands.add_parser(name, help=command.SUMMARY, description=command.__doc__)
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
