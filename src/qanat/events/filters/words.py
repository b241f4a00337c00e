"""The words of the language: what is reserved, what the limits are, how names and texts are written."""

from qanat.events.filters.errors import FilterError
from qanat.events.filters.numerals import INT_END

MAX_TEXT_BYTES = 64 * 1024  # of a filter as written and as printed
MAX_CONJUNCTIONS = 1024  # of the normal form: bounds what `not` of groups and `and` of groups may unfold to
MAX_PATTERN_BYTES = 1024  # of one regular expression
# instructions of all of a filter's patterns: 2 µs for each byte of text that they search, at worst
MAX_PATTERNS_SIZE = 20_000
MAX_DEPTH = 64  # of parentheses

BUILT_IN = frozenset({"@key", "@seq", "@time", "@kind", "@size", "@source"})
"""Columns of an event that a filter may test as if they were attributes."""

RESERVED = frozenset(
    {"and", "or", "not", "in", "exists", "all", "true", "false", "upto", "same", "keep", "older"}
)

UNITS_US = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}


def check_encodable(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise FilterError("text has no lone surrogates: it must be valid Unicode") from None


def check_name(name: str) -> None:
    if not name:
        raise FilterError("an attribute's name is not empty")
    if name[0] == "@" and name not in BUILT_IN:
        raise FilterError(f"there is no {name}; the columns of an event are {', '.join(sorted(BUILT_IN))}")
    check_encodable(name)


def check_count(value: int) -> None:
    if not 0 <= value < INT_END:
        raise FilterError(f"{value} is not between 0 and {INT_END - 1}")


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-#/:")


def print_name(name: str) -> str:
    if name in BUILT_IN:
        return name
    bare = (
        name
        and name.lower() not in RESERVED
        and _BARE.issuperset(name)
        and ".." not in name
        and (name[0].isalpha() or name[0] in "_#/:")
    )
    return name if bare else '"' + name.replace('"', '""') + '"'
