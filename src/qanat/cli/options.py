"""Options that several commands share, and the parsers of their values."""

from __future__ import annotations

import argparse
import os
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from qanat.events.errors import LocalError
from qanat.runtime.patience import PATIENCE_S, patience_s

if TYPE_CHECKING:
    from qanat.client.subscription import Where
    from qanat.pipeline.session import SparkSettings

MASTER_VARIABLE = "QANAT_MASTER"
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def add_patience(parser: argparse.ArgumentParser, whom: str = "the server") -> None:
    parser.add_argument(
        "--patience",
        type=patience,
        default=PATIENCE_S,
        metavar="SECONDS",
        help=f"how long to wait for {whom}, at the start and later, as 4 or 2m; 0: not at all"
        f" (default: {PATIENCE_S:g})",
    )


def patience(text: str) -> float:
    """An argparse type: seconds that servers may be unavailable."""
    try:
        return patience_s(text)
    except LocalError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    what: str,
    examples: str,
    description: str = "",
) -> argparse.ArgumentParser:
    """Adds an action to a command, with those of the command's examples that use it."""
    own = [line for line in examples.splitlines() if re.match(rf"  qanat \S+ {name}(?!\S)", line)]
    return actions.add_parser(
        name,
        help=what,
        description=description or f"{what[0].upper()}{what[1:]}.",
        epilog="\n".join(["examples:", *own]) if own else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=what)


def add_master(parser: argparse.ArgumentParser, otherwise: str = "all cores of this machine") -> None:
    """Adds --master, which `spark_settings` reads; `otherwise` is the default."""
    parser.add_argument(
        "--master",
        metavar="URL",
        help=(
            "Spark's master: local[2], spark://host:7077, yarn, k8s://… "
            f"(default: {MASTER_VARIABLE}, else that of spark-submit, else {otherwise})"
        ),
    )


def spark_settings(args: argparse.Namespace, settings: SparkSettings | None = None) -> SparkSettings:
    """The settings of a job, from its file if it has one, with the master of --master or the environment."""
    import msgspec

    from qanat.pipeline.session import SparkSettings

    settings = settings or SparkSettings()
    master = args.master or os.environ.get(MASTER_VARIABLE)
    return msgspec.structs.replace(settings, master=master) if master else settings


def whole(text: str) -> int:
    """An argparse type: a whole number above 0."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """An argparse type: the time between two updates."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.1 <= found <= 86_400:
        raise argparse.ArgumentTypeError(f"must be seconds, 0.1 to 86400, not {text!r}")
    return found


def rate(text: str) -> int:
    """An argparse type: bytes per second, as 500k, 10M or 1G (of 1,000); 0 is without limit."""
    return _scaled(text, "bytes per second")


def bytes_of(text: str) -> int:
    """An argparse type: bytes, as 500k, 10M or 1G (of 1,000)."""
    return _scaled(text, "bytes")


def _scaled(text: str, what: str) -> int:
    units = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
    digits, unit = (text[:-1], units.get(text[-1:].lower(), 0)) if not text.isdigit() else (text, 1)
    if not digits.isdigit() or not unit:
        raise argparse.ArgumentTypeError(f"must be {what}, as 500k or 10M, not {text!r}")
    return int(digits) * unit


def milliseconds(text: str) -> int:
    """An argparse type: an age, as 90s, 10m, 12h or 7d."""
    if not text[:-1].isdigit() or text[-1:] not in _UNITS or not int(text[:-1]):
        raise argparse.ArgumentTypeError(f"must be an age as 90s, 10m, 12h or 7d, not {text!r}")
    return round(timedelta(**{_UNITS[text[-1]]: int(text[:-1])}).total_seconds() * 1000)


def starting_point(text: str) -> Where:
    """`earliest`, `latest`, a sequence number, an ISO time, or an age as `10m` (that long ago)."""
    if text in ("earliest", "latest"):
        return text
    if text.isdigit():
        return int(text)
    if text[:-1].isdigit() and text[-1] in _UNITS:
        return datetime.now(UTC) - timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise LocalError(
            f"--from {text}: give earliest, latest, a sequence number, a time (2026-01-31T12:00:00+00:00) or"
            " an age (10m)"
        ) from None
    return moment if moment.tzinfo else moment.astimezone()
