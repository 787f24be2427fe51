"""Database addresses: what kind they name, and how to show them without their password."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

__all__ = ["Address", "address", "scrubbed", "shown"]

_KEYWORD = re.compile(r"(?i)\b(?:\w*password|passwd|passfile)=('[^']*'|[^\s&]*)")
_USER = re.compile(r"//[^/?#@:]*:([^/?#]*)@")
_LIBPQ = re.compile(r"\b(host|hostaddr|port|dbname|user|password|service)=")
_PORT = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:\d*)?")


class Address(NamedTuple):
    """A database, as it may be opened and as it may be shown."""

    kind: str
    """`sqlite` or `postgres`."""
    target: str
    """A file's path, or a connection string."""
    shown: str


def address(text: str) -> Address:
    """What `--db` names: a path, `sqlite:///path`, `postgresql://...` or `host=... dbname=...`.

    Raises:
        ValueError: something else, or a password that is not escaped.

    """
    scheme = urlsplit(text).scheme if "://" in text else ""
    if scheme in {"postgres", "postgresql"}:
        _refuse_unescaped(text)
        return Address("postgres", text, shown(text))
    if scheme == "sqlite":
        path = unquote(urlsplit(text).path.removeprefix("/"))
        return Address("sqlite", path, path)
    if scheme:
        message = (
            "--db takes postgresql://..., sqlite:///path or the path of a SQLite file, "
            f"not a {scheme}:// address"
        )
        raise ValueError(message)
    kind = "postgres" if _LIBPQ.search(text) else "sqlite"
    return Address(kind, text, shown(text))


def shown(text: str) -> str:
    """A connection string with stars in its passwords' places."""
    without = _USER.sub(lambda found: found.group().replace(f":{found[1]}@", ":***@"), text)
    return _KEYWORD.sub(lambda found: found.group().partition("=")[0] + "=***", without)


def scrubbed(message: str, source: str) -> str:
    """A message, such as a driver's, without the passwords of the connection string `source`."""
    if source:
        message = message.replace(source, shown(source))
    secrets = {form for secret in _secrets(source) for form in (secret, unquote(secret))}
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, "***")
    return message


def _secrets(text: str) -> list[str]:
    """The passwords of a connection string, as they are written there."""
    found = [*_KEYWORD.findall(text), *_USER.findall(text)]
    return [secret.strip("'") for secret in found if secret.strip("'")]


def _refuse_unescaped(text: str) -> None:
    """A password with a bare `/` or `?` is taken for host and port, and shown in errors."""
    authority = re.split(r"[/?#]", text.partition("://")[2], maxsplit=1)[0]
    hosts = authority.rpartition("@")[2].split(",")
    if not all(_PORT.fullmatch(host) for host in hosts):
        message = "the address cannot be read: percent-encode special characters in its password"
        raise ValueError(message)
