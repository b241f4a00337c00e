"""Every machine that a node hosts has messages that its codec can tell apart: their names are unique among
all that it speaks."""

import pytest

from qanat.checks.coordinator_hosts import Contender
from qanat.kernel import Machine
from qanat.publisher.node import HostedCopy, HostedPublisher
from qanat.replica.coordinator import HostedCoordinator, HostedMember
from qanat.replica.machine import HostedReplica
from qanat.wire.messages import MessageCodec


@pytest.mark.parametrize(
    "machine", [HostedCoordinator, HostedMember, HostedCopy, HostedPublisher, HostedReplica, Contender]
)
def test_the_messages_of_a_machine_can_be_told_apart(machine: type[Machine]) -> None:
    MessageCodec(machine.message_types)
