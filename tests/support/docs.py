"""Find the ```python blocks of a Markdown file and run them as one program."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from types import CodeType, ModuleType

NO_RUN = "<!-- no-run -->"
_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^`]*)$")


@dataclass(frozen=True, slots=True)
class Block:
    """One code block; `line` is where its first line of code stands in the file."""

    source: str
    line: int
    run: bool

    def compile(self, path: Path) -> CodeType:
        """Compile with the file's own line numbers and with `await` allowed at top level."""
        padded = "\n" * (self.line - 1) + self.source
        code: CodeType = compile(padded, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return code


def python_blocks(text: str) -> Iterator[Block]:
    """The blocks whose language is `python`, in order."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        number += 1
        if opening is None:
            continue
        start = number
        while number < len(lines) and lines[number].strip() != opening["fence"]:
            number += 1
        if opening["info"].split()[:1] == ["python"]:
            source = dedent("\n".join(lines[start:number])) + "\n"
            yield Block(source, start + 1, run=not _is_marked(lines[: start - 1]))
        number += 1


def _is_marked(before: list[str]) -> bool:
    """Whether the last line that says anything is the no-run mark."""
    said = [line.strip() for line in before[-2:] if line.strip()]
    return said[-1:] == [NO_RUN]


def run_blocks(path: Path) -> None:
    """Run one file's blocks in one namespace and one event loop; compile those marked no-run."""
    # A real module, so that annotations and serializers find the classes a block defines.
    module = ModuleType(f"docs_{path.stem.replace('-', '_')}")
    sys.modules[module.__name__] = module
    try:
        with asyncio.Runner() as runner:
            for block in python_blocks(path.read_text(encoding="utf-8")):
                code = block.compile(path)
                if block.run:
                    _execute(code, module, runner)
    finally:
        del sys.modules[module.__name__]


def _execute(code: CodeType, module: ModuleType, runner: asyncio.Runner) -> None:
    result = eval(code, module.__dict__)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(result)
