"""A log that is kept in another way from now on, while it is appended to and read.

| key | when |
|---|---|
| `retain_bytes`, `retain_age_ms`, `interval_ms`, `ahead_ms`, `rewrite_dead_fraction` | at once |
| `policy` | once the log was read: what the new policy collects is found as when a log is opened |
| `mode` between `always` and `interval` | at once |
| all others | when the log is opened again |
"""

import msgspec

from qanat.events.errors import LocalError
from qanat.log.collector import Collector
from qanat.log.config import LogConfig
from qanat.log.reader import Truncated
from qanat.log.stream_log import StreamLog

LIVE = frozenset(
    ("mode", "policy", "retain_bytes", "retain_age_ms", "interval_ms", "ahead_ms", "rewrite_dead_fraction")
)
"""Keys that change while a log is in use."""
_READ_BYTES = 1 << 20


class TwoHistories(LocalError):
    """What is in memory and what is on disk cannot become each other."""


def differing(old: LogConfig, new: LogConfig) -> set[str]:
    """Keys of a log that say another thing."""
    names = (info.name for info in msgspec.structs.fields(LogConfig))
    return {name for name in names if getattr(old, name) != getattr(new, name)}


def check_rekeeping(old: LogConfig, new: LogConfig) -> None:
    if old.mode != new.mode and "memory" in (old.mode, new.mode):
        raise TwoHistories(
            f"a stream cannot go from {old.mode} to {new.mode}: what is in memory and what is on disk are two"
            " histories; make another stream"
        )


def keep_as(log: StreamLog, config: LogConfig, keys: frozenset[str] = LIVE) -> None:
    """Changes these keys to those of `config`; for a worker thread, since a new policy reads the whole log
    once."""
    differ = differing(log.config, config) & keys
    if "mode" in differ:
        check_rekeeping(log.config, config)
    new = msgspec.structs.replace(log.config, **{name: getattr(config, name) for name in differ})
    if not differ:
        return
    store, _, _, collection = log.parts
    with collection.busy:
        if "policy" in differ:
            collector = Collector(new)
            at = _ingest(log, collector, log.first)
            with store.lock:  # what was appended meanwhile is little
                store.check_open()
                _ingest(log, collector, at)
                log.keep_as(new, collector)
        else:
            with store.lock:
                log.keep_as(new)
    if new.mode == "always":
        log.sync()


def _ingest(log: StreamLog, collector: Collector, start: int) -> int:
    """All that is there from `start` on; returns what comes next."""
    while start < log.next:
        chunk = log.read(start, _READ_BYTES, upto=log.next - 1)
        if not isinstance(chunk, Truncated):
            for batch in chunk.batches():
                collector.ingest(batch)
        start = chunk.last + 1
    return start
