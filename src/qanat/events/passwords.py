"""Text that may hold a password, as it may be printed."""

import re
from collections.abc import Iterable

_OPTION = re.compile(r"([?&;][^=&?#;]*(?:pass|pwd|secret|token)[^=&?#;]*=)[^&#]*", re.IGNORECASE)
_PORT = re.compile(r"\d{1,5}(?![^/?#])|$")


def is_scheme(text: str) -> bool:
    """Whether it looks like one; else a `://` may be of a password."""
    return re.fullmatch(r"[a-z][a-z0-9+.-]*", text.strip(), re.IGNORECASE) is not None


def without_password(url: str) -> str:
    """A URL, well formed or not. Rather too much is left out than a part of a password shown.

    What lies between the first colon of the login and the last `@` may all be password: whoever mistypes a
    URL has not encoded a `/`, `?`, `#` or `@` in it either. Without an `@` it is what stands where the port
    should be.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or not is_scheme(scheme):
        scheme, separator, rest = "", "", url
    login, at, hosts = rest.rpartition("@")
    if at:
        user, colon, _ = login.partition(":")
        rest = f"{user}{colon}…@{hosts}" if colon else rest
    else:
        rest = ",".join(map(_without_wrong_port, rest.split(",")))
    return _OPTION.sub(r"\1…", f"{scheme}{separator}{rest}")


def _without_wrong_port(address: str) -> str:
    bracket = address.rfind("]") + 1
    host, colon, port = address[bracket:].partition(":")
    if not colon or _PORT.match(port) or "/" in host:
        return address
    return f"{address[:bracket]}{host}:…"


def words_without_password(message: str, words: Iterable[str]) -> str:
    """A message that quotes some of these words, which somebody typed in the wrong place or with a
    mistake."""
    for word in words:
        if "@" in word or "://" in word:
            message = message.replace(word, without_password(word))
    return message
