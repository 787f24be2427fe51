"""How much memory a process has had."""

from __future__ import annotations

import re
import sys
from pathlib import Path

__all__ = ["peak_rss_bytes"]

_STATUS = Path("/proc/self/status")
_HIGH_WATER = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def peak_rss_bytes() -> int | None:
    """The most memory this process has had; None where the system does not tell.

    Linux carries `ru_maxrss` over from the process that started this one, so the mark of this
    program's own memory is read there.
    """
    if _STATUS.exists():
        found = _HIGH_WATER.search(_STATUS.read_text(encoding="ascii", errors="replace"))
        if found:
            return int(found[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
