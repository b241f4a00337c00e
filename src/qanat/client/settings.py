"""Settings of a client."""

import msgspec

from qanat.runtime.patience import PATIENCE_S


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a client; every default has its unit and reason."""

    batch_bytes: int = 960 * 1024
    """Payload bytes of one batch: costs per batch vanish, and two of its frames fit into a receive buffer of
    2 MiB."""
    window_bytes: int = 8 * 1024 * 1024
    """Most bytes published and not acknowledged: twice a 1-Gbit/s link times 30 ms across an ocean."""
    subscription_bytes: int = 4 * 1024 * 1024
    """Most bytes per subscription received and not read; the server sends no more than this ahead."""
    in_place: bool = True
    """Whether the client reads large parts of a log on this machine from its files, and writes large
    publishes to its folder, if it may: that needs no socket and little work of the server."""
    patience_ms: int = round(PATIENCE_S * 1000)
    """Time without a server, at the start or later, after which the client fails: longer than a restart,
    shorter than a person waits. 0: it fails once no server has answered."""
