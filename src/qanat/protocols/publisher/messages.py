"""What publishers and subscribers say to each other.

| message | from | says |
|---|---|---|
| `Join` | subscriber | an instance of this application is here |
| `Alive` | subscriber | renew my lease |
| `Handled` | subscriber | the application is done with all items up to this one |
| `Acknowledge` | subscriber | and it stands for this datamarker |
| `Reached` | subscriber | a datamarker of its own accord |
| `GiveAway` | subscriber | let another have these shards |
| `Leave` | subscriber | it is about to stop; all that it had is handled |
| `Welcome`, `Refused` | publisher | a session, its lease and window; or why not |
| `Granted` | publisher | the lease, from when that `Alive` was sent |
| `Gone` | publisher | there is no such session any more |
| `Notice` | publisher | item: these shards come to you from now on |
| `Updates` | publisher | item: updates of your shards, in order |
| `Token` | publisher | item: a datamarker, please acknowledge; perhaps the last of these shards |
| `Loss` | publisher | item: what these shards had after `after` and up to `upto` was not sent |

Items are numbered within a session and arrive in order. A session ends with its channel, and another begins
at the datamarkers.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta

from qanat.events.batch import Batch
from qanat.events.position import Position
from qanat.events.ranges import MANY, Code, Count, Micros, Name, NodeName, Reason, Shard, Size, Weight
from qanat.kernel import Message

SHARDS_PER_MESSAGE = 4_096
NAMES_PER_MESSAGE = 128 * 1024
"""Characters of the names of shards; in UTF-8 half of what the control part of a message may be."""


def in_messages(shards: Sequence[str]) -> Iterator[Sequence[str]]:
    """So many shards at a time as a message names."""
    start = characters = 0
    for at, shard in enumerate(shards):
        characters += len(shard)
        if at > start and (at - start >= SHARDS_PER_MESSAGE or characters > NAMES_PER_MESSAGE):
            yield shards[start:at]
            start, characters = at, len(shard)
    if shards:
        yield shards[start:]


Shards: TypeAlias = Annotated[tuple[Shard, ...], Meta(max_length=MANY)]


class Mark(Message, frozen=True):
    """All of these shards up to and including this position of the log."""

    position: Position
    shards: Shards


class Join(Message, frozen=True):
    application: Name
    life: Count
    """Tells this life of the subscriber from earlier ones of the same name."""
    attempt: Count
    """The same while it only asks again; another once it has forgotten its session."""
    weight: Weight
    window_bytes: Size
    busy: bool = False
    """The application is not done yet with something that an earlier session brought."""


class Alive(Message, frozen=True):
    session: Count
    number: Count


class Handled(Message, frozen=True):
    session: Count
    number: Count


class Acknowledge(Message, frozen=True):
    session: Count
    token: Count
    """The token's number among the items."""


class Reached(Message, frozen=True):
    session: Count
    marks: Annotated[tuple[Mark, ...], Meta(max_length=MANY)]


class GiveAway(Message, frozen=True):
    session: Count
    shards: Shards
    to: NodeName
    """The subscriber that should have them; empty: any other."""


class Leave(Message, frozen=True):
    session: Count


class Welcome(Message, frozen=True):
    session: Count
    life: Count
    lease_us: Micros
    """From when the lease is counted is the sending of `Join`, or of the `Alive` that was granted last."""
    window_bytes: Size


class Refused(Message, frozen=True):
    life: Count
    code: Code
    """`unknown_application`, `full`, or `not_serving`."""
    reason: Reason


class Granted(Message, frozen=True):
    session: Count
    number: Count


class Gone(Message, frozen=True):
    session: Count


class Notice(Message, frozen=True):
    session: Count
    number: Count
    shards: Shards


class Updates(Message, frozen=True):
    session: Count
    number: Count
    batches: Annotated[tuple[Batch, ...], Meta(max_length=MANY)]
    upto: Position
    only: Shards = ()
    """The shards that it is for, if these are not all that the subscriber has: with updates that concern
    every shard."""


class Token(Message, frozen=True):
    session: Count
    number: Count
    marks: Annotated[tuple[Mark, ...], Meta(max_length=MANY)]
    last: bool
    """These shards go to another subscriber once this is handled."""


class Loss(Message, frozen=True):
    session: Count
    number: Count
    shards: Shards
    after: Position
    upto: Position
    reason: Reason


Item: TypeAlias = Notice | Updates | Token | Loss
ITEMS = (Notice, Updates, Token, Loss)
ToPublisher: TypeAlias = Join | Alive | Handled | Acknowledge | Reached | GiveAway | Leave
ToSubscriber: TypeAlias = Welcome | Refused | Granted | Gone | Item
TO_PUBLISHER = (Join, Alive, Handled, Acknowledge, Reached, GiveAway, Leave)
TO_SUBSCRIBER = (Welcome, Refused, Granted, Gone, *ITEMS)
