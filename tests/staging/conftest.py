from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def compiled_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that these tests start share what they compile, also between runs."""
    assert request.config.cache is not None
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(request.config.cache.mkdir("staging-pycache")))
