"""`qanat://host:port`: where a node listens; `qanat://host:port,host:port`: several of them."""

from collections.abc import Iterable
from typing import NamedTuple

from qanat.events.errors import LocalError
from qanat.events.passwords import is_scheme, without_password

DEFAULT_PORT = 7411
PUBLISHER_PORT = 7421
"""Of publishers, which may run beside a server of streams."""
LOOPBACK = "127.0.0.1"
LOOPBACKS = (LOOPBACK, "localhost")
"""Hosts that are this machine."""
SCHEME = "qanat"


class BadUrl(LocalError):
    """Text that is no address of a node."""


class Url(NamedTuple):
    """A host and a port; `str()` gives the URL back."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"{SCHEME}://{format_address(self.host, self.port)}"


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_url(text: str, default_port: int = DEFAULT_PORT) -> Url:
    """Reads `qanat://host:port`; the scheme and the port may be left out, IPv6 stands in brackets."""
    return _parse(text, default_port, without_password(text))


def _parse(text: str, default_port: int, shown: str) -> Url:
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        rest = scheme
    elif not is_scheme(scheme):
        raise BadUrl(f"{shown!r} is no address; write {SCHEME}://host:{default_port}")
    elif scheme.lower() != SCHEME:
        raise BadUrl(f"{shown!r}: the scheme {scheme!r} is not known; write {SCHEME}://host:{default_port}")
    rest = rest.removesuffix("/")
    if rest.startswith("["):
        host, bracket, port = rest[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise BadUrl(f"{shown!r}: an IPv6 address is written in brackets, as [::1]:{default_port}")
        port = port[1:]
        colon = bool(port) or rest.endswith(":")
    else:
        host, separator, port = rest.partition(":")
        colon = bool(separator)
        if ":" in port:
            raise BadUrl(f"{shown!r}: an IPv6 address is written in brackets, as [::1]:{default_port}")
    if not host or any(c in "/?#@" or c.isspace() for c in host):
        raise BadUrl(f"{shown!r}: there is no host in it; write {SCHEME}://host:{default_port}")
    if not colon:
        return Url(host, default_port)
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise BadUrl(f"{shown!r}: its port is not a number from 0 to 65535")
    return Url(host, int(port))


def parse_urls(text: str, default_port: int = DEFAULT_PORT) -> tuple[Url, ...]:
    """Reads several addresses with commas between them, of which each may have the scheme; none twice."""
    urls: dict[Url, None] = {}
    shown = without_password(text)
    for part in text.split(","):
        if not part.strip() and "," in text:
            raise BadUrl(f"{shown!r}: there is nothing between two commas, or before or after one")
        urls[_parse(part, default_port, shown)] = None
    return tuple(urls)


def format_urls(urls: Iterable[Url]) -> str:
    """What `parse_urls` reads."""
    return f"{SCHEME}://" + ",".join(format_address(*url) for url in urls)
