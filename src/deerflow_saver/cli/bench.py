"""Measure what the wrapper gains or costs, on any saver, and report it.

`ab` puts the raw saver beside the wrapped one, `channels` full state beside delta channels, and
`report` makes tables and plots of their rows.
"""

from __future__ import annotations

import argparse

from deerflow_saver.bench.commands import ab, channels, report

__all__ = ["SUMMARY", "add_arguments", "run"]

SUMMARY = "measure raw and wrapped savers, full and delta channels, and report the results"

_COMMANDS = {"ab": ab, "channels": channels, "report": report}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The three subcommands and their options."""
    commands = parser.add_subparsers(dest="subcommand", metavar="WHAT", required=True)
    for name, command in _COMMANDS.items():
        command.add_arguments(
            commands.add_parser(name, help=command.SUMMARY, description=command.__doc__)
        )


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand; 1 if a cell failed, or there was nothing to report."""
    status: int = _COMMANDS[arguments.subcommand].run(arguments)
    return status
