"""Which regular expressions mean the same to Java as to RE2, written so that they do.

The two engines differ in what `.`, `$`, `\\s`, `\\b` and `(?i)` are, and Java goes back: some patterns would
take it forever. So what is translated is plain: characters, classes, `.`, `\\d \\w \\s`, repetitions that
cannot be tried in many ways, `^` at the beginning and `$` at the end. All else is left to RE2 itself.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

_DIGITS, _WORD, _SPACE = "0-9", "0-9A-Za-z_", r"\t\n\f\r "
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_ITEM = re.compile(
    r"(?P<dot>\.)"
    r"|\\(?P<class>[dwsDWS])"
    r"|\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|\[(?P<negated>\^?)(?P<members>(?:[0-9A-Za-z_ ,;:/#@=<>%&!~\"'.+*?|(){}$\u0080-\U0010ffff]"
    r"|(?:[0-9]-[0-9]|[a-z]-[a-z]|[A-Z]-[A-Z])|\\[dws]|\\[!-/:-@\[-`{-~])+)\]"
    r"|(?P<literal>[^\\^$.|?*+()\[\]{}])"
)
_TIMES = re.compile(r"(?P<sign>[?*+])\??|\{(?P<least>[0-9]{1,3})(?P<comma>,(?P<most>[0-9]{1,3})?)?\}\??")
_WAYS = 64
"""In how many ways the repetitions of a pattern may be tried at one place of the text."""


@lru_cache(maxsize=4096)
def java_pattern(pattern: str) -> str | None:
    """The same for Java, or None."""
    anchored = pattern.startswith("^")
    at, made, ways, endless = int(anchored), [r"\A"] if anchored else [], 1, False
    while at < len(pattern):
        if pattern[at:] == "$":
            return "".join([*made, r"\z"])
        item = _ITEM.match(pattern, at)
        if item is None:
            return None
        at = item.end()
        made.append(_written(item))
        times = _TIMES.match(pattern, at)
        if times is None:
            continue
        at = times.end()
        sign, least, most = times["sign"], times["least"], times["most"]
        if sign in ("*", "+") or (least is not None and times["comma"] and most is None):
            # From each beginning to each end would be a square of the text's length, unless there is one
            # beginning.
            if endless or not anchored:
                return None
            endless = True
            made.append(sign if sign else f"{{{least},}}")
        elif sign:
            ways *= 2
            made.append("?")
        else:
            high = int(most or least)
            if high < int(least):
                return None
            ways *= high - int(least) + 1
            made.append(f"{{{int(least)},{high}}}")
        if ways > _WAYS:
            return None
    return "".join(made)


def _written(item: re.Match[str]) -> str:
    if item["dot"]:
        return r"[^\n]"
    if item["class"]:
        name = item["class"]
        return f"[{'^' if name.isupper() else ''}{_CLASSES[name.lower()]}]"
    if item["members"]:
        return f"[{item['negated']}{_members(item['members'])}]"
    return _code(item["escaped"] or item["literal"])


def _members(text: str) -> str:
    made, at = [], 0
    while at < len(text):
        if text[at] == "\\":
            name = text[at + 1]
            made.append(_CLASSES[name] if name in _CLASSES else _code(name))
            at += 2
        elif text[at + 1 : at + 2] == "-":
            made.append(f"{_code(text[at])}-{_code(text[at + 2])}")
            at += 3
        else:
            made.append(_code(text[at]))
            at += 1
    return "".join(made)


def _code(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


def re2_function(pattern: str) -> Callable[[Any], Any]:
    """A Spark function of texts that asks RE2."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    from qanat.events.filters import patterns

    def found(texts: pa.Array) -> pa.Array:
        return patterns.search(texts, pattern)

    made: Any = arrow_udf  # its kind is told by the hints of what it is given
    return cast(Callable[[Any], Any], made(found, "boolean"))
