"""Reports a publish that waits: after a second, with the reason, and again when it continues.

The client itself reports that it reaches no server, or that none is head. This module asks the reachable
servers why they do not acknowledge.
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
"""Time until the watch asks for the reason again, because it may have changed."""
_ANSWER_S = 2.0

Status = Mapping[str, Any]


class PublishWatch:
    """A context that watches the publishes within `publishing`."""

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
        self._ended.set()  # do not wait for the answer to an open question

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
                self._say(f"publishing continues after {time.monotonic() - since_s:.1f} s")

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
    """What a publisher of a stream waits for; empty if no server answers, which the client reports itself."""
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
        return f"{', '.join(stuck)}, which accepts connections and does not answer" if stuck else ""
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
    """The reason at a single server."""
    if stream["failed"]:
        return f"the server at {url}, whose stream has stopped: {stream['failed']}"
    unsynced = stream["next"] - 1 - stream["durable"]
    if unsynced > 0 and stream["durability"] == "always":
        return f"the disk of the server at {url}, which has not synced {unsynced:,} events yet"
    return f"the server at {url}, which reads no faster than it stores"


def in_region(place: Status, told: Mapping[str, Status], stream: str) -> str:
    """The reason in a region; `told` has the status of each replica that answers."""
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
        return f"a head: region {region} has none now{away}"
    members = newest["replicas"]
    gone = [name for name in members if name in silent]
    if gone:
        return (
            f"{', '.join(gone)} of the chain {' → '.join(members)}:"
            f" {'it does' if len(gone) == 1 else 'they do'} not answer, and the chain continues"
            f" without once the session has ended"
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
    """The first replica of the chain whose disk lacks events of the head."""
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
                " events: its disk is slow or full, or its predecessor does not reach it"
            )
    return ""
