"""All that a person may want to know of one stream: how it is kept, what is kept and collected of it, who
reads and who publishes."""

from itertools import islice
from typing import Any

import msgspec

from qanat.log.outlook import outlook, spans
from qanat.log.said import shown
from qanat.serving.served_stream import ServedStream

SPANS = 500
"""Spans of kept and collected numbers in one description, some 10 bytes each; the next one goes on behind
them."""
_LISTED = 100
"""Subscribers and sources that are named; the others are counted."""
_NAME = 200
"""Characters of a source's name."""


def describe(stream: ServedStream, start: int) -> dict[str, Any]:
    """Costs some milliseconds at most: of segments that have tombstones, 4 MiB are looked through."""
    log, readable = stream.log, stream.readable
    found = spans(log, start, readable, SPANS)
    stats = log.stats()
    return {
        "stream": stream.name,
        "kept_as": shown(log.config),
        "readable": readable,
        "bytes": stats.bytes,
        "segments": stats.segments,
        "born_us": log.born_us,
        "newest_us": log.newest_us,
        "spans": msgspec.to_builtins(found.spans),
        "spans_upto": found.upto,
        "spans_whole": found.whole,
        "collection": msgspec.to_builtins(outlook(log)),
        "sources": stats.sources,
        "newest_sources": _sources(stream),
        "listeners": _listeners(stream),
    }


def _sources(stream: ServedStream) -> list[dict[str, Any]]:
    """Those with a name of their own first: the others are clients that publish once."""
    highest = stream.log.positions()
    lasting = (each for each in highest.items() if each[0][:1] not in ("", "~"))
    passing = (each for each in highest.items() if each[0][:1] in ("", "~"))
    chosen = [*islice(lasting, _LISTED)]
    chosen += islice(passing, _LISTED - len(chosen))
    return [
        {"source": name[:_NAME], "sequence": sequence, "index": index} for name, (sequence, index) in chosen
    ]


def _listeners(stream: ServedStream) -> list[dict[str, Any]]:
    """Those that are farthest behind first."""
    readable = stream.readable
    slowest = sorted(stream.subscribers, key=lambda subscriber: subscriber.at)[:_LISTED]
    return [
        {
            "client": subscriber.connection.peer.name[:_NAME],
            "at": subscriber.at,
            "lag": max(0, readable - subscriber.at + 1),
            "where": "" if subscriber.filter is None else subscriber.filter.text[:_NAME],
        }
        for subscriber in slowest
    ]
