"""What the application asks of a region's replica, beside what it asks of a chain's."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from qanat.kernel import Address
from qanat.protocols.chain.requests import ChainItem, ChainOrder, ChainRequest
from qanat.protocols.proxy_level.messages import Unserved


class Peers(msgspec.Struct, frozen=True):
    """These are all replicas of all other regions now."""

    remote: tuple[Address, ...]


class StreamsChanged(msgspec.Struct, frozen=True):
    """These are all streams now, by their owning region. A stream keeps its owner for ever: one that comes
    with another is left as it was, and traced."""

    owners: Mapping[int, str]


RegionItem: TypeAlias = ChainItem | Unserved
"""What a region's replica delivers."""
RegionRequest: TypeAlias = ChainRequest | ChainOrder | Peers | StreamsChanged
