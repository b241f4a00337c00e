"""Splits a filter's text into tokens, each with the place where it starts."""

import re
from typing import NamedTuple

from qanat.events.filters.errors import FilterError

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<text>'(?:[^']|'')*')
      | (?P<name>"(?:[^"]|"")*")
      | (?P<range>\.\.)
      | (?P<word>(?:[\w\-\#/:@+]|\.(?!\.))+)
      | (?P<mark>!=|[=~(),])""",
    re.VERBOSE,
)
_HINTS = {
    "'": "the quote is never closed",
    '"': "the quote is never closed",
    "<": "there is no '<'; write an interval: k in ..5",
    ">": "there is no '>'; write an interval: k in 5..",
    "&": "write 'and'",
    "|": "write 'or'",
    "!": "write 'not', or != for not equal",
}


class Token(NamedTuple):
    kind: str  # text, name, range, word, mark or end
    value: str  # without quotes
    at: int

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else repr(self.value)


def tokens(text: str) -> list[Token]:
    """All tokens, and one of kind `end`."""
    result, at = [], 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise FilterError(_HINTS.get(text[at], f"{text[at]!r} has no meaning here"), text, at)
        kind, value = str(found.lastgroup), found[0]
        if kind in ("text", "name"):
            value = value[1:-1].replace(value[0] * 2, value[0])
        if kind != "space":
            result.append(Token(kind, value, at))
        at = found.end()
    result.append(Token("end", "", len(text.rstrip()) if text.strip() else 0))
    return result
