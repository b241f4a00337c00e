"""How a stream is kept, in words: options of the command line to settings, and settings to sentences."""

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
        help="acknowledged when every replica has it synced, within 50 ms, or never on a disk"
        if new
        else "always or interval; what is in memory stays there",
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
        "--keep-last", metavar="N", type=_or_none(_count), help=f"events; older ones are collected{none}"
    )
    parser.add_argument(
        "--max-age",
        metavar="AGE",
        type=_or_none(milliseconds),
        help=f"as 90s, 12h, 7d; older ones are collected{none}",
    )
    parser.add_argument(
        "--retain-bytes",
        metavar="BYTES",
        type=_or_none(bytes_of),
        help=f"as 500M, 20G; beyond it the oldest are dropped without tombstones{none}",
    )
    parser.add_argument(
        "--retain-age",
        metavar="AGE",
        type=_or_none(milliseconds),
        help=f"likewise what is so much older than the newest event{none}",
    )
    if new:
        parser.add_argument(
            "--indexed",
            metavar="NAMES",
            help="attributes, with commas between them, that GC events' predicates ask for",
        )


def kept_as(args: argparse.Namespace) -> dict[str, Any]:
    """What was said, as a server takes it; None is the default."""
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
    """Short, for a table."""
    parts = ["by key"] if policy.get("by_key") else []
    if policy.get("keep_last"):
        parts.append(f"last {policy['keep_last']:,}")
    if policy.get("age_ms"):
        parts.append(f"up to {_age(policy['age_ms'])} old")
    return ", ".join(parts)


def kept_words(kept: Mapping[str, Any]) -> str:
    """Of a description's `kept_as`: one line."""
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
