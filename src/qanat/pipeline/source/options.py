"""Options of the format `qanat` for reading streams.

| option | is |
|---|---|
| `url` | the server, or replicas of one region with commas between them; by default `QANAT_URL`, else this machine |
| `stream` | the stream's name; several with commas between them. `load("orders")` says the same, and `load("qanat://host:7411/orders")` the server as well |
| `pattern` | instead of `stream`: a regular expression, as Python has them; every stream whose whole name fits is read, and one that is made later from its first event on |
| `start` | `earliest` (default), `latest`, a sequence number, a time (`2026-11-16T12:00:00Z`), or a JSON object with one of these per stream; a streaming query uses it once, later its checkpoint counts |
| `end` | the last sequence number, or a time before which all lie, or a JSON object with one of these, or `latest`, for each stream; for batches alone |
| `pushdown` | `none` (default); `once`: conditions of the query on `stream`, `seq` and `time` decide what is read, for batches that are used once |
| `where` | only events that pass this filter; the server applies it. Tombstones and GC events always pass |
| `maxRowsPerTrigger`, `maxBytesPerTrigger` | how many events, or bytes of log, one micro-batch takes at most, all streams together |
| `partitions` | tasks that read at once; by default as many as the driver's machine has cores |
| `losses` | `stop` (default): if the stream no longer keeps something that was not read, the query stops; `accept`: a tombstone with the attribute `@lost` stands in its place; `skip`: it is passed over, and the log says what |
| `patience` | seconds, as `30` or `2m`, that each of Spark's processes waits for servers that are away; by default 30 |
| `missing` | `stop` (default): a stream that is not there stops the query; `wait`: it counts as empty until it is made |
| `release` | `none` (default); `collect`: what a checkpoint covers is collected from the stream |

Those of Spark's Kafka source stand in `kafka_options`.
"""  # noqa: E501

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from qanat.events.errors import LocalError
from qanat.pipeline.source.kafka_options import translated
from qanat.runtime.patience import PATIENCE_S, patience_s
from qanat.runtime.url import parse_urls

if TYPE_CHECKING:
    from qanat.client.subscription import Where

_KNOWN = (
    "url",
    "stream",
    "pattern",
    "start",
    "end",
    "where",
    "pushdown",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "partitions",
    "losses",
    "patience",
    "missing",
    "release",
)


SINK_ALONE = ("name", "version", "staging", "durability")
"""Options for writing that reading has not."""
LOSSES = ("stop", "accept", "skip")


class BadOption(LocalError):
    """An option of the format that does not exist, or has a value that cannot be."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """As Spark's processes get them: everything that a reader is made of."""

    url: str
    streams: tuple[str, ...]
    """Empty if there is a pattern."""
    pattern: str
    starts: "dict[str, Where]"
    """Of the streams that were named with it; `start` is of the others."""
    start: "Where"
    ends: "dict[str, Where]"
    end: "Where"
    """A number or a time; `latest` is all that there is."""
    where: str
    pushdown: bool
    rows: int
    bytes: int
    partitions: int
    losses: str
    """`stop`, `accept` or `skip`."""
    patience: float
    wait_for_streams: bool
    release: bool

    @classmethod
    def read(cls, options: Mapping[str, str]) -> "StreamOptions":
        """From what was given to Spark, in whose options large and small letters are alike."""
        given = read_options(options, _KNOWN)
        streams = tuple(name.strip() for name in given["stream"].split(",") if name.strip())
        if streams and given["pattern"]:
            raise BadOption(
                "options 'stream' and 'pattern' both say which streams are read: give one of them"
            )
        if not streams and not given["pattern"]:
            raise BadOption(
                "option 'stream' says which stream is read; several stand with commas between them. A table"
                " that was made with columns of its own has no options: make it without them, as CREATE TABLE"
                " t USING qanat OPTIONS (stream 'orders')"
            )
        if len(set(streams)) < len(streams):
            raise BadOption(f"option 'stream' names a stream twice: {given['stream']!r}")
        _check_pattern(given["pattern"])
        starts, start = _places("start", given["start"] or "earliest", streams)
        ends, end = _places("end", given["end"] or "latest", streams)
        return cls(
            url=url_of(given["url"]),
            streams=tuple(sorted(streams)),
            pattern=given["pattern"],
            starts=starts,
            start=start,
            ends=ends,
            end=end,
            where=_where(given["where"]),
            pushdown=word("pushdown", given["pushdown"], ("none", "once")) == "once",
            rows=count("maxRowsPerTrigger", given["maxRowsPerTrigger"]),
            bytes=count("maxBytesPerTrigger", given["maxBytesPerTrigger"]),
            partitions=count("partitions", given["partitions"]) or os.cpu_count() or 1,
            losses=word("losses", given["losses"], LOSSES),
            patience=patience_of(given["patience"]),
            wait_for_streams=word("missing", given["missing"], ("stop", "wait")) == "wait",
            release=word("release", given["release"], ("none", "collect")) == "collect",
        )

    def reads(self, stream: str) -> bool:
        """Whether a stream of this name is asked for."""
        return stream in self.streams or bool(self.pattern and re.fullmatch(self.pattern, stream))

    def start_of(self, stream: str) -> "Where":
        return self.starts.get(stream, self.start)

    def end_of(self, stream: str) -> "Where":
        return self.ends.get(stream, self.end)

    @property
    def until_the_end(self) -> bool:
        """Whether no end was given."""
        return self.end == "latest" and not self.ends


def without_sink_options(options: Mapping[str, str]) -> dict[str, str]:
    """Of those that a table was made with; they are given once, for both."""
    return {name: value for name, value in options.items() if name.lower() not in SINK_ALONE}


def read_options(options: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """Every known option, with an empty text for those that are not given; an unknown one is refused."""
    given = translated(options)
    found = {name: given.pop(name.lower(), "").strip() for name in known}
    for name in given:
        raise BadOption(f"the format qanat has no option {name!r} here; there are {', '.join(known)}")
    return found


def url_of(text: str) -> str:
    url = text or os.environ.get("QANAT_URL", "")
    if not url:
        from qanat.client.client import DEFAULT_URL

        return DEFAULT_URL
    parse_urls(url)
    return url


def count(name: str, text: str) -> int:
    """A number of at least 1; 0 if none is given."""
    if not text:
        return 0
    if not text.isdecimal() or not int(text):
        raise BadOption(f"option {name!r} is a number of at least 1, not {text!r}")
    return int(text)


def patience_of(text: str) -> float:
    """Seconds; as everywhere if none are given."""
    if not text:
        return PATIENCE_S
    try:
        return patience_s(text)
    except LocalError as error:
        raise BadOption(f"option 'patience': {error}") from None


def word(name: str, text: str, words: tuple[str, ...]) -> str:
    """One of some words, the first by default."""
    if text and text.lower() not in words:
        raise BadOption(f"option {name!r} is {' or '.join(filter(None, words))}, not {text!r}")
    return text.lower() or words[0]


def _where(text: str) -> str:
    from qanat.events.filters import FilterError, parse

    if text and parse(text).contextual:
        raise FilterError(
            "option 'where' cannot use predicates about a GC event (same key, keep last, older than)"
        )
    return text


def _check_pattern(text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(f"option 'pattern' is no regular expression: {error}: {text!r}") from None


def _places(name: str, text: str, streams: tuple[str, ...]) -> "tuple[dict[str, Where], Where]":
    """Of each stream that is named, and of the others."""
    rest: Where = "earliest" if name == "start" else "latest"
    if not text.startswith("{"):
        return {}, _place(name, text)
    try:
        given = json.loads(text)
    except ValueError as error:
        raise BadOption(f"option {name!r} looks like JSON and is not: {error}") from None
    for stream in set(given) ^ set(streams) if streams else ():
        where = "begins" if name == "start" else "ends"
        raise BadOption(
            f"option {name!r} must say where each of {', '.join(streams)} {where}, and of no other:"
            f" {stream!r}"
        )
    return {stream: _place(name, str(place)) for stream, place in given.items()}, rest


def _place(name: str, text: str) -> "Where":
    words = ("earliest", "latest") if name == "start" else ("latest",)
    if text.lower() in words:
        return text.lower()
    if text.isdecimal() and (int(text) or name == "end"):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(
            f"option {name!r} is {', '.join(words)}, a sequence number or a time like 2026-11-16T12:00:00Z,"
            f" not {text!r}"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
