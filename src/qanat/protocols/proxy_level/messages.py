"""What proxies say to each other, all of it on FIFO channels.

A subscription is named by a token that its subscriber counts up, so that nothing that belongs to an earlier one is
taken for the present one. Streams are named by their 64-bit id.
"""

from typing import TypeAlias

from qanat.events.batch import Batch
from qanat.kernel import Message


class Advertisement(Message, frozen=True):
    """Periodically to every peer: (stream, counter) of all that the sender could serve."""

    counters: tuple[tuple[int, int], ...]


class Subscribe(Message, frozen=True):
    """Push me this stream from after `after`, which is how far I have got."""

    stream: int
    after: int
    token: int


class Unsubscribe(Message, frozen=True):
    """That subscription is over."""

    stream: int
    token: int


class Events(Message, frozen=True):
    """The next batches of a subscription, as they lie in the sender's history; the first may begin earlier."""

    stream: int
    token: int
    batches: tuple[Batch, ...]


class Ack(Message, frozen=True):
    """The subscriber's counter is `upto`: that much room in the window is free again."""

    stream: int
    token: int
    upto: int


class Unserved(Message, frozen=True):
    """The subscription is over: the sender no longer has `first`..`last`, nor tombstones for them."""

    stream: int
    token: int
    first: int
    last: int


class Ended(Message, frozen=True):
    """The subscription is over: the sender serves nobody any more (it was the tail of its chain); another will."""

    stream: int
    token: int


ProxyLevelMessage: TypeAlias = Advertisement | Subscribe | Unsubscribe | Events | Ack | Unserved | Ended
MESSAGES = (Advertisement, Subscribe, Unsubscribe, Events, Ack, Unserved, Ended)
