"""The command line: find the command, run it, give its exit status.

0: nothing to complain about; 1: the command found a problem; 2: it could not run as asked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import deerflow_saver
from deerflow_saver.cli import demo, fence, patches
from deerflow_saver.cli.errors import UsageError

__all__ = ["main"]

COMMANDS = {"demo": demo, "fence": fence, "patches": patches}
"""Each module has `SUMMARY`, `add_arguments(parser)` and `run(arguments) -> int`."""

_USAGE = 2
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is returned, also that of `--help` and of bad usage."""
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
