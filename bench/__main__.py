"""`python -m bench`: the wrapper beside the raw saver and the published alternative.

Without arguments every cell runs in a process of its own, the figures go to
`bench/results/` and the docs page is rewritten from them. `--quick` runs small cells in
this process, keeps nothing, and is there to check that all answers are equal.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.ab import Cell, measure
from bench.backends import BACKENDS, own_postgres
from bench.memory import held_by_arms
from bench.report import RESULTS, table, write_page
from bench.scenarios import STARTS

DEPTHS = (10, 100, 1000)
QUICK_DEPTHS = (10, 50)
ROUNDS = 15
ROOT = Path(__file__).parents[1]


def main(arguments: list[str] | None = None) -> None:
    """Run what the command line asks for."""
    asked = _parser().parse_args(arguments)
    if asked.report:
        write_page()
    elif asked.cell:
        print(json.dumps(_run_cell(asked.cell, asked.rounds)))
    elif asked.quick:
        print(table(_quick()))
    else:
        _full(asked.backend or list(BACKENDS), asked.rounds)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small cells, equality only")
    parser.add_argument("--report", action="store_true", help="rewrite the page, measure nothing")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"per cell ({ROUNDS})")
    parser.add_argument("--backend", action="append", choices=sorted(BACKENDS), help="only this")
    parser.add_argument("--cell", help="one cell, as backend/start/depth; prints its JSON")
    return parser


def _quick() -> list[dict[str, Any]]:
    found = []
    for backend, opened in BACKENDS.items():
        with opened() as saver:
            for start in STARTS:
                for depth in QUICK_DEPTHS:
                    outcome = measure(saver, Cell(backend, start, depth), 1, warm_up=0)
                    found.append(outcome.as_dict())
    return found


def _full(backends: list[str], rounds: int) -> None:
    RESULTS.mkdir(exist_ok=True)
    with _one_server(backends):
        for backend in backends:
            cells = [f"{backend}/{start}/{depth}" for start in STARTS for depth in DEPTHS]
            found = [_in_own_process(cell, rounds) for cell in [*cells, f"{backend}/memory/1000"]]
            _keep(backend, found)
    write_page()


@contextmanager
def _one_server(backends: list[str]) -> Iterator[None]:
    """One Postgres for all the processes."""
    if "postgres" in backends:
        with own_postgres():
            yield
    else:
        yield


def _in_own_process(cell: str, rounds: int) -> dict[str, Any]:
    began = time.perf_counter()
    command = [sys.executable, "-m", "bench", "--cell", cell, "--rounds", str(rounds)]
    done = subprocess.run(  # noqa: PLW1510 - its error output is shown as it comes
        command, stdout=subprocess.PIPE, cwd=ROOT, env=dict(os.environ), text=True
    )
    if done.returncode:
        sys.exit(done.returncode)
    print(f"{cell}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _run_cell(name: str, rounds: int) -> dict[str, Any]:
    backend, start, depth = name.split("/")
    with BACKENDS[backend]() as saver:
        if start == "memory":
            return {
                "backend": backend,
                "depth": int(depth),
                "held": held_by_arms(saver, int(depth)),
            }
        cell = Cell(backend, STARTS[STARTS.index(start)], int(depth))
        return measure(saver, cell, rounds).as_dict()


def _keep(backend: str, found: list[dict[str, Any]]) -> None:
    text = json.dumps(_rounded(found), indent=1)
    (RESULTS / f"{backend}.json").write_text(text + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Seconds to the microsecond: more is noise in the diff."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
