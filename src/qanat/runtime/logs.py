"""Log lines: key=value for people, or one JSON object per line."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from qanat.events.ranges import printable

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def extra(**fields: object) -> dict[str, object]:
    """Fields whose names others chose, made safe for `extra=`: the logging module refuses its own names
    there."""
    return {f"{name}_" if name in _STANDARD else name: value for name, value in fields.items()}


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z warning qanat.transport connection closed peer=a@127.0.0.1:9
    reason=silent`"""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname.lower(), record.name, record.getMessage()]
        parts += [f"{name}={_quoted(value)}" for name, value in _extras(record).items() if value != ""]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + printable(self.formatException(record.exc_info), keep="\n\t")
        return line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return printable(json.dumps(entry, default=str, ensure_ascii=False))


def _quoted(value: object) -> str:
    """A value as one word: what a peer sent us cannot break the line or fake a field."""
    text = str(value)
    plain = text and text.isprintable() and not any(c in text for c in ' "=')
    return text if plain else printable(json.dumps(text, ensure_ascii=False))


def set_up_unless_done(level: str) -> None:
    """For commands that log little: with the reasons, where nobody has said how."""
    if not logging.getLogger("qanat").hasHandlers():
        set_up(level)


def set_up(level: str = "info", format_: str = "text", stream: TextIO | None = None) -> None:
    """Makes this the one way in which the package logs; may be called again to change it."""
    logger = logging.getLogger("qanat")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format_ == "json" else TextFormatter())
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
