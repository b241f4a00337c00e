"""What people may say of how a stream is kept while its server runs: the keys, and how a change becomes a
configuration."""

from typing import TypeVar

import msgspec

from qanat.events.errors import LocalError
from qanat.log.config import LogConfig

SAID = frozenset(
    ("mode", "interval_ms", "policy", "indexed", "retain_bytes", "retain_age_ms", "rewrite_dead_fraction")
)
"""Keys of a log that are said by a request. The others decide what a stream may cost the process: they stand
in the server's file alone."""
MADE = frozenset(("indexed",))
"""Of these, those that are said when a stream is made, and stay."""
_INDEXED_MAX = 16


class BadSettings(LocalError):
    """What was said of how a stream is to be kept cannot be."""


_C = TypeVar("_C", bound=LogConfig)


def changed(base: _C, said: bytes) -> _C:
    """`base` with what a request says; what it leaves out stays, and null takes the default (as in JSON Merge
    Patch, RFC 7396)."""
    if not said:
        return base
    try:
        asked = msgspec.json.decode(said, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadSettings(f"settings are a JSON object: {error}") from error
    unknown = sorted(asked.keys() - SAID)
    if unknown:
        raise BadSettings(
            f"{', '.join(unknown)} cannot be said of a stream by a request: expected"
            f" {', '.join(sorted(SAID))}"
        )
    try:
        merged = _merged(msgspec.to_builtins(base), asked)
        config = msgspec.convert(merged, type(base))
    except (msgspec.MsgspecError, LocalError) as error:
        raise BadSettings(f"a stream cannot be kept so: {error}") from error
    if len(config.indexed) > _INDEXED_MAX:
        raise BadSettings(f"{len(config.indexed)} attributes are indexed; {_INDEXED_MAX} are the most")
    if config.mode == "memory" and (config.retained_bytes or 0) > (
        LogConfig(mode="memory").retained_bytes or 0
    ):
        raise BadSettings(
            f"a stream in memory keeps {LogConfig(mode='memory').retained_bytes} bytes at most"
            " (retain_bytes), unless a file says more"
        )
    return config


def _merged(base: dict[str, object], asked: dict[str, object]) -> dict[str, object]:
    out = dict(base)
    for key, value in asked.items():
        inner = base.get(key)
        if value is None:
            out.pop(key, None)
        elif isinstance(value, dict) and isinstance(inner, dict):
            out[key] = _merged(inner, value)
        else:
            out[key] = value
    return out


def shown(config: LogConfig) -> dict[str, object]:
    """How a stream is kept, as far as people may say it."""
    tree = msgspec.to_builtins(config)
    return {name: tree[name] for name in sorted(SAID)}
