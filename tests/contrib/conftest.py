"""A running service per saver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contrib.service import SERVED, Service, serving
from support.savers import Storage


@pytest.fixture(params=SERVED, ids=str)
def service(request: pytest.FixtureRequest, storage: Storage) -> Iterator[Service]:
    """A service in delta mode, over each saver."""
    with serving(Service(request.param, storage)) as running:
        yield running
