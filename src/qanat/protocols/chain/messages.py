"""What neighbours in a chain say to each other. Every message carries the epoch; one of another epoch is
refused.

| message | from | says |
|---|---|---|
| `Hello` | successor | what I have of each stream, and who numbered the last of it |
| `Welcome` | predecessor | the eras; events follow from what you have |
| `Discard` | predecessor | what you hold of these streams is not the chain's |
| `Forward` | predecessor | events, and how far all replicas before you have them on disk |
| `Positions` | predecessor | highest positions of the sources, as of the events sent so far; once, to who is joining |
| `Ack` | successor | how far I and all replicas after me have them on disk |
| `Knock` | predecessor | I hear nothing of you: where nobody listens any more, this is refused |
| `Lacks` | successor | I, or one after me, have no room for what comes; a sentence that is handed on to the head |
"""  # noqa: E501

from typing import Annotated, TypeAlias

from msgspec import Meta

from qanat.events.batch import Batch
from qanat.events.ranges import MANY, NAME_MAX, Count, NodeName, Reason, SourceIndex, SourceSequence, StreamId
from qanat.kernel import Message

Marks: TypeAlias = Annotated[tuple[tuple[StreamId, Count], ...], Meta(max_length=MANY)]
"""(stream, sequence number), each."""
Source: TypeAlias = Annotated[str, Meta(max_length=NAME_MAX)]
"""As long as a batch may have it."""


class Era(Message, frozen=True):
    """A head's reign: it numbered what comes from `starts` on, stream by stream; streams not named, from 1
    on."""

    epoch: Count
    head: NodeName
    starts: Marks


class Claim(Message, frozen=True):
    """`counter` events of a stream are held, the last of them numbered in the era of epoch `era`."""

    stream: StreamId
    counter: Count
    era: Count
    head: NodeName = ""
    """Whose era it was: should an epoch ever have been given twice, two heads are told apart."""


class Hello(Message, frozen=True):
    epoch: Count
    round: Count
    """Counts this successor's hellos; what answers an earlier one is out of date."""
    claims: Annotated[tuple[Claim, ...], Meta(max_length=MANY)]


class Welcome(Message, frozen=True):
    epoch: Count
    round: Count
    eras: Annotated[tuple[Era, ...], Meta(max_length=MANY)]

    def __post_init__(self) -> None:
        epochs = [era.epoch for era in self.eras]
        if epochs != sorted(set(epochs)):
            raise ValueError("eras are not in the order of their epochs")


class Discard(Message, frozen=True):
    epoch: Count
    round: Count
    streams: Annotated[tuple[StreamId, ...], Meta(max_length=MANY)]


class Forward(Message, frozen=True):
    epoch: Count
    round: Count
    batches: Annotated[tuple[Batch, ...], Meta(max_length=MANY)]
    safe: Marks


class Positions(Message, frozen=True):
    epoch: Count
    round: Count
    stream: StreamId
    upto: Count
    highest: Annotated[tuple[tuple[Source, SourceSequence, SourceIndex], ...], Meta(max_length=MANY)]


class Ack(Message, frozen=True, tag="ChainAck"):
    """Tagged apart from the proxy level's, with which it shares a channel."""

    epoch: Count
    round: Count
    stored: Marks


class Knock(Message, frozen=True):
    epoch: Count


class Lacks(Message, frozen=True):
    epoch: Count
    why: Reason


ChainMessage: TypeAlias = Hello | Welcome | Discard | Forward | Positions | Ack | Knock | Lacks
MESSAGES = (Hello, Welcome, Discard, Forward, Positions, Ack, Knock, Lacks)
