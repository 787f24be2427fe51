"""What every command does alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from deerflow_saver import fixes
from deerflow_saver.cli.__main__ import main


@pytest.mark.parametrize("command", [["fixes", "list"], ["doctor"]])
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "while it prints"])
def test_output_that_nobody_reads_ends_a_command_quietly(
    command: list[str], unbuffered: str
) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "deerflow_saver.cli", *command],
            stdout=writes,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    finally:
        os.close(writes)
    assert (ended.returncode, ended.stderr.decode()) == (141, "")


def test_the_list_of_defects_names_remedies_as_the_status_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fixes", "list", "--json"]) == 0
    listed = {entry["slug"]: entry["remedy"] for entry in json.loads(capsys.readouterr().out)}
    assert listed == {row.slug: row.remedy for row in fixes.status()}
    assert main(["fixes", "list"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {defect.kind}: {defect.remedy.text}" in text for defect in fixes.DEFECTS)
