"""`qanat changes URL --into STREAM` as a process that is killed again and again, and what is in the stream
afterwards."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from typing import Any

from tests.waiting import wait_until

from qanat.capture.rebuild import updates_of
from qanat.capture.updates import Update
from qanat.client import Client, ClientSettings, Unavailable

PATIENT = ClientSettings(patience_ms=85_000)


def fed(url: str, stream: str) -> list[Update]:
    """All that was fed into a stream."""
    found: list[Update] = []
    with Client(url) as client, client.subscribe(stream, start="earliest") as reading:
        while reading.next < reading.end:
            for batch in reading.take():
                found += updates_of(batch).rows()
    return found


def next_of(client: Client, stream: str) -> int:
    """The stream's next number, as far as can be said now."""
    try:
        return next((int(one["next"]) for one in client.ask("streams") if one["stream"] == stream), 1)
    except Unavailable:
        return 1


def feed_through_kills(
    command: list[str],
    stream: str,
    server: Any,
    *,
    seed: int,
    kills: int,
    server_share: float,
    growth: int,
    between: Callable[[int], None] = lambda turn: None,
) -> None:
    """Kills the feed, and at times the stream's server, after up to `growth` more events or at any time at
    all.

    `between` is called at each turn with its number. At the end no feed runs.
    """
    rng = random.Random(seed)
    feeder = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        with Client(server.url, settings=PATIENT) as watching:
            for turn in range(kills):
                if rng.random() < 0.3:
                    time.sleep(rng.uniform(0, 0.6))  # wherever it is then: it may still be starting
                else:
                    enough = next_of(watching, stream) + rng.randrange(1, growth)
                    wait_until(
                        lambda enough=enough, feeder=feeder: (  # type: ignore[misc]
                            next_of(watching, stream) >= enough or feeder.poll() is not None
                        ),
                        60,
                        every_s=0.02,
                    )
                if rng.random() < server_share:
                    server.kill()
                    server.start()
                between(turn)
                if rng.random() < 0.8 or feeder.poll() is not None:
                    feeder.kill()
                    feeder.wait()
                    feeder = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    finally:
        feeder.kill()
        feeder.wait()
