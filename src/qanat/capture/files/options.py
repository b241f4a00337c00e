"""What a URL of files may say behind its question mark."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qanat.capture.errors import BadLogUrl
from qanat.capture.files.filesystem import Found
from qanat.capture.url import LogUrl

OPTIONS = {
    "format": "jsonl, lines, u32be, u32le or avro; by the name's end if not given",
    "columns": "of JSON lines: fields (the default), or value: each line as it is",
    "table": "the name of the table that the records are rows of",
    "key": "its key: names of columns with commas between them",
    "dataset": (
        "the name of the source, the same at every copy of the files (the pattern, and a mark of the folder"
        " of the numbers)"
    ),
    "register": "the folder where numbers of files are remembered, if not beside the files",
    "order": (
        "in which files that are seen together are numbered: name (the default), or time of their last change"
    ),
    "settle_s": "a file that has a successor is left when it has not changed for so long (1)",
    "record_limit": "the longest record, and block of Avro, in bytes (16777216)",
}


@dataclass(frozen=True, slots=True)
class FilesOptions:
    pattern: str
    dataset: str
    name: str
    """Where there is no `dataset`, this and what identifies the register."""
    table: str
    key: tuple[str, ...] = ()
    format: str = ""
    as_value: bool = False
    register: str = ""
    order: Callable[[Found], tuple[object, ...]] = lambda file: (file.path,)
    settle_s: float = 1.0
    """Writers that change to a new file close the old one at once; a second covers those that flush it
    late."""
    record_limit: int = 16 << 20
    """As the limit of a frame: what is larger cannot be an event."""


def read_options(url: LogUrl, options: Mapping[str, Any]) -> FilesOptions:
    pattern = url.path
    if not pattern or pattern == "/":
        raise BadLogUrl(f"{url}: there is no path in it; write file:///folder/pattern")
    orders: dict[str, Callable[[Found], tuple[object, ...]]] = {
        "name": lambda file: (file.path,),
        "time": lambda file: (file.changed_us, file.path),
    }
    order = str(options.get("order", "name"))
    if order not in orders:
        raise BadLogUrl(f"{url}: order is name or time, not {order!r}")
    columns = str(options.get("columns", "fields"))
    if columns not in ("fields", "value"):
        raise BadLogUrl(f"{url}: columns is fields or value, not {columns!r}")
    return FilesOptions(
        pattern,
        str(options.get("dataset") or ""),
        f"{url.scheme}:{pattern}",
        str(options.get("table") or _table(pattern)),
        tuple(name for name in str(options.get("key", "")).split(",") if name),
        str(options.get("format", "")),
        columns == "value",
        str(options.get("register", "")),
        orders[order],
        _number(url, options, "settle_s", 1.0, 0.0, 86400.0),
        int(_number(url, options, "record_limit", 16 << 20, 1, 1 << 30)),
    )


def _number(
    url: LogUrl, options: Mapping[str, Any], name: str, usual: float, low: float, high: float
) -> float:
    try:
        value = float(options.get(name, usual))
    except (TypeError, ValueError):
        value = float("nan")
    if not low <= value <= high:
        raise BadLogUrl(
            f"{url}: {name} is a number from {low:g} to {high:g}, not {str(options[name])[:40]!r}"
        )
    return value


def _table(pattern: str) -> str:
    """`events` from `/logs/events-*.jsonl`, `logs` from `/logs/*`."""
    folder, _, name = pattern.rstrip("/").rpartition("/")
    stem = re.split(r"[*?\[]|\.[a-z]", name)[0].strip("-_. ")
    return stem or re.split(r"[*?\[]", folder)[0].rstrip("/").rpartition("/")[2] or "records"
