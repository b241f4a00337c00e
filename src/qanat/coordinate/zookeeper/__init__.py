"""ZooKeeper as the coordinator: `zookeeper://host:port,host:port/root`.

A node's machine talks to it by the very messages that the embedded server takes. `bridge` answers them, in
the node's own process, for one ZooKeeper session at a time (`life`); `link` is what these need of a client of
ZooKeeper, `kazoo_link` makes it of kazoo. `access` is who we are to the servers.
"""

from qanat.coordinate.zookeeper.access import Keys, ZooKeeperAccess
from qanat.coordinate.zookeeper.address import SCHEME, ZooKeeperAddress
from qanat.coordinate.zookeeper.bridge import Bridge
from qanat.coordinate.zookeeper.link import Connect, Found, Link, LinkListener

__all__ = [
    "SCHEME",
    "Bridge",
    "Connect",
    "Found",
    "Keys",
    "Link",
    "LinkListener",
    "ZooKeeperAccess",
    "ZooKeeperAddress",
]
