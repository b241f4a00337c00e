"""What members of a region say to each other about events; NOTIFY by datagram, the rest by channel."""

from typing import Annotated

from msgspec import Meta

from qanat.events.batch import Batch
from qanat.events.ranges import MANY, Count, SeqNumber, StreamId
from qanat.kernel import Message
from qanat.protocols.views import Gossip


class Notify(Message, frozen=True):
    """How far the sender has got in each of these streams. By datagram: a later one says all that a lost one
    did. To whoever cannot be reached by datagrams, by its channel."""

    streams: Annotated[tuple[StreamId, ...], Meta(max_length=MANY)]
    counters: Annotated[tuple[Count, ...], Meta(max_length=MANY)]
    ask: bool
    """The sender has had no news for a while: whoever is ahead of it, answer with a NOTIFY."""
    news: Annotated[tuple[tuple[StreamId, SeqNumber, SeqNumber], ...], Meta(max_length=MANY)] = ()
    """(stream, first, last): what the sender has received since its last NOTIFY, in its turn or before it.
    Few have it yet, so neighbours ask for this first, and for what is older only if nobody else tells of
    it."""

    def __post_init__(self) -> None:
        if len(self.streams) != len(self.counters):
            raise ValueError(f"{len(self.streams)} streams have {len(self.counters)} counters")
        if any(first > last for _, first, last in self.news):
            raise ValueError("news that end before they begin")


class Request(Message, frozen=True):
    """Send me events `nxt`..`cnt` of this stream."""

    stream: StreamId
    nxt: SeqNumber
    cnt: SeqNumber

    def __post_init__(self) -> None:
        if self.nxt > self.cnt:
            raise ValueError(f"a request for {self.nxt}..{self.cnt}")


class Events(Message, frozen=True):
    """The answer to the request that began at `nxt`: whole batches, as they came, perhaps none.

    The answer is about `nxt`..`upto`: what is in that range and not in the batches, the sender no longer has.
    What was asked for beyond `upto` did not fit. `cnt` is the sender's counter.
    """

    stream: StreamId
    nxt: SeqNumber
    upto: Count
    cnt: Count
    batches: Annotated[tuple[Batch, ...], Meta(max_length=MANY)]


class Attach(Message, frozen=True):
    """To the proxy, from a client that nobody can connect to: notify me on this channel."""


class InMesh(Message, frozen=True):
    """Where a node takes part in several meshes, one for each stream: this is said in that stream's."""

    stream: StreamId
    message: Gossip | Notify | Request | Events | Attach
