"""The machine of a region's replica speaks three protocols on one channel: no two messages may look alike."""

from __future__ import annotations

from qanat.coordinate.messages import Beat, Beaten
from qanat.events.batch import Batch
from qanat.protocols.chain import messages as chain
from qanat.protocols.proxy_level import messages as proxy_level
from qanat.replica.machine import HostedReplica
from qanat.wire.messages import MessageCodec


def test_messages_of_all_three_protocols_are_told_apart() -> None:
    codec = MessageCodec(HostedReplica.message_types)
    batch = Batch.build(7, [b"payload"], first=3)
    for message in (
        chain.Ack(1, 2, ((7, 3),)),
        proxy_level.Ack(7, 1, 3),
        chain.Hello(1, 2, (chain.Claim(7, 3, 1),)),
        chain.Forward(1, 2, (batch,), ((7, 3),)),
        proxy_level.Events(7, 1, (batch,)),
        proxy_level.Ended(7, 1),
        Beat(5, 1),
        Beaten(5, 1),
    ):
        control, attachments = codec.encode(message)
        decoded = codec.decode(control, b"".join(attachments))
        assert type(decoded) is type(message)
        assert codec.encode(decoded)[0] == control


def test_names_are_used_once() -> None:
    tags = [kind.__struct_config__.tag for kind in HostedReplica.message_types]
    assert len(set(tags)) == len(tags)
