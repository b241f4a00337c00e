"""A proxy as the owner of a stream: it numbers, answers what is durable, and takes nothing from strangers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.protocols.proxy_level_by_hand import OURS, THEIRS, Y, proxy, theirs

from qanat.events.batch import Batch
from qanat.events.tombstones import tombstone
from qanat.kernel import Address, ProtocolInvariantError, check_immutable
from qanat.protocols.history import Synced
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.proxy_level import (
    Ack,
    Advanced,
    Advertisement,
    Events,
    ProxyLevel,
    ProxyLevelConfig,
    Publish,
    Published,
    Refused,
    Subscribe,
    Unserved,
    Unsubscribe,
)


class Late(MemoryHistory):
    """Durable only when told."""

    synced = 0

    def durable(self, stream: int) -> int:
        return min(self.synced, self.counter(stream))


def test_messages_can_never_change() -> None:
    for kind in ProxyLevel.message_types:
        check_immutable(kind)


@pytest.mark.paper("S4")
def test_the_owner_numbers_densely_and_answers() -> None:
    made, context = proxy()
    made.on_request(0, Publish(7, Batch.build(OURS, [b"a", b"b"], source="s", position=1)))
    made.on_request(0, Publish(8, Batch.build(OURS, [b"b", b"c"], source="s", position=2)))
    assert context.take("deliver") == [
        Advanced(OURS, 1, 2),
        Published(7, OURS, 1, 2, 0),
        Advanced(OURS, 3, 3),
        Published(8, OURS, 3, 3, 1),
    ]


@pytest.mark.paper("S4")
def test_what_belongs_elsewhere_is_refused_with_the_owners_name() -> None:
    made, context = proxy()
    made.on_request(0, Publish(1, theirs(1, 2)))
    made.on_request(0, Publish(2, Batch.build(99, [b"a"])))
    made.on_request(0, Publish(3, tombstone(OURS, 1, 2)))
    foreign, unknown, wrong = context.take("deliver")
    assert (foreign.request, foreign.owner) == (1, "y")
    assert "'y'" in foreign.reason
    assert (unknown.request, unknown.owner) == (2, "")
    assert "no region" in unknown.reason
    assert (wrong.request, wrong.owner) == (3, "")
    assert made.history.counter(OURS) == made.history.counter(THEIRS) == 0


def test_nothing_is_answered_or_shown_before_it_is_durable() -> None:
    history = Late()
    made, context = proxy(history, pending_publishes=2)
    made.on_message(0, Y, Subscribe(OURS, 0, 1))
    for request in (1, 2, 3):
        made.on_request(0, Publish(request, Batch.build(OURS, [b"a"])))
    (full,) = context.take("deliver")
    assert isinstance(full, Refused)
    assert full.request == 3
    made.on_timer(0, "advertise")
    assert (Y, Advertisement(((OURS, 0), (THEIRS, 0)))) in context.take("send")
    history.synced = 1
    made.on_request(0, Synced(OURS, 1))
    assert context.take("deliver") == [Advanced(OURS, 1, 1), Published(1, OURS, 1, 1, 0)]
    ((to, sent),) = context.take("send")
    assert (to, sent.batches[-1].last) == (Y, 1)
    made.on_request(0, Synced(THEIRS, 5))
    assert context.outputs[-1][0] != "deliver"


def test_strangers_and_unknown_streams_change_nothing() -> None:
    made, context = proxy()
    stranger = Address("mallory")
    for sender, message in (
        (stranger, Advertisement(((THEIRS, 9),))),
        (Y, Advertisement(((99, 9), (OURS, 9)))),
        (stranger, Subscribe(OURS, 0, 1)),
        (Y, Subscribe(99, 0, 1)),
        (Y, Subscribe(OURS, -5, 1)),
        (Y, Ack(OURS, 1, 9)),
        (Y, Unsubscribe(99, 1)),
        (Y, Unserved(THEIRS, 1, 1, 2)),
        (Y, Events(OURS, 0, (Batch.build(OURS, [b"a"], first=1),))),
    ):
        made.on_message(0, sender, message)
    assert {output[0] for output in context.outputs} == {"trace"}
    assert made.history.counter(OURS) == 0
    with pytest.raises(ProtocolInvariantError):
        made.on_timer(0, "lunch")


@pytest.mark.parametrize(
    "wrong",
    [
        {"advertise_ms": 0.0},
        {"c_event_s": -1.0},
        {"window_bytes": 0},
        {"peer_window_bytes": 0},
        {"stall_ms": 0.0},
    ],
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ProxyLevelConfig(**wrong)
