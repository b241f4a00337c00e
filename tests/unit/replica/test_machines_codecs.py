"""Every machine that a node hosts has messages that its codec can tell apart: their names are unique among
all that it takes. What it sends, others take."""

from __future__ import annotations

import pytest

from qanat.coordinate import CoordinatorServer
from qanat.coordinate.ensemble import EnsembleMember
from qanat.coordinate.messages import TO_CLIENT, Beaten, Open
from qanat.kernel import Machine
from qanat.protocols.publisher.machine import Publisher
from qanat.wire.frame import MalformedFrame
from qanat.wire.messages import MessageCodec


@pytest.mark.parametrize("machine", [CoordinatorServer, EnsembleMember, Publisher])
def test_the_messages_of_a_machine_can_be_told_apart(machine: type[Machine]) -> None:
    MessageCodec(machine.message_types, machine.sent_types)


def test_what_a_machine_only_sends_is_not_taken() -> None:
    codec = MessageCodec(CoordinatorServer.message_types, CoordinatorServer.sent_types)
    assert set(CoordinatorServer.sent_types) == set(TO_CLIENT)
    codec.decode(codec.encode(Open(1, 2, 3))[0])
    answer, _ = codec.encode(Beaten(5, 1))
    with pytest.raises(MalformedFrame, match="not a message of this machine"):
        codec.decode(answer)
