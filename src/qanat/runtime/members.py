"""Names of nodes that strangers can dial: `3fa9c1d2@10.0.0.7:41234`.

A member of a mesh hears of others by name alone, from whoever knows them. So its name says where it listens; what is
before the `@` tells it from whoever had that port before it.
"""

from contextlib import suppress
from functools import lru_cache

from qanat.kernel import Address
from qanat.runtime.links import Book
from qanat.runtime.url import BadUrl, Url, format_address, parse_url

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
    """A book that knows what `book` knows, and members by their names."""
    return lambda name: book(name) or member_url(name)
