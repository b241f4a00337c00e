"""A stream's log settings in words: from options of the command line, and to sentences."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from qanat.cli.deployment_status import duration
from qanat.cli.options import bytes_of, milliseconds

NONE = "none"


def add_kept_as(parser: argparse.ArgumentParser, *, new: bool) -> None:
    parser.add_argument(
        "--durability",
        choices=("always", "interval", "memory"),
        help="always: acknowledge after a sync; interval: sync within 50 ms; memory: never on a disk"
        if new
        else "always or interval; a stream in memory stays in memory",
    )
    none = "" if new else f", or {NONE}"
    parser.add_argument(
        "--by-key",
        choices=("yes", "no"),
        nargs="?",
        const="yes",
        help="an event collects all earlier events of its key",
    )
    parser.add_argument(
        "--keep-last",
        metavar="N",
        type=_or_none(_count),
        help=f"keep the last N events and collect older ones{none}",
    )
    parser.add_argument(
        "--max-age",
        metavar="AGE",
        type=_or_none(milliseconds),
        help=f"as 90s, 12h, 7d: collect older events{none}",
    )
    parser.add_argument(
        "--retain-bytes",
        metavar="BYTES",
        type=_or_none(bytes_of),
        help=f"as 500M, 20G: drop the oldest events beyond it without tombstones{none}",
    )
    parser.add_argument(
        "--retain-age",
        metavar="AGE",
        type=_or_none(milliseconds),
        help=f"drop events that are this much older than the newest one{none}",
    )
    if new:
        parser.add_argument(
            "--indexed",
            metavar="NAMES",
            help="attributes that GC events' predicates use, separated by commas",
        )


def kept_as(args: argparse.Namespace) -> dict[str, Any]:
    """The given options as a server takes them; None is the default."""
    policy: dict[str, Any] = {}
    if args.by_key is not None:
        policy["by_key"] = args.by_key == "yes"
    for name, value in (("keep_last", args.keep_last), ("age_ms", args.max_age)):
        if value is not None:
            policy[name] = None if value == NONE else value
    said: dict[str, Any] = {"policy": policy} if policy else {}
    if args.durability is not None:
        said["mode"] = args.durability
    for name, value in (("retain_bytes", args.retain_bytes), ("retain_age_ms", args.retain_age)):
        if value is not None:
            said[name] = None if value == NONE else value
    if getattr(args, "indexed", None):
        said["indexed"] = [name.strip() for name in args.indexed.split(",") if name.strip()]
    return said


def policy_words(policy: Mapping[str, Any]) -> str:
    """A policy in few words, for a table."""
    parts = ["by key"] if policy.get("by_key") else []
    if policy.get("keep_last"):
        parts.append(f"last {policy['keep_last']:,}")
    if policy.get("age_ms"):
        parts.append(f"up to {_age(policy['age_ms'])} old")
    return ", ".join(parts)


def kept_words(kept: Mapping[str, Any]) -> str:
    """A description's `kept_as` as one line."""
    retained = [f"{kept['retain_bytes']:,} bytes"] if kept["retain_bytes"] else []
    retained += [f"{_age(kept['retain_age_ms'])}"] if kept["retain_age_ms"] else []
    words = [
        f"durability {kept['mode']}",
        f"policy {policy_words(kept['policy']) or NONE}",
        f"retention {' and '.join(retained) or NONE}",
    ]
    if kept["indexed"]:
        words.append(f"indexed {', '.join(kept['indexed'])}")
    return "; ".join(words)


def _age(ms: int) -> str:
    return duration(ms / 1000) if ms >= 1000 else f"{ms} ms"


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def _or_none(kind: Any) -> Any:
    def read(text: str) -> Any:
        return NONE if text == NONE else kind(text)

    return read
