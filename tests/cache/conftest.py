from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support.savers import SYNC_CASES, Storage

SQLITE = next(case for case in SYNC_CASES if case.name == "sqlite")


@pytest.fixture
def savers(storage: Storage) -> Iterator[list[Any]]:
    """Three savers on one SQLite file, for as many workers."""
    with ExitStack() as stack:
        yield [stack.enter_context(SQLITE.open(storage)) for _ in range(3)]
