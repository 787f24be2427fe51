"""`python -m bench`: the benchmark of a checkout, through `deerflow-saver bench`.

`--quick` checks answers and keeps nothing. `--standard` measures what docs/benchmarks.md shows,
keeps the rows in bench/results/, and rewrites the page; `--report` only rewrites it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deerflow_saver.cli.__main__ import main as command

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
PLOTS = ROOT / "docs" / "plots"
STANDARD = {
    "ab": ["ab", "--standard"],
    "channels": ["channels", "--standard"],
    "production": ["channels", "--production", "--standard"],
}


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; the exit status of the command that complained first."""
    asked = _parser().parse_args(arguments)
    if asked.quick:
        return command(["bench", "ab", "--quick"])
    return _report() if asked.report else _standard(resume=asked.resume)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--quick", action="store_true", help="answers only, nothing is kept")
    which.add_argument("--standard", action="store_true", help="measure, and rewrite the page")
    which.add_argument("--report", action="store_true", help="rewrite the page")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    return parser


def _standard(*, resume: bool) -> int:
    """All three, whatever one of them complains about, then the page."""
    found = []
    for name, arguments in STANDARD.items():
        rows = RESULTS / f"{name}.jsonl"
        if not resume:
            rows.unlink(missing_ok=True)
        print(f"== {name}", file=sys.stderr)
        found.append(command(["bench", *arguments, "--resume", "--output", str(rows)]))
    found.append(_report())
    return next((status for status in found if status), 0)


def _report() -> int:
    rows = [str(path) for path in sorted(RESULTS.glob("*.jsonl"))]
    if not rows:
        print(f"{RESULTS} holds no rows: run `python -m bench --standard`", file=sys.stderr)
        return 1
    return command(["bench", "report", *rows, "--write", str(PAGE), "--plots", str(PLOTS)])


if __name__ == "__main__":
    sys.exit(main())
