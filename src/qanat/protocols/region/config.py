"""Settings of one replica of a region's proxy: those of its parts."""

import msgspec

from qanat.protocols.chain import ChainConfig
from qanat.protocols.proxy_level import ProxyLevelConfig


class RegionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    chain: ChainConfig = ChainConfig()
    proxy_level: ProxyLevelConfig = ProxyLevelConfig()
