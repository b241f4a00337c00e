"""`zookeeper://host:port,host:port/root`: the servers of an ensemble, and the node under which everything of
ours lies."""

from typing import NamedTuple

from qanat.coordinate.tree import well_formed
from qanat.events.errors import LocalError
from qanat.events.passwords import without_password

SCHEME = "zookeeper"
DEFAULT_PORT = 2181
_EXAMPLE = f"write {SCHEME}://host:{DEFAULT_PORT},host:{DEFAULT_PORT}/root"


class BadZooKeeperUrl(LocalError):
    """Text that is no address of an ensemble."""


class ZooKeeperAddress(NamedTuple):
    """`root` is `/a/b`, or empty: then nodes lie at the top."""

    servers: tuple[tuple[str, int], ...]
    root: str = ""

    @classmethod
    def parse(cls, text: str) -> "ZooKeeperAddress":
        scheme, separator, rest = text.strip().partition("://")
        if not separator or scheme.lower() != SCHEME:
            raise BadZooKeeperUrl(
                f"{without_password(text)!r} is no address of a ZooKeeper ensemble: {_EXAMPLE}"
            )
        if "@" in rest:  # and with it, it may be, a password, which is not to be printed
            raise BadZooKeeperUrl(
                "an address of a ZooKeeper ensemble has no user in it: name it in zookeeper.user, and"
                f" {_EXAMPLE}"
            )
        named, slash, root = rest.partition("/")
        root = f"{slash}{root}".rstrip("/")
        if root and not well_formed(root):
            raise BadZooKeeperUrl(f"{text!r}: {root!r} is no path of a node: {_EXAMPLE}")
        servers = dict.fromkeys(_server(text, part) for part in named.split(","))
        return cls(tuple(servers), root)

    @property
    def hosts(self) -> str:
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers
        )

    def __str__(self) -> str:
        return f"{SCHEME}://{self.hosts}{self.root}"


def _server(text: str, part: str) -> tuple[str, int]:
    part = part.strip()
    if part.startswith("["):
        host, _, port = part[1:].partition("]")
        colon, port = bool(port), port.removeprefix(":")
    else:
        host, separator, port = part.partition(":")
        colon = bool(separator)
    if not host or any(each in "?#" or each.isspace() for each in host):
        raise BadZooKeeperUrl(f"{text!r}: there is a server without a host in it: {_EXAMPLE}")
    if not colon:
        return host, DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        shown = without_password(text)
        raise BadZooKeeperUrl(f"{shown!r}: its port is not a number from 1 to 65535")
    return host, int(port)
