"""The durable stream log: segments of batches, recovery, source positions, garbage collection."""

from qanat.log.config import LogConfig, Policy
from qanat.log.disk import Disk, DiskFile, OsDisk
from qanat.log.disk_memory import MemoryDisk
from qanat.log.errors import (
    CorruptLog,
    DiskFailed,
    DiskFull,
    LogClosed,
    NotForThisLog,
    PositionGap,
    PositionOrder,
    SequenceGap,
    SourceLimit,
)
from qanat.log.reader import Chunk, Truncated
from qanat.log.stream_log import Appended, StreamLog

__all__ = [
    "Appended",
    "Chunk",
    "CorruptLog",
    "Disk",
    "DiskFailed",
    "DiskFile",
    "DiskFull",
    "LogClosed",
    "LogConfig",
    "MemoryDisk",
    "NotForThisLog",
    "OsDisk",
    "Policy",
    "PositionGap",
    "PositionOrder",
    "SequenceGap",
    "SourceLimit",
    "StreamLog",
    "Truncated",
]
