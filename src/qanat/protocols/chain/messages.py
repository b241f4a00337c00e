"""What neighbours in a chain say to each other. Every message carries the epoch; one of another epoch is refused.

| message | from | says |
|---|---|---|
| `Hello` | successor | what I have of each stream, and who numbered the last of it |
| `Welcome` | predecessor | the eras; events follow from what you have |
| `Discard` | predecessor | what you hold of these streams is not the chain's |
| `Forward` | predecessor | events, and how far all replicas before you have them on disk |
| `Positions` | predecessor | highest positions of the sources, as of the events sent so far; once, to who is joining |
| `Ack` | successor | how far I and all replicas after me have them on disk |
"""

from typing import TypeAlias

from qanat.events.batch import Batch
from qanat.kernel import Message

Marks: TypeAlias = tuple[tuple[int, int], ...]
"""(stream, sequence number), each."""


class Era(Message, frozen=True):
    """A head's reign: it numbered what comes from `starts` on, stream by stream; streams not named, from 1 on."""

    epoch: int
    head: str
    starts: Marks


class Claim(Message, frozen=True):
    """`counter` events of a stream are held, the last of them numbered in the era of epoch `era`."""

    stream: int
    counter: int
    era: int


class Hello(Message, frozen=True):
    epoch: int
    round: int
    """Counts this successor's hellos; what answers an earlier one is out of date."""
    claims: tuple[Claim, ...]


class Welcome(Message, frozen=True):
    epoch: int
    round: int
    eras: tuple[Era, ...]


class Discard(Message, frozen=True):
    epoch: int
    round: int
    streams: tuple[int, ...]


class Forward(Message, frozen=True):
    epoch: int
    round: int
    batches: tuple[Batch, ...]
    safe: Marks


class Positions(Message, frozen=True):
    epoch: int
    round: int
    stream: int
    upto: int
    highest: tuple[tuple[str, int, int], ...]


class Ack(Message, frozen=True, tag="ChainAck"):
    """Tagged apart from the proxy level's, with which it shares a channel."""

    epoch: int
    round: int
    stored: Marks


ChainMessage: TypeAlias = Hello | Welcome | Discard | Forward | Positions | Ack
MESSAGES = (Hello, Welcome, Discard, Forward, Positions, Ack)
