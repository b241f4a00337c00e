"""One URL per log, whatever datastore it is of; the module that can read it is imported only when it is asked
for.

| URL | log |
|---|---|
| `mariadb://user@host:3306/database`, `mysql://…` | the binary log |
| `postgresql://user@host:5432/database` | the write-ahead log, decoded by `pgoutput` |
| `rocksdb:///folder` | the write-ahead log files of a RocksDB |
| `file:///folder/pattern`, `hdfs://host:8020/folder/pattern` | append-only record files |
| `qanat://host:7411/stream` | a stream |

A password is best left out and set as the environment's `QANAT_PASSWORD`: others see a process's words
(`user:password@host` is read, too).

Options stand behind a question mark (`?dataset=shop&tables=shop.prices`), or are given as arguments, which
have precedence. A module that reads logs has `open(url, options) -> LogReader` and `check(url, options) ->
list[Finding]`, and may name its options in `OPTIONS`, a dictionary of name and meaning; then others are
refused.
"""

import difflib
import importlib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pyarrow as pa

from qanat.capture.errors import BadLogUrl
from qanat.capture.reader import LogReader
from qanat.capture.sharding import Sharding
from qanat.capture.snapshot import Chunks
from qanat.capture.split import split, warning
from qanat.events.passwords import is_scheme, without_password

_MODULES: dict[str, tuple[str, str]] = {
    "mariadb": ("qanat.capture.mariadb.reader", "qanat.capture.mariadb.check"),
    "mysql": ("qanat.capture.mariadb.reader", "qanat.capture.mariadb.check"),
    "postgresql": ("qanat.capture.postgres.reader", "qanat.capture.postgres.check"),
    "postgres": ("qanat.capture.postgres.reader", "qanat.capture.postgres.check"),
    "rocksdb": ("qanat.capture.rocksdb.reader", "qanat.capture.rocksdb.check"),
    "file": ("qanat.capture.files.reader", "qanat.capture.files.check"),
    "hdfs": ("qanat.capture.files.reader", "qanat.capture.files.check"),
    "qanat": ("qanat.capture.stream", "qanat.capture.stream"),
}
"""Scheme → where `open` is, and where `check` is."""

SHAPES = {
    "mariadb": "mariadb://user@host:3306/database",
    "mysql": "mysql://user@host:3306/database",
    "postgresql": "postgresql://user@host:5432/database",
    "postgres": "postgres://user@host:5432/database",
    "rocksdb": "rocksdb:///folder",
    "file": "file:///folder/pattern",
    "hdfs": "hdfs://host:8020/folder/pattern",
    "qanat": "qanat://host:7411/stream",
}


class SnapshotChunks(Chunks, Protocol):
    """Chunks of a datastore that can list its tables."""

    def tables(self, database: str = "") -> tuple[str, ...]:
        """Paths of the tables whose rows can be read."""


class Finding(NamedTuple):
    """One thing that was looked at in a datastore's set-up; `fix` is the statement or the setting that puts
    it right."""

    ok: bool
    what: str
    fix: str = ""
    needed: bool = True
    """Whether the log cannot be read without; else it is advice, and `what` says what it is good for."""

    @property
    def wrong(self) -> bool:
        return self.needed and not self.ok


@dataclass(frozen=True, slots=True)
class LogUrl:
    """The parts of a log's URL, decoded. Printed without the password."""

    scheme: str
    host: str = ""
    port: int | None = None
    path: str = ""
    """With its first slash: a file's path, or `/database`."""
    user: str = ""
    password: str = field(default="", repr=False)
    options: Mapping[str, str] = field(default_factory=dict)
    hosts: str = ""
    """As it is written, for those who take several addresses with commas between them; `host` is then the
    first."""

    @property
    def name(self) -> str:
        """The path without its slash: a database, a stream."""
        return self.path.removeprefix("/")

    def __str__(self) -> str:
        user = f"{quote(self.user)}@" if self.user else ""
        return f"{self.scheme}://{user}{self.hosts}{quote(self.path)}"


def with_password(text: str) -> str:
    """A URL that names a user and no password, with the one of the environment's `QANAT_PASSWORD`."""
    password = os.environ.get("QANAT_PASSWORD", "")
    scheme, separator, rest = text.partition("://")
    user, at, hosts = rest.partition("@")
    if not (password and separator and at) or ":" in user or "/" in user:
        return text
    return f"{scheme}://{user}:{quote(password, safe='')}@{hosts}"


def parse_log_url(text: str) -> LogUrl:
    """The parts; raises `BadLogUrl` with a sentence in which no password stands."""
    shown = without_password(text)
    scheme, separator, _ = text.partition("://")
    scheme = scheme.lower()
    if not separator or not is_scheme(scheme):
        raise BadLogUrl(f"{shown!r} is no URL of a log; write for instance {SHAPES['mariadb']}")
    if scheme not in _MODULES:
        near = difflib.get_close_matches(scheme, _MODULES, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}://?" if near else f"there are {', '.join(sorted(_MODULES))}"
        raise BadLogUrl(f"{shown!r}: no log is read by the scheme {scheme!r}; {hint}")
    try:
        parts = urlsplit(text)
    except ValueError:  # its own words quote what may be a part of the password
        raise BadLogUrl(f"the host in {shown!r} cannot be read; write {SHAPES[scheme]}") from None
    if parts.fragment:
        raise BadLogUrl(
            f"{shown!r}: what follows a # is no part of a log's URL; write %23 for a # in a name or password"
        )
    if "@" in text and "@" not in parts.netloc and parts.hostname:
        raise BadLogUrl(
            f"{shown!r}: a / ? # or @ in a user or password is written as %2F, %3F, %23 or %40; write"
            f" {SHAPES[scheme]}"
        )
    login, at, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":") if at else ("", "", "")
    host, port = _address(hosts.partition(",")[0], shown, scheme)
    if not host and scheme not in ("rocksdb", "file"):
        raise BadLogUrl(f"{shown!r}: there is no host in it; write {SHAPES[scheme]}")
    if host and scheme in ("rocksdb", "file"):
        raise BadLogUrl(
            f"{shown!r}: a folder of this machine has three slashes before it; write {SHAPES[scheme]}"
        )
    return LogUrl(
        scheme,
        host,
        port,
        unquote(parts.path),
        unquote(user),
        unquote(password),
        _query(parts.query, shown),
        hosts,
    )


def _address(text: str, shown: str, scheme: str) -> tuple[str, int | None]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise BadLogUrl(
                f"{shown!r}: an IPv6 address is written in brackets, as [::1]; write {SHAPES[scheme]}"
            )
        port = rest[1:]
    else:
        host, _, port = text.partition(":")
    if not port:
        return host, None
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        # Not quoted: with a user and no host, or with a `/` in it, it is a password.
        raise BadLogUrl(f"{shown!r}: its port is not a number from 1 to 65535; write {SHAPES[scheme]}")
    return host, int(port)


def _query(text: str, shown: str) -> dict[str, str]:
    pairs = parse_qsl(text, keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise BadLogUrl(f"{shown!r}: an option stands in it twice")
    return options


def open_reader(url: str | LogUrl, **options: Any) -> LogReader:
    """A reader of the log that the URL names, not yet sought to a position: it begins at `latest` unless told
    otherwise."""
    parts, module, given = _find(url, 0, options)
    pa.array(
        []
    )  # Arrow looks for pandas at its first array, which takes up to a second: not at the first update
    asked = str({**parts.options, **options}.get("split", ""))
    return split(cast(LogReader, module.open(parts, given)), asked)


def split_warning(url: str, sharding: Sharding) -> str:
    """What a person should know before this log is read by these shards; empty if there is nothing."""
    parts = parse_log_url(url)
    known = getattr(importlib.import_module(_MODULES[parts.scheme][0]), "OPTIONS", {})
    return warning(parts.options, known, sharding)


def check(url: str | LogUrl, **options: Any) -> list[Finding]:
    """What was looked at in the datastore's set-up, and what to change so that its log can be read."""
    parts, module, given = _find(url, 1, options)
    return cast(list[Finding], module.check(parts, given))


def open_chunks(url: str | LogUrl, **options: Any) -> SnapshotChunks:
    """The rows that are in the datastore's tables now, for `snapshot`; refused where the log is all there
    is."""
    parts, _, given = _find(url, 0, options)
    package = _MODULES[parts.scheme][0].rpartition(".")[0]
    try:
        module = importlib.import_module(f"{package}.snapshot")
        opened = module.open_chunks
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("qanat."):
            raise
        raise BadLogUrl(
            f"{parts}: a snapshot is of tables, and here is a log alone; read it from earliest"
        ) from None
    return cast(SnapshotChunks, opened(parts, given))


def has_tables(url: str) -> bool:
    """Whether there is more than a log, so that `open_chunks` has rows to give."""
    package = _MODULES[parse_log_url(url).scheme][0].rpartition(".")[0]
    return package != __package__ and importlib.util.find_spec(f"{package}.snapshot") is not None


def _find(
    url: str | LogUrl, part: int, options: Mapping[str, Any]
) -> tuple[LogUrl, ModuleType, dict[str, Any]]:
    parts = parse_log_url(url) if isinstance(url, str) else url
    names = _MODULES[parts.scheme]
    module = importlib.import_module(names[part])
    given = {**parts.options, **options}
    known = getattr(importlib.import_module(names[0]), "OPTIONS", None)
    if known is not None:
        for name in given.keys() - known.keys():
            raise BadLogUrl(
                f"{parts}: there is no option {name!r}; there are {', '.join(sorted(known)) or 'none'}"
            )
    given.pop("split", None)  # what becomes of its updates is no reader's affair
    return parts, module, given
