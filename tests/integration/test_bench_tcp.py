"""`qanat bench --tcp`: servers that are started for it offer no short way, so their clients take none."""

from __future__ import annotations

import numpy as np
import pytest

from qanat.bench.ways import only_tcp
from qanat.client import Client
from qanat.operate.processes import stream_server

EVENTS, WIDTH = 20_000, 500


@pytest.mark.parametrize("only", [True, False])
def test_what_is_published_and_read_goes_through_sockets(only: bool) -> None:
    """More than is laid down in a file, and more than is read in place."""
    with only_tcp(only), stream_server() as (url, _), Client(url) as client:
        client.publish("s", b"the first says whether files may be laid down")
        client.publish_many("s", np.zeros((EVENTS, WIDTH), np.uint8))
        with client.subscribe("s", start="earliest") as events:
            assert sum(1 for _, _ in zip(range(EVENTS), events, strict=False)) == EVENTS
        traffic = client.ask("status")
        by_socket = traffic["received_bytes"] > EVENTS * WIDTH, traffic["sent_bytes"] > EVENTS * WIDTH
        assert by_socket == (only, only)
