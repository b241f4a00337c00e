"""A process's status as text."""

from __future__ import annotations

from typing import Any

from qanat.cli.node_status import shown_node, stream_table

_STREAM = {
    "stream": "prices",
    "first": 1,
    "next": 1_001,
    "durability": "always",
    "subscribers": 2,
    "largest_lag": 3,
    "published_events": 1_000,
    "duplicate_events": 0,
    "failed": "",
}
_NODE: dict[str, Any] = {
    "name": "eu/proxy-2",
    "url": "qanat://127.0.0.1:7502",
    "state": "ready",
    "uptime_s": 61.0,
    "data": "/data",
    "pid": 7,
    "connections": 4,
}


def test_a_server_has_no_chain() -> None:
    text = shown_node({**_NODE, "refused_batches": 5, "streams": [_STREAM]})
    assert "region" not in text and "owner" not in text
    assert "5 malformed publishes refused" in text
    assert "1,000" in text


def test_a_replica_shows_its_place_and_whence_its_streams_come() -> None:
    chain = {
        "epoch": 3,
        "replicas": ["eu/proxy-1", "eu/proxy-2"],
        "joining": "eu/proxy-3",
        "role": "tail",
        "serves": True,
    }
    stream = {**_STREAM, "owner": "us", "stable": 990, "source": "us/proxy-1", "behind_source": 7}
    text = shown_node({**_NODE, "region": "eu", "chain": chain, "streams": [stream]})
    assert "region eu: tail of eu/proxy-1 → eu/proxy-2, eu/proxy-3 joins (epoch 3), serves" in text
    cells = text.splitlines()[-1].split()
    assert cells == ["prices", "us", "1", "1,000", "990", "always", "us/proxy-1", "7", "2", "3", "1,000", "0"]


def test_what_a_replica_does_not_know_is_no_number() -> None:
    text = stream_table([{**_STREAM, "owner": "us", "stable": 0}])
    assert text.splitlines()[-1].split()[2:5] == ["1", "1,000", "–"]
    text = stream_table([{**_STREAM, "owner": "us", "stable": 0, "next": 1}])
    assert text.splitlines()[-1].split()[2:5] == ["1", "0", "0"]


def test_the_mesh_is_shown_where_there_is_one() -> None:
    quiet = {**_STREAM, "mesh": {"members": [], "visitors": 0}}
    assert "mesh" not in stream_table([_STREAM, quiet])
    busy = {**_STREAM, "stream": "busy", "mesh": {"members": ["a@h:1", "b@h:2"], "visitors": 3}}
    text = stream_table([quiet, busy])
    assert "mesh" in text and "2 in view + 3 visiting" in text


def test_before_there_is_a_chain() -> None:
    text = shown_node({**_NODE, "region": "eu", "chain": {"replicas": []}, "streams": []})
    assert "no chain yet" in text


def test_a_stream_that_takes_no_more() -> None:
    assert "stopped: the disk failed" in stream_table([{**_STREAM, "failed": "the disk failed"}])
