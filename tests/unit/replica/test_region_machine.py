"""The machine of a region's replica speaks three protocols on one channel: no two messages may look alike."""

from __future__ import annotations

from tests.unit.protocols.contexts import InOrder

from qanat.coordinate import Session, SessionConfig
from qanat.coordinate.messages import Beat, Beaten
from qanat.events.batch import Batch
from qanat.kernel import Address
from qanat.protocols.chain import ChainConfig
from qanat.protocols.chain import messages as chain
from qanat.protocols.history_memory import MemoryHistory
from qanat.protocols.proxy_level import ProxyLevelConfig
from qanat.protocols.proxy_level import messages as proxy_level
from qanat.protocols.region import RegionConfig, RegionReplica
from qanat.wire.messages import MessageCodec


def replica() -> RegionReplica:
    return RegionReplica(
        InOrder(Address("eu/proxy-1")),
        RegionConfig(ChainConfig(), ProxyLevelConfig()),
        MemoryHistory(),  # type: ignore[arg-type]
        lambda context, listener: Session(context, SessionConfig(), Address("eu/coordinator"), listener),
        region="eu",
        owners={7: "eu"},
        remote=[],
        folder="/chains/eu",
        wary_us=1,
    )


def test_messages_of_all_three_protocols_are_told_apart() -> None:
    machine = replica()
    codec = MessageCodec(machine.message_types, machine.sent_types)
    batch = Batch.build(7, [b"payload"], first=3)
    for message in (
        chain.Ack(1, 2, ((7, 3),)),
        proxy_level.Ack(7, 1, 3),
        chain.Hello(1, 2, (chain.Claim(7, 3, 1),)),
        chain.Forward(1, 2, (batch,), ((7, 3),)),
        proxy_level.Events(7, 1, (batch,)),
        proxy_level.Ended(7, 1),
        Beaten(5, 1),
    ):
        control, attachments = codec.encode(message)
        decoded = codec.decode(control, b"".join(attachments))
        assert type(decoded) is type(message)
        assert codec.encode(decoded)[0] == control
    codec.encode(Beat(5, 1))


def test_names_are_used_once() -> None:
    tags = [kind.__struct_config__.tag for kind in replica().message_types]
    assert len(set(tags)) == len(tags)
