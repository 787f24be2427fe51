"""Thread state over HTTP: a router, and what its errors become (extra `fastapi`)."""

from __future__ import annotations

try:
    import fastapi as _fastapi  # noqa: F401 - asked for here, so that the error names the extra
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'deerflow_saver.contrib.fastapi needs FastAPI: pip install "deerflow-saver[fastapi]"',
        name=error.name,
    ) from error

from deerflow_saver.contrib.fastapi.handlers import install_error_handlers
from deerflow_saver.contrib.fastapi.router import state_router

__all__ = ["install_error_handlers", "state_router"]
