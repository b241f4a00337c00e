"""What proxies say to each other, all of it on FIFO channels.

A subscription is named by a token that its subscriber counts up, so that nothing that belongs to an earlier
one is taken for the present one. Streams are named by their 64-bit id.
"""

from typing import Annotated, TypeAlias

from msgspec import Meta

from qanat.events.batch import Batch
from qanat.events.ranges import MANY, Count, SeqNumber, StreamId
from qanat.kernel import Message


class Advertisement(Message, frozen=True):
    """Periodically to every peer: (stream, counter) of all that the sender could serve."""

    counters: Annotated[tuple[tuple[StreamId, Count], ...], Meta(max_length=MANY)]


class Subscribe(Message, frozen=True):
    """Push me this stream from after `after`, which is how far I have got."""

    stream: StreamId
    after: Count
    token: Count


class Unsubscribe(Message, frozen=True):
    """That subscription is over."""

    stream: StreamId
    token: Count


class Events(Message, frozen=True):
    """The next batches of a subscription, as they lie in the sender's history; the first may begin
    earlier."""

    stream: StreamId
    token: Count
    batches: Annotated[tuple[Batch, ...], Meta(max_length=MANY)]


class Ack(Message, frozen=True):
    """The subscriber's counter is `upto`: that much room in the window is free again."""

    stream: StreamId
    token: Count
    upto: Count


class Unserved(Message, frozen=True):
    """The subscription is over: the sender no longer has `first`..`last`, nor tombstones for them."""

    stream: StreamId
    token: Count
    first: SeqNumber
    last: SeqNumber

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise ValueError(f"nothing lies in {self.first}..{self.last}")


class Ended(Message, frozen=True):
    """The subscription is over: the sender serves nobody any more (it was the tail of its chain); another
    will."""

    stream: StreamId
    token: Count


ProxyLevelMessage: TypeAlias = Advertisement | Subscribe | Unsubscribe | Events | Ack | Unserved | Ended
MESSAGES = (Advertisement, Subscribe, Unsubscribe, Events, Ack, Unserved, Ended)
