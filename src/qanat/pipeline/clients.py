"""Clients of Spark's Python processes: one per server and process, kept from task to task.

Spark runs task after task, and micro-batch after micro-batch, in the same few processes; a connection for each would cost more
than a small task itself.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from qanat.client import Client, ClientSettings
from qanat.events.errors import QanatError

_kept: dict[tuple[int, str, str, str], Client] = {}
_SETTINGS = ClientSettings(subscription_bytes=16 << 20, window_bytes=64 << 20)
"""Ranges are read by few, and as fast as they can: more may be under way than for a listener."""


@contextmanager
def client_of(url: str, name: str = "", durability: str = "") -> Iterator[Client]:
    """A client of this process; after an error it is closed, and the next one is new."""
    key = os.getpid(), url, name, durability
    client = _kept.get(key)
    if client is None:
        client = _kept[key] = Client(url, name=name, durability=durability, settings=_SETTINGS)
    try:
        yield client
    except GeneratorExit:  # a reader that was told to stop, as by LIMIT
        raise
    except BaseException:
        forget(url, name, durability)
        raise


def forget(url: str, name: str = "", durability: str = "") -> None:
    """Closes a client, if there is one; what was published and not answered is then unsure."""
    client = _kept.pop((os.getpid(), url, name, durability), None)
    if client is not None:
        with suppress(QanatError):
            client.close()
