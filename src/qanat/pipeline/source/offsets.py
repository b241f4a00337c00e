"""How far a query has read: for each stream the next sequence number, and what tells the stream from another
of its name.

Spark keeps this in the checkpoint as JSON, and compares two of them by their text:

```
{"orders": {"next": 1042, "born": 1763290000000000, "mark": "6439a…-1f2e3d4c"}}
```

`born` is the publish time of the stream's first event, `mark` a fingerprint of the last event that was read.
A stream that was not read from its earliest event on also says from where (`from`).
"""

from typing import Any

import msgspec

from qanat.events.errors import LocalError
from qanat.wire.streams import Seen


class Place(msgspec.Struct, frozen=True, rename={"start": "from"}, omit_defaults=True):
    """How far one stream was read."""

    next: int
    born: int = 0
    mark: str = ""
    start: int = 0
    """Where it began to be read, if that was not its earliest event or the query had begun before."""


Places = dict[str, Place]


class Disagreement(LocalError):
    """A checkpoint and a stream, or a query and its checkpoint, do not belong together."""


def places_of(offset: dict[str, Any]) -> Places:
    """From a checkpoint's JSON."""
    try:
        return msgspec.convert(offset, Places)
    except msgspec.ValidationError as error:
        raise Disagreement(
            f"the checkpoint is not one of a query that reads streams of Qanat: {error}"
        ) from None


def offset_of(places: Places) -> dict[str, Any]:
    """For Spark to keep; the order is always the same."""
    return {name: msgspec.to_builtins(place) for name, place in sorted(places.items())}


def check(stream: str, url: str, place: Place, seen: Seen) -> None:
    """Raises `Disagreement` if the stream is not the one that was read up to `place`. `seen` is a look at
    `place.next`."""
    again = "Go back to the stream that was read, or begin anew with another checkpoint"
    if place.born and seen.born_us and place.born != seen.born_us:
        raise Disagreement(
            f"stream {stream!r} at {url} is not the one of the checkpoint: it began at {_time(seen.born_us)},"
            f" that one at {_time(place.born)}. It was made anew, or the URL names another deployment."
            f" {again}."
        )
    if place.next - 1 > seen.readable:
        raise Disagreement(
            f"the checkpoint has read stream {stream!r} up to {place.next - 1}, but at {url} it ends at"
            f" {seen.readable}. It was made anew, lost its end, or the URL names another deployment. {again}."
        )
    if place.mark and seen.mark and place.mark != seen.mark:
        raise Disagreement(
            f"event {place.next - 1} of stream {stream!r} at {url} is not the one that the checkpoint has"
            " read. The stream was set back and has grown again, or the URL names another deployment."
            f" {again}."
        )


def _time(us: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds")
