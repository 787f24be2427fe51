"""`doctor --watch`: live rates of a running service, from its Prometheus endpoint."""

from __future__ import annotations

import json
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPException
from itertools import count, islice
from urllib.error import URLError
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import Request, urlopen

from deerflow_saver.cli.errors import UsageError, needs
from deerflow_saver.doctor.urls import scrubbed, shown
from deerflow_saver.doctor.watching import NoMetricsError, Rates, Sample, rates, sample_of

__all__ = ["watch"]

_TIMEOUT = 10.0
_ROWS_PER_HEADER = 20
_COLUMNS = (
    "time", "reads/s", "hits/s", "composed/s", "walks/s", "hit %", "refused/s", "observed/s",
    "evicted/s", "shared/s", "outages", "bytes", "bytes/s", "entries",
)  # fmt: skip
_WIDTHS = (8, 9, 9, 10, 9, 6, 9, 10, 9, 9, 7, 14, 12, 8)
_FAILURES = (URLError, HTTPException, OSError, NoMetricsError)  # a time-out is an OSError


def watch(url: str, *, interval: float, times: int | None, as_json: bool) -> int:
    """Print what happened in each interval, `times` times or until interrupted.

    Raises:
        UsageError: the URL cannot be read at all, or shows none of this package's metrics.

    """
    needs("prometheus_client.parser", "prometheus")
    _request(url)  # a wrong address is told before anything else
    if interval <= 0 or (times is not None and times <= 0):
        message = "--interval and --count must be greater than 0"
        raise UsageError(message)
    try:
        first = _look(url)
    except _FAILURES as error:
        message = scrubbed(f"{url}: {error}", url)
        raise UsageError(message) from error
    print(f"doctor: watching {shown(url)}", file=sys.stderr, flush=True)
    show = _as_json if as_json else _Table()
    for found in islice(_changes(url, first, interval), times):
        show(found)
    return 0


def _request(url: str) -> Request:
    """How the endpoint is asked, with the user and password of its URL if it names any."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        message = f"--watch takes the http(s) URL of a Prometheus endpoint, got {shown(url)!r}"
        raise UsageError(message)
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    request = Request(plain, headers={"Accept": "text/plain; version=0.0.4"})  # noqa: S310 - http(s)
    if parts.username is not None:
        who = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        basic = f"Basic {b64encode(who.encode()).decode()}"
        request.add_unredirected_header("Authorization", basic)
    return request


def _look(url: str) -> Sample:
    # A request counts its redirects for as long as it lives, and a mounted app is behind one
    with urlopen(_request(url), timeout=_TIMEOUT) as answer:  # noqa: S310 - as above
        text = answer.read().decode("utf-8", "replace")
    return sample_of(text, time.monotonic())


def _changes(url: str, before: Sample, interval: float) -> Iterator[Rates | str]:
    """Rates, or why there are none: a service that restarts does not end the watch."""
    while True:
        time.sleep(interval)
        try:
            after = _look(url)
        except _FAILURES as error:
            yield str(error)
            continue
        yield rates(before, after)
        before = after


def _as_json(found: Rates | str) -> None:
    data = {"error": found} if isinstance(found, str) else found.as_data()
    print(json.dumps(data), flush=True)


class _Table:
    """Rows under a header that comes again now and then."""

    def __init__(self) -> None:
        self._rows = count()

    def __call__(self, found: Rates | str) -> None:
        if next(self._rows) % _ROWS_PER_HEADER == 0:
            print(_row(_COLUMNS))
        at = time.strftime("%H:%M:%S")
        print(f"{at:>8}  {found}" if isinstance(found, str) else _row((at, *_cells(found))))
        if isinstance(found, Rates) and found.restarted:
            print(f"{at:>8}  the service began counting anew")
        sys.stdout.flush()


def _cells(found: Rates) -> Iterator[str]:
    for number in (found.reads, found.hits, found.composed, found.walks):
        yield f"{found.per_second(number):,.1f}"
    yield "-" if found.hit_ratio is None else f"{found.hit_ratio:.1%}"
    for number in (found.refused, found.observed, found.evictions, found.shared):
        yield f"{found.per_second(number):,.1f}"
    yield f"{found.outages:,}"
    yield "-" if found.bytes is None else f"{found.bytes:,}"
    yield "-" if found.bytes_grown is None else f"{found.per_second(found.bytes_grown):+,.0f}"
    yield "-" if found.entries is None else f"{found.entries:,}"


def _row(cells: tuple[str, ...]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
