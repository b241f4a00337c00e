"""A publish that waits: said after a second, once, with whom it waits for; and when it goes on.

The client itself says when no server can be reached, or none is head. This asks the servers that are there,
beside the publisher, why they do not answer.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from qanat.client import AsyncClient
from qanat.events.errors import QanatError
from qanat.runtime.url import parse_urls

_LOOK_S = 0.2
_AFTER_S = 1.0
_AGAIN_S = 5.0
"""Then it is asked again whom it waits for, which may be somebody else by now."""
_ANSWER_S = 2.0

Status = Mapping[str, Any]


class PublishWatch:
    """A context; what is under way within `publishing` is watched."""

    def __init__(
        self, url: str, stream: str, words: TextIO | None = None, why: Callable[[str, str], str] | None = None
    ) -> None:
        self._url, self._stream, self._words = url, stream, words or sys.stderr
        self._why = why or reason
        self._lock = threading.Lock()
        self._since_s: float | None = None
        self._said: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="publish-watch", daemon=True)

    def __enter__(self) -> PublishWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()  # a question under way may take a while: nobody waits for its answer

    @contextmanager
    def publishing(self) -> Iterator[None]:
        with self._lock:
            self._since_s, self._said = time.monotonic(), []
        try:
            yield
        except BaseException:
            with self._lock:
                self._since_s = None
            raise
        with self._lock:
            since_s, self._since_s = self._since_s, None
            if self._said and since_s is not None:
                self._say(f"publishing goes on after {time.monotonic() - since_s:.1f} s")

    def _say(self, sentence: str) -> None:
        self._words.write(f"qanat: {sentence}\n")
        self._words.flush()

    def _look_on(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with self._lock:
                since_s, times = self._since_s, len(self._said)
            if since_s is None or time.monotonic() - since_s < _AFTER_S + _AGAIN_S * times:
                continue
            why = self._why(self._url, self._stream)
            with self._lock:
                if why and self._since_s == since_s and not self._ended.is_set():
                    if why not in self._said:
                        self._say(f"waiting for {why}")
                    self._said.append(why)


def reason(url: str, stream: str) -> str:
    """For whom a publisher of a stream waits; empty if nobody can be asked, which the client tells by
    itself."""
    try:
        return asyncio.run(_reason(url, stream))
    except (QanatError, OSError, TimeoutError):
        return ""


async def _reason(url: str, stream: str) -> str:
    each = [str(endpoint) for endpoint in parse_urls(url)]
    places = await asyncio.gather(*(_asked(one, "place") for one in each), return_exceptions=True)
    place = next((found for found in places if isinstance(found, dict)), None)
    if place is None:
        stuck = [one for one, found in zip(each, places, strict=True) if isinstance(found, TimeoutError)]
        return f"{', '.join(stuck)}, which is there and does not answer" if stuck else ""
    if not place["region"]:
        return alone(url, await _asked(url, "stream", stream))
    names = sorted(place["replicas"])
    found = await asyncio.gather(
        *(_asked(place["replicas"][name], "status") for name in names), return_exceptions=True
    )
    told = {name: each for name, each in zip(names, found, strict=True) if isinstance(each, dict)}
    return in_region(place, told, stream)


async def _asked(url: str, what: str, stream: str = "") -> Any:
    async with asyncio.timeout(_ANSWER_S):
        client = AsyncClient(url, patience=0)
        try:
            return await client.ask(what, stream)
        finally:
            await client.close()


def alone(url: str, stream: Status) -> str:
    """At a server that stands alone."""
    if stream["failed"]:
        return f"the server at {url}, which takes no more events: {stream['failed']}"
    unsynced = stream["next"] - 1 - stream["durable"]
    if unsynced > 0 and stream["durability"] == "always":
        return f"the disk of the server at {url}, which has not synced {unsynced:,} events yet"
    return f"the server at {url}, which has not taken all yet: it reads no faster than it stores"


def in_region(place: Status, told: Mapping[str, Status], stream: str) -> str:
    """In a region of replicas; `told` is what those say that answer."""
    region = place["region"]
    owner = place["streams"].get(stream, region)
    silent = sorted(set(place["replicas"]) - set(told))
    chains = [status["chain"] for status in told.values() if "chain" in status]
    standing = next((chain["waits"] for chain in chains if chain.get("waits")), "")
    if standing:
        return f"region {region}: {standing}"
    newest = max(chains, key=lambda chain: chain["epoch"], default=None)
    away = f"; {', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer" if silent else ""
    if newest is None or not newest["head"]:
        return f"a head of region {region}, which has none now{away}"
    members = newest["replicas"]
    gone = [name for name in members if name in silent]
    if gone:
        return (
            f"{', '.join(gone)} of the chain {' → '.join(members)}:"
            f" {'it does' if len(gone) == 1 else 'they do'} not answer, and the chain goes on without once"
            " the session has ended"
        )
    for name in members:
        problem = told[name].get("coordinator_problem") or told[name].get("damaged")
        if problem:
            return f"{name}: {problem}"
    behind = _behind(members, told, stream)
    if behind:
        return behind
    joins = f"; {newest['joining']} joins it" if newest["joining"] else ""
    return f"the chain {' → '.join(members)} of region {owner} to acknowledge{joins}"


def _behind(members: list[str], told: Mapping[str, Status], stream: str) -> str:
    """The first in the chain whose disk does not have what the head has."""
    last = 0
    for name in members:
        found = next((each for each in told[name].get("streams", []) if each["stream"] == stream), None)
        if found is None:
            continue
        has = found["durable"] if found["durability"] == "always" else found["next"] - 1
        last = last or found["next"] - 1
        if has < last:
            return (
                f"{name} of the chain {' → '.join(members)}, which has not stored the last {last - has:,}"
                " events: its disk is slow or full, or what is before it does not come through"
            )
    return ""
