"""What pip resolved on the day of a past LangGraph release, as requirement lines.

`python tests/support/releases.py 1.2.0` prints them; `make test-release` builds from them.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "src" / "deerflow_saver" / "staging" / "releases.toml"


def releases() -> dict[str, dict[str, object]]:
    """Every release of the table, with the versions of its day by distribution."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def pins(release: str) -> list[str]:
    """The pinned requirements of a release.

    Raises:
        KeyError: The table has no such release.
    """
    day = releases()[release]
    others = [f"{name}=={version}" for name, version in day.items() if name != "uploaded"]
    return [f"langgraph=={release}", *others]


def main(arguments: list[str]) -> int:
    """Print the requirements; 2 for a release that is not in the table."""
    known = releases()
    if len(arguments) != 1 or arguments[0] not in known:
        wanted = " ".join(arguments) or "no release"
        sys.stderr.write(f"{wanted}: {TABLE.relative_to(ROOT)} has {', '.join(known)}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in pins(arguments[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
