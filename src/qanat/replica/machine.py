"""The machine that a proxy's process runs on `FIRST_MACHINE_CHANNEL`, beside the coordinator's on the same
channel."""

from typing import ClassVar

from qanat.coordinate.messages import TO_CLIENT, TO_SERVER
from qanat.kernel import Message
from qanat.protocols.region import RegionReplica


class HostedReplica(RegionReplica):
    """A `RegionReplica` that can speak to the embedded coordinator.

    The real codec refuses to send what is not named here, so the session's own messages are named as well;
    should a peer send such a one to a replica, the session leaves it aside. `connect` is `lambda context,
    listener: Session(context, session_config, coordinator_address, listener)`.
    """

    message_types: ClassVar[tuple[type[Message], ...]] = (
        *RegionReplica.message_types,
        *TO_CLIENT,
        *TO_SERVER,
    )
