"""One replica of a region's proxy: its place in the region's chain, and at the chain's ends the proxy level.

The page: docs/region.md.
"""

from qanat.protocols.region.config import RegionConfig
from qanat.protocols.region.machine import RegionReplica
from qanat.protocols.region.requests import Peers, RegionItem, RegionRequest, StreamsChanged

__all__ = ["Peers", "RegionConfig", "RegionItem", "RegionReplica", "RegionRequest", "StreamsChanged"]
