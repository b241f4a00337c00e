"""Whether a RocksDB keeps its log for as long as a reader may be away, and which option to set where it does
not."""

from collections.abc import Mapping
from typing import Any

from qanat.capture.errors import LogUnreachable, MalformedLog
from qanat.capture.rocksdb.files import list_logs, read_manifest
from qanat.capture.rocksdb.options import read_options
from qanat.capture.rocksdb.reader import folders_of
from qanat.capture.url import Finding, LogUrl

_REFUSED = (
    "kSnappyCompression",
    "kLZ4Compression",
    "kZlibCompression",
    "kBZip2Compression",
    "kLZ4HCCompression",
)


def check(url: LogUrl, options: Mapping[str, Any]) -> list[Finding]:
    folders = folders_of(url, options)
    found: list[Finding] = []
    try:
        logs = list_logs(folders)
        families = read_manifest(folders).families
        found.append(Finding(True, f"{len(logs)} log files and {len(families)} column families can be read"))
    except (LogUnreachable, MalformedLog) as error:
        found.append(Finding(False, str(error), f"let this user read {folders.database} and {folders.logs}"))
    settings = read_options(folders.database)
    if not settings:
        fix = "look at the retention of the log where the database is opened: Options::WAL_ttl_seconds"
        return [*found, Finding(False, "there is no OPTIONS file, so the retention is not known", fix)]
    return [*found, _retention(settings), *_recycling(settings), *_others(settings)]


def _retention(settings: Mapping[str, str]) -> Finding:
    seconds, megabytes = _number(settings, "WAL_ttl_seconds"), _number(settings, "WAL_size_limit_MB")
    if not seconds and not megabytes:
        return Finding(
            False,
            "log files are deleted as soon as they are flushed (WAL_ttl_seconds and WAL_size_limit_MB are 0)",
            "open the database with WAL_ttl_seconds = 172800 (two days), and WAL_size_limit_MB if its disk is"
            " small",
        )
    bounds = []
    if seconds:
        bounds.append(f"after {seconds} s (WAL_ttl_seconds)")
    if megabytes:
        bounds.append(f"beyond {megabytes} MB (WAL_size_limit_MB)")
    return Finding(True, f"archived log files are deleted {' and '.join(bounds)}")


def _recycling(settings: Mapping[str, str]) -> list[Finding]:
    if not _number(settings, "recycle_log_file_num"):
        return []
    return [
        Finding(
            False,
            "log files are overwritten instead of being archived (recycle_log_file_num is not 0)",
            "open the database with recycle_log_file_num = 0 and WAL_ttl_seconds = 172800",
        )
    ]


def _others(settings: Mapping[str, str]) -> list[Finding]:
    found = []
    if settings.get("wal_compression", "") in _REFUSED:
        fix = "open the database with wal_compression = kZSTD or kNoCompression"
        found.append(Finding(False, f"the log is compressed by {settings['wal_compression']}", fix))
    if settings.get("manual_wal_flush") == "true":
        said = "writes come to the log only when the application calls FlushWAL (manual_wal_flush)"
        found.append(
            Finding(True, said, "open the database with manual_wal_flush = false to have them at once")
        )
    if settings.get("wal_recovery_mode") == "kSkipAnyCorruptedRecords":
        said = "after a crash, damaged records of the log are passed over (wal_recovery_mode)"
        fix = "open the database with wal_recovery_mode = kPointInTimeRecovery"
        found.append(Finding(False, said, fix))
    return found


def _number(settings: Mapping[str, str], name: str) -> int:
    text = settings.get(name, "0")
    return int(text) if text.isdigit() else 0
