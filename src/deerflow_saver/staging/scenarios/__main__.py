"""Play the scenarios on raw savers and print what they showed, one JSON object a line."""

from __future__ import annotations

import argparse
import json
import sys
import warnings

from deerflow_saver._versions import installed
from deerflow_saver.staging.scenarios.catalogue import ALL
from deerflow_saver.staging.scenarios.playing import played
from deerflow_saver.staging.scenarios.scenario import EVERY


def main() -> int:
    """Run what the arguments name; standard output holds JSON lines and nothing else."""
    parser = argparse.ArgumentParser(prog="scenarios", description=__doc__)
    parser.add_argument("--saver", action="append", choices=EVERY, help="default: all")
    parser.add_argument("--postgres", metavar="URI", help="an empty database")
    parser.add_argument("--only", metavar="TEXT", help="scenarios whose name begins with it")
    arguments = parser.parse_args()
    scenarios = [one for one in ALL if one.name.startswith(arguments.only or "")]
    # Deprecations of old releases are not what is looked for
    warnings.simplefilter("ignore")
    print(json.dumps({"versions": installed()}), flush=True)  # noqa: T201
    for name in arguments.saver or EVERY:
        for cell in played(scenarios, name, arguments.postgres):
            print(json.dumps(cell._asdict()), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
