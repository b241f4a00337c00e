"""How a client behaves."""

import msgspec

from qanat.runtime.patience import PATIENCE_S


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a client behaves; every default with its unit and reason."""

    batch_bytes: int = 960 * 1024
    """Payload bytes of one batch: per-batch costs vanish, and two of its frames still fit into a receive
    buffer of 2 MiB."""
    window_bytes: int = 8 * 1024 * 1024
    """Published and not acknowledged: twice what a 1-Gbit/s link across an ocean has under way in 30 ms."""
    subscription_bytes: int = 4 * 1024 * 1024
    """Received and not taken, per subscription; the server sends no more than this ahead."""
    in_place: bool = True
    """Whether large pieces of a log on this machine are read from its files, and large publishes written to
    its folder, where we may: no socket, and little work for the server."""
    patience_ms: int = round(PATIENCE_S * 1000)
    """Without a server for this long, at its beginning or later, the client fails: longer than a restart,
    shorter than a person waits. 0: once it has asked all of them in vain."""
