"""Raft: a log of opaque records that three members keep, so that losing one of them loses nothing. See
docs/raft.md."""

from qanat.protocols.raft.config import RaftConfig
from qanat.protocols.raft.log import Fold, Log
from qanat.protocols.raft.messages import MESSAGES, RECORD_BYTES_MAX
from qanat.protocols.raft.raft import Office, Raft, Role, Status
from qanat.protocols.raft.records import Kept, begin_from, compact

__all__ = [
    "MESSAGES",
    "RECORD_BYTES_MAX",
    "Fold",
    "Kept",
    "Log",
    "Office",
    "Raft",
    "RaftConfig",
    "Role",
    "Status",
    "begin_from",
    "compact",
]
