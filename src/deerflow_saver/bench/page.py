"""Put tables between the markers of a Markdown page."""

from __future__ import annotations

from pathlib import Path

__all__ = ["BEGIN", "END", "write_between"]

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def write_between(page: Path, text: str) -> None:
    """Replace what stands between the page's markers; all else stays.

    Raises:
        ValueError: the page does not have both markers, in that order.

    """
    whole = page.read_text(encoding="utf-8")
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} lacks the markers {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}", encoding="utf-8")
