"""Clients of Spark's Python processes: one per server and process, kept from task to task.

Spark runs task after task, and micro-batch after micro-batch, in the same few processes; a connection for
each would cost more than a small task itself.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from qanat.client import Client, ClientSettings
from qanat.events.errors import QanatError
from qanat.runtime.patience import PATIENCE_S

_kept: dict[tuple[int, str, str, str, float], Client] = {}
_SETTINGS = ClientSettings(subscription_bytes=16 << 20, window_bytes=64 << 20)
"""Ranges are read by few, and as fast as they can: more may be under way than for a listener."""


@contextmanager
def client_of(
    url: str, name: str = "", durability: str = "", patience: float = PATIENCE_S
) -> Iterator[Client]:
    """A client of this process; after an error it is closed, and the next one is new.

    One that is kept may have ended meanwhile, while nobody used it: its server was away for longer than it is
    patient. It is never used again.
    """
    key = os.getpid(), url, name, durability, patience
    client = _kept.get(key)
    if client is not None and client.error is not None:
        _forget(key)
        client = None
    if client is None:
        client = _kept[key] = Client(
            url, name=name, durability=durability, patience=patience, settings=_SETTINGS
        )
    try:
        yield client
    except GeneratorExit:  # a reader that was told to stop, as by LIMIT
        raise
    except BaseException:
        _forget(key)
        raise


def forget(url: str) -> None:
    """Closes all clients of a server."""
    for key in [key for key in _kept if key[1] == url]:
        _forget(key)


def _forget(key: tuple[int, str, str, str, float]) -> None:
    """Closes a client, if there is one; what was published and not answered is then unsure."""
    client = _kept.pop(key, None)
    if client is not None:
        with suppress(QanatError):
            client.close()
