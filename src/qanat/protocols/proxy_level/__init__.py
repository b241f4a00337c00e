"""Sprinkler's Proxy-Level Protocol (section 3.1): every region's proxy gets every stream, by any live path.

`ProxyLevel` is one proxy. Its two halves, `Receiving` and `Sending`, stand alone, for a chain that has them
on different replicas; `Exchange` hands them what comes in. The page: docs/proxy-level.md.
"""

from qanat.protocols.proxy_level.config import ProxyLevelConfig
from qanat.protocols.proxy_level.machine import Advanced, ProxyLevel, Publish, Published, Refused, Streams
from qanat.protocols.proxy_level.messages import (
    Ack,
    Advertisement,
    Ended,
    Events,
    ProxyLevelMessage,
    Subscribe,
    Unserved,
    Unsubscribe,
)
from qanat.protocols.proxy_level.receiving import Expects, Receiving
from qanat.protocols.proxy_level.sending import Sending

__all__ = [
    "Ack",
    "Advanced",
    "Advertisement",
    "Ended",
    "Events",
    "Expects",
    "ProxyLevel",
    "ProxyLevelConfig",
    "ProxyLevelMessage",
    "Publish",
    "Published",
    "Receiving",
    "Refused",
    "Sending",
    "Streams",
    "Subscribe",
    "Unserved",
    "Unsubscribe",
]
