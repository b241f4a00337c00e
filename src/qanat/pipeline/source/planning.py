"""Which part of which stream is read next, and by how many tasks."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from qanat.client import Client, NoStream
from qanat.client.subscription import Where
from qanat.events.errors import LocalError
from qanat.pipeline.source.offsets import Disagreement, Place, check
from qanat.pipeline.source.options import StreamOptions
from qanat.pipeline.source.reading import StreamRange
from qanat.wire.streams import Seen

_TASK_ROWS_MIN = 20_000
"""Fewer are not worth a task of their own, which costs some ten milliseconds."""
_TASK_ROWS_MAX = 4_000_000
"""A task that fails begins anew: no more than some seconds of work."""
_PATIENCE_S = 10.0
"""How long a stream may end before what was read: a region that lags behind another catches up by then."""
_T = TypeVar("_T")


def look(client: Client, options: StreamOptions, stream: str, start: Where, size: int = 0) -> Seen:
    """Where a stream is; one that is not there is empty if the options say so."""
    try:
        return client.look(stream, start, size)
    except NoStream as error:
        if options.wait_for_streams:
            return Seen(0, start if isinstance(start, int) else 1, 1, 0, 0)
        names = [told["stream"] for told in client.ask("streams")]
        there = f"there are {', '.join(sorted(names)[:20])}" if names else "there are none"
        raise NoStream(
            error.code,
            f"there is no stream {stream!r} at {options.url}; {there}. Publish to it first, or set the option"
            " missing=wait",
            stream,
        ) from None


def streams_of(client: Client, options: StreamOptions) -> tuple[str, ...]:
    """The streams that are read: those that were named, or those of the server whose names fit the pattern
    now."""
    if not options.pattern:
        return options.streams
    names = sorted(told["stream"] for told in client.ask("streams"))
    found = tuple(name for name in names if options.reads(name))
    if not found and not options.wait_for_streams:
        there = f"there are {', '.join(names[:20])}" if names else "there are none"
        raise LocalError(
            f"no stream at {options.url} has a name that fits the pattern {options.pattern!r}; {there}."
            " Publish to one first, or set the option missing=wait"
        )
    return found


def look_at(client: Client, options: StreamOptions, stream: str, place: Place, size: int = 0) -> Seen:
    """Where a stream is that was read up to `place`; raises `Disagreement` if it is another one."""

    def once() -> Seen:
        seen = look(client, options, stream, place.next, size)
        check(stream, options.url, place, seen)
        return seen

    return patiently(once)


def patiently(work: Callable[[], _T], patience_s: float = _PATIENCE_S) -> _T:
    """What disagrees for a moment only is asked again."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return work()
        except Disagreement as error:
            if time.monotonic() > deadline or " ends at " not in str(error):
                raise
        time.sleep(0.2)


def shares(available: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many of `limit` events each stream may give: all alike by what they have, at least one where there
    is one.

    With fewer than one for each, those that have most come first: what the others have grows, or they come
    when these have less.
    """
    total = sum(available.values())
    if total <= limit:
        return dict(available)
    first = sorted((name for name, have in available.items() if have), key=lambda name: -available[name])[
        :limit
    ]
    given = {name: 1 if name in first else 0 for name in available}
    left = limit - len(first)
    rest = {name: available[name] - 1 for name in first}
    more = {name: have * left // max(sum(rest.values()), 1) for name, have in rest.items()}
    over = left - sum(more.values())  # what rounding left
    for name, have in rest.items():
        one = min(over, have - more[name])
        given[name] += more[name] + one
        over -= one
    return given


def ranges(options: StreamOptions, stream: str, first: int, last: int, where: str) -> list[StreamRange]:
    """first..last in pieces that are read at once."""
    total = last - first + 1
    if total <= 0:
        return []
    pieces = max(min(options.partitions, total // _TASK_ROWS_MIN), -(-total // _TASK_ROWS_MAX), 1)
    ends = [first + total * i // pieces for i in range(pieces + 1)]
    return [StreamRange(stream, ends[i], ends[i + 1] - 1, where) for i in range(pieces)]


def behind(options: StreamOptions, stream: str, place: Place) -> LocalError:
    option = "pattern" if options.pattern else "stream"
    return Disagreement(
        f"the checkpoint has read stream {stream!r} up to {place.next - 1}, but the option {option!r} no"
        " longer names it: name it, or begin anew with another checkpoint"
    )
