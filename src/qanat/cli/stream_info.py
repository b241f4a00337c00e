"""A stream's description for people: its settings, its events, its garbage collection, subscribers and
sources."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from qanat.cli.deployment_status import duration
from qanat.cli.stream_words import kept_words
from qanat.cli.tables import table

_SPANS, _NAMED = 12, 20
"""Most lines of spans, and most names."""


def shown_stream(told: dict[str, Any], place: str, start: int) -> str:
    """`start` is the first number of the requested spans."""
    owner = f", owned by {told['owner']}" if "owner" in told else ""
    out = [f"stream {told['stream']} at {place}{owner}"]
    if told["failed"]:
        out.append(f"  ! the stream stopped: {told['failed']}")
    out += [f"  {head:<14}{text}" for head, text in _facts(told)]
    out += ["", *_spans(told, start), "", *_collection(told), "", *_listeners(told), "", *_sources(told)]
    return "\n".join(out).rstrip()


def _facts(told: dict[str, Any]) -> list[tuple[str, str]]:
    first, last = told["first"], told["next"] - 1
    numbers = "no events yet" if last < first and first == 1 else f"{first:,} to {last:,}"
    if told["readable"] < last:
        numbers += f", readable up to {told['readable']:,}"
    if first > 1:
        numbers += f"; retention dropped {first - 1:,} before them"
    collected = told["collection"]
    size = f"{told['bytes']:,} bytes in {told['segments']} segment{'s' if told['segments'] != 1 else ''}"
    facts = [("kept as", kept_words(told["kept_as"])), ("numbers", numbers)]
    facts.append(
        (
            "events",
            f"{collected['kept_events']:,} kept, {collected['collected_events']:,} collected; {size}",
        )
    )
    if told["newest_us"] is not None and told["newest_us"] > 0:
        born = f"begun {_when(told['born_us'])}, " if told["born_us"] else ""
        facts.append(("times", f"{born}newest event {_when(told['newest_us'])}"))
    if told.get("source"):
        facts.append(("comes from", f"{told['source']}, {told['behind_source']:,} events behind it"))
    return facts


def _spans(told: dict[str, Any], start: int) -> list[str]:
    spans = told["spans"]
    if not spans:
        return [f"no events from {start:,} on" if start > 1 else "no events"]
    rows = [
        [f"{first:,}", f"{last:,}", last - first + 1, "kept" if kept else "collected: a tombstone"]
        for first, last, kept in spans[:_SPANS]
    ]
    out = table(["from", "to", "events", ""], rows).splitlines()
    left = spans[_SPANS:]
    if left or not told["spans_whole"]:
        more = f"{len(left)}{'' if told['spans_whole'] else ' or more'} spans follow"
        out.append(f"{more}: --from {spans[min(_SPANS, len(spans)) - 1][1] + 1}, or --json")
    return out


def _collection(told: dict[str, Any]) -> list[str]:
    it = told["collection"]
    did = [f"{it['removed_events']:,} events became tombstones"] if it["removed_events"] else []
    did += [f"{it['dropped_events']:,} were dropped by retention"] if it["dropped_events"] else []
    if did:
        last = f", last {duration(it['idle_s'])} ago" if it["idle_s"] is not None else ""
        out = [
            (
                f"garbage collection since the server opened the stream: {' and '.join(did)},"
                f" {it['freed_bytes']:,} bytes freed{last}"
            )
        ]
    else:
        out = ["garbage collection since the server opened the stream: no events removed"]
    if not it["dead_events"] and not it["predicates"]:
        return [*out, "  no garbage waits for collection"]
    if it["dead_events"]:
        out.append(
            f"  {it['dead_events']:,} events wait for collection, by a GC event or the policy:"
            f" readers still get them, except with `sub --alive`"
        )
    if it["soon_events"]:
        out.append(f"    {it['soon_events']:,} of them in the next rounds")
    out += [f"    {each['events']:,} {each['why']}" for each in it["waits"]]
    if it["predicates"]:
        out.append(f"  {it['predicates']:,} GC events still search for their matches")
    return out


def _listeners(told: dict[str, Any]) -> list[str]:
    count, named = told["subscribers"], told["listeners"]
    if not count:
        return ["no subscribers"]
    rows = [
        [_printable(each["client"]), each["at"], each["lag"], _printable(each["where"])]
        for each in named[:_NAMED]
    ]
    out = table([f"subscribers: {count}", "next", "lag", "filter"], rows).splitlines()
    return out + ([f"and {count - _NAMED:,} more"] if count > _NAMED else [])


def _sources(told: dict[str, Any]) -> list[str]:
    count, named = told["sources"], told["newest_sources"]
    if not count:
        return ["no sources"]
    rows = [
        [
            _printable(each["source"]),
            str(each["sequence"]) + (f", {each['index']}" if each["index"] else ""),
        ]
        for each in named[:_NAMED]
    ]
    out = table([f"sources: {count}", "stored up to its"], rows).splitlines()
    return out + ([f"and {count - _NAMED:,} more"] if count > _NAMED else [])


def _printable(text: str) -> str:
    """Names come from clients and may have control characters."""
    return text if text.isprintable() else repr(text)[1:-1]


def _when(time_us: int) -> str:
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return f"{time_us} µs"
