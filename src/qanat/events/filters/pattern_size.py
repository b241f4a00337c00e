"""How large RE2's program for a pattern becomes, at most about: what a search costs for each byte of text is
in proportion to it.

RE2 unfolds repetitions, and makes a class of letters in any script into some hundred ranges of bytes. So 20
characters of pattern can be a program of a million instructions. It is counted here before RE2 is asked, by
one pass over the pattern; what is no pattern at all RE2 says afterwards.
"""

import re
from functools import lru_cache

_SCRIPT = 800
"""`\\pL` and its like; the largest are about that."""
_ANY = 12
"""`.`, a negated class, a range: the ways to write a character beyond ASCII in UTF-8."""
_CHARACTER = 4
_ITEM = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    r"|(?P<script>\\[pP](?:\{[^}]*\}|.))"
    r"|(?P<escape>\\(?:x\{[0-9A-Fa-f]+\}|x..|[0-7]{1,3}|.))"
    r"|(?P<members>\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]])*\])"
    r"|(?P<open>\((?:\?(?:P?<[^>]*>|[imsU-]*:))?)"
    r"|(?P<flags>\(\?[imsU-]*\))"
    r"|(?P<close>\))"
    r"|\{(?P<least>[0-9]{1,9})(?P<upto>,(?P<most>[0-9]{1,9})?)?\}\??"
    r"|(?P<times>[*+?]\??)"
    r"|(?P<any>.)",
    re.DOTALL,
)


@lru_cache(maxsize=4096)
def pattern_size(pattern: str) -> int:
    """Instructions, estimated from above."""
    groups: list[int] = []
    """What stands before each group that is open."""
    total = last = 0
    for item in _ITEM.finditer(pattern):
        match item.lastgroup:
            case "close":
                last = total - groups[-1] + 2 if groups else 1
                total = groups.pop() + last if groups else total + last
            case "open":
                groups.append(total)
                last = 0
            case "times":
                total += 1
                last += 1
            case "least" | "upto" | "most":
                times = max(int(item["least"]), int(item["most"] or 0)) + 1
                total += last * (times - 1) + times
                last = last * times + times
            case _:
                last = _of(item)
                total += last
    return total


def _of(item: "re.Match[str]") -> int:
    """One character or class, in either case of its letters."""
    if item["quoted"] is not None:
        return _CHARACTER * len(item["quoted"])
    if item["script"]:
        return _SCRIPT
    if item["members"]:
        members = item["members"]
        beyond = sum(_ANY for character in members if not character.isascii()) + _ANY * members.count("\\x")
        return _ANY + 2 * len(members) + beyond + _SCRIPT * (members.count("\\p") + members.count("\\P"))
    if item["flags"]:
        return 0
    if item["escape"]:
        return _ANY
    return _ANY if item["any"] == "." else _CHARACTER
