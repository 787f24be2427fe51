"""Known defects of LangGraph's releases: which of them are here, and runtime fixes for some.

```python
from deerflow_saver import fixes

for row in fixes.status():
    print(row.slug, row.presence, row.evidence)
fixes.apply()
```

Nothing is patched at import. Patches are process-wide: they change what every graph and
saver of the process does. `CachedHistorySaver` applies those its saver needs, unless told
otherwise by `fixes="off"` or the environment variable `DEERFLOW_SAVER_FIXES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from deerflow_saver.fixes import (
    _choice,
    bulk_updates_lost,
    cached_node_writes,
    cancelled_run_saves,
    clock_behind,
    command_as_first_input,
    command_saved_twice,
    delta_on_union,
    delta_read_as_plain,
    exit_order,
    finished_task_update,
    fork_replays_branch,
    fresh_thread_update,
    half_finished_step,
    left_checkpoint_writes,
    memory_history_folding,
    never_written_channel,
    overwrite_first_write,
    overwrite_in_command,
    overwrite_json_form,
    overwrite_with_sibling,
    saves_wait_for_ever,
    subgraph_hydration,
    threads_forked_before,
    torn_update,
    two_writers,
    unstable_message_ids,
    update_never_snapshots,
)
from deerflow_saver.fixes._choice import Fixes, chosen, needed
from deerflow_saver.fixes._fix import (
    Advice,
    Defect,
    Finding,
    InWrapper,
    Patch,
    Presence,
    RefusedByGuard,
    Row,
)
from deerflow_saver.fixes._registry import Registry
from deerflow_saver.fixes._saver_defects import SAVER_DEFECTS

__all__ = [
    "DEFECTS", "Advice", "Defect", "Finding", "Fixes", "InWrapper", "Patch", "Presence",
    "RefusedByGuard", "Row", "applied", "apply", "disabled", "for_saver", "is_on", "revert",
    "selected", "status",
]  # fmt: skip

DEFECTS: tuple[Defect, ...] = (
    memory_history_folding.DEFECT,
    overwrite_first_write.DEFECT,
    overwrite_json_form.DEFECT,
    overwrite_with_sibling.DEFECT,
    overwrite_in_command.DEFECT,
    unstable_message_ids.DEFECT,
    fork_replays_branch.DEFECT,
    left_checkpoint_writes.DEFECT,
    finished_task_update.DEFECT,
    bulk_updates_lost.DEFECT,
    half_finished_step.DEFECT,
    two_writers.DEFECT,
    cancelled_run_saves.DEFECT,
    saves_wait_for_ever.DEFECT,
    clock_behind.DEFECT,
    exit_order.DEFECT,
    cached_node_writes.DEFECT,
    command_saved_twice.DEFECT,
    command_as_first_input.DEFECT,
    torn_update.DEFECT,
    subgraph_hydration.DEFECT,
    fresh_thread_update.DEFECT,
    update_never_snapshots.DEFECT,
    never_written_channel.DEFECT,
    delta_read_as_plain.DEFECT,
    delta_on_union.DEFECT,
    threads_forked_before.DEFECT,
    *SAVER_DEFECTS,
)
"""Every known defect."""

_registry = Registry(DEFECTS)


def apply(names: Iterable[str] | None = None) -> tuple[Row, ...]:
    """Put runtime fixes in place, where their defect is seen.

    Each defect is probed, patched if it is present and there is a patch, and probed again;
    a patch that did not help is taken back. Applying twice changes nothing.

    Args:
        names: slugs; None for all.

    Returns:
        One row for each named defect.

    Raises:
        ValueError: an unknown slug, here or in `DEERFLOW_SAVER_FIXES`.

    """
    return _registry.apply(names)


def revert(names: Iterable[str] | None = None) -> tuple[Row, ...]:
    """Take runtime fixes back: the very functions that were there are there again.

    Args:
        names: slugs; None for all.

    Returns:
        One row for each named defect; FAILED where somebody else has wrapped the patched
        function meanwhile, which is left as it is.

    Raises:
        ValueError: an unknown slug.

    """
    return _registry.revert(names)


def status(names: Iterable[str] | None = None) -> tuple[Row, ...]:
    """What the probes see now. Changes nothing.

    Args:
        names: slugs; None for all.

    Raises:
        ValueError: an unknown slug, here or in `DEERFLOW_SAVER_FIXES`.

    """
    return _registry.status(names)


def applied() -> frozenset[str]:
    """The slugs whose patch is in place in this process; nothing is probed."""
    return _registry.applied()


def disabled(*names: str) -> AbstractContextManager[None]:
    """Take fixes back for a block of code, in the whole process; all of them without names.

    A fix that is asked for meanwhile is applied when the block ends. Blocks may overlap.

    Raises:
        ValueError: an unknown slug.

    """
    return _registry.disabled(*names)


def selected(names: Iterable[str] | None = None) -> frozenset[str]:
    """The slugs of `names` (None: all) that `DEERFLOW_SAVER_FIXES` allows.

    Raises:
        ValueError: an unknown slug, here or in `DEERFLOW_SAVER_FIXES`.

    """
    return _registry.selected(names)


def is_on(slug: str, fixes: Fixes) -> bool:
    """Whether a wrapper with this `fixes` argument is to have the fix `slug`."""
    return _choice.is_on(_registry, slug, fixes)


def for_saver(inner: Any, fixes: Fixes, *, guard: str) -> frozenset[str]:
    """Apply the patches a wrapper round `inner` needs, and say which fixes it is to have.

    With `"auto"`, patches of another saver's code are left out, and those that the guard
    makes unnecessary. What has been tried before in this process is not probed again.

    Raises:
        InvalidConfigError: `fixes` is neither `"auto"`, nor `"off"`, nor known slugs.

    """
    on = chosen(_registry, fixes)
    _registry.ensure(needed(DEFECTS, on, inner, guard) if fixes == "auto" else on)
    return on
