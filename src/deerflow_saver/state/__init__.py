"""Thread state in either channel mode: schemas, reducers and lineage."""

from __future__ import annotations

from deerflow_saver.state.messages import merge_message_writes

__all__ = ["merge_message_writes"]
