"""The demonstration's tills: clients in the regions that have no datastore, each of which publishes numbered
sales to a stream of its own region."""

import time
from multiprocessing.connection import Connection as Pipe

import numpy as np

from qanat.client import Client, ClientSettings
from qanat.demonstration.store import HEAD, REPORT_S, WIDTH, Array
from qanat.runtime import logs

_SETTINGS = ClientSettings(patience_ms=60_000)
_SALES, _PAUSE_S = 20, 0.02


def till_of(region: str) -> str:
    """The stream of a region's sales."""
    return f"sales-{region}"


def sell(pipe: Pipe, url: str, stream: str) -> None:
    """Says `ready`, waits for a word and sells until the next one; says how much is stored as it goes, and in
    the end."""
    logs.set_up("error")
    with Client(url, settings=_SETTINGS) as client:
        pipe.send("ready")
        pipe.recv()
        sold, told = 0, 0.0
        while not pipe.poll(_PAUSE_S):
            client.publish_many(stream, _sales(sold))
            sold += _SALES
            if time.monotonic() - told > REPORT_S:
                told = time.monotonic()
                pipe.send(("sold", sold))
        pipe.recv()
        pipe.send(("done", sold))


def _sales(first: int) -> Array:
    """As an order's value: its number, and when it was made."""
    rows = np.zeros((_SALES, WIDTH), np.uint8)
    head = np.zeros(_SALES, HEAD)
    head["number"] = np.arange(first, first + _SALES)
    head["time_us"] = time.time_ns() // 1000
    rows[:, : HEAD.itemsize] = head.view(np.uint8).reshape(_SALES, HEAD.itemsize)
    return rows
