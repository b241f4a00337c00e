"""A proxy as a chain of replicas (Sprinkler, section 3.3; van Renesse and Schneider, *Chain Replication*).

`machine` is one replica's part, `configuration` what a chain is and how it changes, `manager` the one who
changes it in the coordinator, `replica` all three as one machine. See docs/chain.md.
"""

from qanat.protocols.chain.config import ChainConfig
from qanat.protocols.chain.configuration import Configuration, Member, Registration, decide
from qanat.protocols.chain.machine import Chain
from qanat.protocols.chain.manager import ChainManager
from qanat.protocols.chain.replica import Replica
from qanat.protocols.chain.requests import (
    Answered,
    GiveUp,
    Leave,
    Named,
    Placed,
    Publish,
    Refused,
    Reset,
    Stable,
    Store,
    Wanted,
    WasReset,
)

__all__ = [
    "Answered",
    "Chain",
    "ChainConfig",
    "ChainManager",
    "Configuration",
    "GiveUp",
    "Leave",
    "Member",
    "Named",
    "Placed",
    "Publish",
    "Refused",
    "Registration",
    "Replica",
    "Reset",
    "Stable",
    "Store",
    "Wanted",
    "WasReset",
    "decide",
]
