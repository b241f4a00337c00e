"""What the members of an ensemble say to each other.

| message | from | says |
|---|---|---|
| `Present` | anybody | I am here, in this life, with this much of a log; and this is your life as I know it |
| `RequestVote` / `VoteReply` | candidate / member | be my voter in this term; with `pre`: would you be |
| `AppendEntries` / `AppendReply` | leader / member | records after a place in the log, or none: a heartbeat. What I have that is yours |
| `InstallSnapshot` / `InstallReply` | leader / member | a piece of the snapshot that stands for the beginning of the log; how far I have it |

A *life* is a number that a member draws when it starts. A *round* counts a leader's questions: whoever
answers round n knew of no later term when n had begun.
"""  # noqa: E501

from typing import Annotated, TypeAlias

from msgspec import Meta

from qanat.events.ranges import Blob, Count, Size
from qanat.kernel import Message

ENTRIES_MAX = 4096
"""Records in one message."""
RECORD_BYTES_MAX = (1 << 20) - 4096
"""A record fits into a message."""
LEAP_MAX = 1 << 40
"""A term or a snapshot's index that is further above ours is a lie: whoever believed it could soon count no
further."""


class Entry(Message, frozen=True):
    """A record and the term in which it was proposed. An empty one is a leader's first of its term and says
    nothing."""

    term: Count
    data: Blob


class Present(Message, frozen=True):
    life: Count
    heard: Count
    """The life of the one it is sent to, as far as the sender has heard of it; 0 if it has not."""
    whole: bool
    nothing: bool
    """There is no record, no snapshot and no term; and there never was, as far as the sender can know."""
    term: Count
    last_index: Count
    last_term: Count


class RequestVote(Message, frozen=True):
    term: Count
    pre: bool
    last_index: Count
    last_term: Count


class VoteReply(Message, frozen=True):
    term: Count
    pre: bool
    granted: bool


class AppendEntries(Message, frozen=True):
    term: Count
    round: Count
    prev_index: Count
    prev_term: Count
    entries: Annotated[tuple[Entry, ...], Meta(max_length=ENTRIES_MAX)]
    commit: Count
    vouched: Count = 0
    """The life that the leader vouches for: with all up to `upto` it lacks nothing that it may ever have
    acknowledged."""
    upto: Count = 0


class AppendReply(Message, frozen=True):
    term: Count
    round: Count
    life: Count
    whole: bool
    ok: bool
    index: Count
    """If `ok`: up to here the two logs are one. If not: try from after here."""


class InstallSnapshot(Message, frozen=True):
    term: Count
    round: Count
    index: Count
    index_term: Count
    offset: Size
    total: Size
    data: Blob


class InstallReply(Message, frozen=True):
    term: Count
    round: Count
    life: Count
    whole: bool
    index: Count
    offset: Size
    """Bytes of the snapshot of `index` that it has; `total` when it is in force."""


RaftMessage: TypeAlias = (
    Present | RequestVote | VoteReply | AppendEntries | AppendReply | InstallSnapshot | InstallReply
)
MESSAGES = (
    Present,
    RequestVote,
    VoteReply,
    AppendEntries,
    AppendReply,
    InstallSnapshot,
    InstallReply,
)
