"""The defects that live in the savers."""

from __future__ import annotations

from deerflow_saver.fixes import (
    alist_holds_lock,
    failed_writes_kept_checkpoint,
    parallel_write_order,
    parent_sorts_after_child,
    postgres_first_page,
    postgres_plain_seed,
    prune_of_delta_thread,
    rows_without_task_path,
    shallow_saver,
    sqlite_bound_variables,
    star_args_wrapper,
)
from deerflow_saver.fixes._fix import Defect

__all__ = ["SAVER_DEFECTS"]

SAVER_DEFECTS: tuple[Defect, ...] = (
    parallel_write_order.DEFECT,
    postgres_first_page.DEFECT,
    parent_sorts_after_child.DEFECT,
    sqlite_bound_variables.DEFECT,
    postgres_plain_seed.DEFECT,
    alist_holds_lock.DEFECT,
    failed_writes_kept_checkpoint.DEFECT,
    star_args_wrapper.DEFECT,
    rows_without_task_path.DEFECT,
    shallow_saver.DEFECT,
    prune_of_delta_thread.DEFECT,
)
