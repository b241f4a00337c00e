"""Names of nodes that strangers can dial: `3fa9c1d2@10.0.0.7:41234`.

A member of a mesh hears of others by name alone, from whoever knows them. So its name says where it listens;
what is before the `@` tells it from whoever had that port before it.
"""

from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from qanat.kernel import Address
from qanat.runtime.links import Book
from qanat.runtime.url import BadUrl, Url, format_address, parse_url

HEARD_MAX = 65_536
"""Members that are remembered, about 300 bytes each; beyond it those are forgotten that were silent for
longest."""
MESH_CHANNEL = 17
"""The channel of the machine that passes events along between the clients of a region."""


def member_name(token: str, host: str, port: int) -> Address:
    return Address(f"{token}@{format_address(host, port)}")


@lru_cache(maxsize=4096)
def member_url(name: str) -> Url | None:
    """Where the member listens; None for a name that does not say."""
    token, separator, where = name.partition("@")
    if token and separator and where.rpartition(":")[2].isdigit():
        with suppress(BadUrl):
            url = parse_url(where)
            return url if url.port else None
    return None


def with_members(book: Book) -> Book:
    """A book that knows what `book` knows, and members by their names: for who was told by members of other
    members."""
    return lambda name: book(name) or member_url(name)


def came_from(name: str, host: str, port: int | None = None) -> bool:
    """Whether what came from there may be of that name; only names that say where they listen can be
    wrong."""
    url = member_url(name)
    return url is None or (_same(url.host, host) and port in (None, url.port))


@lru_cache(maxsize=4096)
def _same(host: str, other: str) -> bool:
    if host == other:
        return True
    try:
        return _plain(host) == _plain(other)
    except ValueError:  # a name is no address: where it leads may change
        return False


def _plain(host: str) -> IPv4Address | IPv6Address:
    address = ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


class Heard:
    """A book for who serves strangers: a member is dialled or answered only after something came from the
    address that its name says."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._heard: dict[str, Url] = {}

    def __call__(self, name: str) -> Url | None:
        return self._book(name) or self._heard.get(name)

    def came(self, name: str, host: str, port: int | None = None) -> None:
        """Something came from there under that name."""
        url = self._heard.pop(name, None)
        if url is None and came_from(name, host, port):
            url = member_url(name)
        if url is not None:
            self._heard[name] = url  # it was heard last
            if len(self._heard) > HEARD_MAX:
                del self._heard[next(iter(self._heard))]
