"""What a stream's clients and its server say to each other, on the streams channel.

| frame | from | control | attachment | answered by |
|---|---|---|---|---|
| OPEN | client | `Open` | | OPENED or REFUSED |
| PUBLISH | client | `Publish` | batches of one stream, or none if it names a file | STORED or REFUSED |
| SUBSCRIBE | client | `Subscribe` | | SUBSCRIBED or REFUSED, then EVENTS and LOST |
| CREDIT | client | `Credit` | | more EVENTS |
| UNSUBSCRIBE | client | `Unsubscribe` | | nothing more for that subscription |
| LOOK | client | `Look` | | SEEN or REFUSED |
| ASK | client | `Ask` | | TOLD or REFUSED |
| EVENTS | server | `Events` | batches of one stream, in order | |
| PLACED | server | `Placed` | | |
| LOST | server | `Lost` | | |

Answers come in the order of the requests of their kind on one stream. A PUBLISH is answered STORED once its
events are stored as the stream's durability asks. EVENTS are sent while the subscription has credit: each
takes the size of its attachment off, and the client gives it back as its application takes the events, so one
slow subscription never holds up another on the same connection. PLACED stands for an EVENTS whose attachment
lies in a file of the log: a client that asked for it (`Subscribe.files`), on the same machine, reads it
there; and one that publishes much at once (`Open.files`) lays it down there as a file, which becomes a
segment of the log as it is (`Publish.staged`). LOOK asks where a stream begins and ends, without reading it
and without making it: for who plans which parts of it are read by whom. ASK also carries what people order of
streams (`ORDERS`), so that a server from before there were such orders refuses them in a sentence.

In a region of replicas OPEN and PUBLISH go to the head of the chain, SUBSCRIBE and LOOK to its tail; any
replica answers ASK `place` with a `Place`. Who is not (or no longer) the one asked for answers REFUSED with
`NOT_HEAD` or `NOT_TAIL`, a running subscription as well. A client then asks anew where they are and goes on
there.
"""

from enum import IntEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from qanat.events.errors import LocalError, RemoteError
from qanat.events.ranges import (
    MANY,
    NAME_MAX,
    Code,
    Count,
    NodeName,
    Path,
    Reason,
    Size,
    SourceIndex,
    SourceSequence,
    Text,
    Time,
    Unsigned,
)


class StreamFrame(IntEnum):
    """Frame types of the streams channel."""

    OPEN = 32
    OPENED = 33
    PUBLISH = 34
    STORED = 35
    REFUSED = 36
    SUBSCRIBE = 37
    SUBSCRIBED = 38
    EVENTS = 39
    CREDIT = 40
    UNSUBSCRIBE = 41
    LOST = 42
    ASK = 43
    TOLD = 44
    PLACED = 45
    LOOK = 46
    SEEN = 47


# Plain integers for the hot path: looking a member up on an IntEnum class costs more than the comparison.
(
    OPEN,
    OPENED,
    PUBLISH,
    STORED,
    REFUSED,
    SUBSCRIBE,
    SUBSCRIBED,
    EVENTS,
    CREDIT,
    UNSUBSCRIBE,
    LOST,
    ASK,
    TOLD,
    PLACED,
    LOOK,
    SEEN,
) = (int(frame) for frame in StreamFrame)


NOT_HEAD, NOT_TAIL, STOPPING = "not_head", "not_tail", "stopping"
"""Codes of REFUSED that say: not here, or not now. Nothing is wrong with what was asked."""
OWNED_ELSEWHERE, NO_STREAM = "owned_elsewhere", "no_stream"
"""Codes of REFUSED that say: another region takes events for this stream; there is no such stream."""


Stream = Annotated[str, Meta(max_length=1_024)]
"""A name as somebody wrote it: the server's own limits are stricter, and its refusal says which."""
Source = Annotated[str, Meta(max_length=NAME_MAX)]
ANSWER_MAX = 1 << 30
"""No more than the control part of a frame takes."""


class Open(msgspec.Struct, frozen=True):
    """Names a stream before it is published to; makes it if it is not there and `create` says so.

    `source` is the publisher's name as an ordered writer; the answer says how far the stream has it.
    `durability` is for a new stream only; empty takes the server's default.
    """

    request: Count
    stream: Stream
    source: Source = ""
    create: bool = True
    durability: Code = ""
    files: bool = False
    """Whether the publisher would write large publishes into the log's folder itself; the answer says where,
    if it may."""


class LogFolder(msgspec.Struct, frozen=True, array_like=True):
    """A folder of this machine; one of the same path in another container has other numbers."""

    path: Path
    device: Unsigned
    inode: Unsigned


class Staging(msgspec.Struct, frozen=True, array_like=True):
    """Where a publisher may lay files down, and how their names begin: with what tells its own from
    others'."""

    folder: LogFolder
    beginning: Path


class Opened(msgspec.Struct, frozen=True):
    request: Count
    stream: Stream
    first: Count
    next: Count
    durability: Code
    position: SourceSequence
    """Highest position of `source` that is stored; 0 when none is."""
    index: SourceIndex = 0
    """Its place inside that; of a source with dense positions always 0."""
    ordered: bool = False
    """Whether a publish may say behind what it comes (`Publish.after`)."""
    staging: Staging | None = None


class Publish(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`after` is a position of the batches' source: if the stream has not come so far, it refuses them
    (`position_missing`).

    `staged` names the file in which the batches are, if they are not attached; it is the server's from then
    on.
    """

    request: Count
    after: tuple[SourceSequence, SourceIndex] | None = None
    staged: Path = ""


class Stored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`first`..`last` are the new sequence numbers; `dropped` events were had before, under the same
    positions."""

    request: Count
    first: Count
    last: Count
    dropped: Count = 0


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """`code` is for programs: `disk_full`, `position_gap`, `malformed`, `filter`, …, and those named
    above."""

    request: Count
    code: Code
    message: Reason
    definite: bool = True


Start = Count | Literal["earliest", "latest"]


class Subscribe(msgspec.Struct, frozen=True):
    """Asks for a stream's events from `start` (a sequence number, or a word), or from the time `start_us`.

    With a `credit` of 0 no events come, only the answer, and REFUSED once another replica serves the stream.
    """

    subscription: Count
    stream: Stream
    start: Start = "latest"
    start_us: Time | None = None
    where: Text = ""
    credit: Size = 4 * 1024 * 1024
    files: bool = False
    """Whether the client would read the log's files itself; the answer says where they are, if it may."""
    upto: Count = 0
    """The last sequence number that is wanted; 0: all that come. A filtered subscription is told at once when
    it is reached."""
    alive: bool = False
    """Whether events that are dead are left out, and tombstones too, up to what is the end now; the answer
    says whether the server does that."""


class Subscribed(msgspec.Struct, frozen=True):
    """`start` is the first sequence number that will come, `next` the stream's next one at this moment."""

    subscription: Count
    start: Count
    next: Count
    folder: LogFolder | None = None
    alive: bool = False


class Look(msgspec.Struct, frozen=True):
    """Asks where a stream is: about `start` as in `Subscribe`, which may also lie ahead of the stream."""

    subscription: Count
    stream: Stream
    start: Start = "latest"
    start_us: Time | None = None
    bytes: Size = 0
    """If given, the answer says how far about so many bytes of the log reach from there."""


class Seen(msgspec.Struct, frozen=True):
    """The answer to LOOK; all numbers are of one moment."""

    subscription: Count
    start: Count
    """The first sequence number that a subscription with this start would get."""
    first: Count
    """The lowest that the stream keeps."""
    readable: Count
    """The highest that may be read."""
    within: Count
    """The highest that `bytes` reach, `start` itself at least; `readable` if no bytes were given."""
    born_us: Time = 0
    """Publish time of sequence number 1: the same in all regions, another one if the stream is made anew. 0
    if it is not known."""
    mark: Path = ""
    """What tells the event before `start` from another one of that number; empty if there is none, or it was
    collected."""
    end_mark: Path = ""
    """The same of the event `within`."""


class Events(msgspec.Struct, frozen=True, array_like=True, gc=False):
    subscription: Count


class Placed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Events up to sequence number `last` are `size` bytes of a file in the stream's `LogFolder`."""

    subscription: Count
    file: Path
    offset: Size
    size: Size
    last: Count


class Credit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    subscription: Count
    bytes: Size


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True, gc=False):
    subscription: Count


class Lost(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The stream no longer keeps `first`..`last`; the subscription goes on after them."""

    subscription: Count
    first: Count
    last: Count


ORDERS = ("create", "set", "remove")
"""What an ASK may order of the `stream` that it names; answered by its description, or by that of what is
gone."""


class Ask(msgspec.Struct, frozen=True):
    """A question about the server: `streams`, `status` or `place`; about a `stream` that is named, in short
    or `describe`; or one of `ORDERS`."""

    request: Count
    what: Code
    stream: Stream = ""
    start: Count = 1
    """Of `describe`: from where on it is said what is kept and what is collected."""
    settings: Annotated[bytes, Meta(max_length=65_536)] = b""
    """Of an order: how the stream is to be kept, the keys of a log as JSON. What is not in it stays, and null
    is the default."""


class Told(msgspec.Struct, frozen=True):
    """The answer, as JSON."""

    request: Count
    answer: Annotated[bytes, Meta(max_length=ANSWER_MAX)]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `place`: where a region's clients find what they need. Of a server that stands alone:
    itself."""

    region: NodeName = ""
    epoch: Count = 0
    """Of the chain's configuration; a higher one is newer."""
    me: NodeName
    head: NodeName
    """Takes publishes; empty while the replica that answers knows of none."""
    tail: NodeName
    """Serves subscriptions; empty likewise."""
    replicas: Annotated[dict[NodeName, Path], Meta(max_length=MANY)] = {}
    """Of this region, by name: the URL for clients."""
    streams: Annotated[dict[Stream, NodeName], Meta(max_length=MANY)] = {}
    """Of the whole deployment, by name: the region that owns it."""
    waits: Reason = ""
    """Why publishes wait here, a sentence; empty if they do not, or not for long."""


_decode_place = msgspec.json.Decoder(Place)


def decode_place(answer: bytes) -> Place:
    """A `Place` from JSON; a RemoteError when it is none."""
    try:
        return _decode_place.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"an answer to `place` that cannot be read: {error}") from error


_STRUCTS: dict[int, type[msgspec.Struct]] = {
    OPEN: Open,
    OPENED: Opened,
    PUBLISH: Publish,
    STORED: Stored,
    REFUSED: Refused,
    SUBSCRIBE: Subscribe,
    SUBSCRIBED: Subscribed,
    EVENTS: Events,
    CREDIT: Credit,
    UNSUBSCRIBE: Unsubscribe,
    LOST: Lost,
    ASK: Ask,
    TOLD: Told,
    PLACED: Placed,
    LOOK: Look,
    SEEN: Seen,
}
_DECODERS = {number: msgspec.msgpack.Decoder(struct) for number, struct in _STRUCTS.items()}


class _Asked(msgspec.Struct, frozen=True):
    """Of a request that cannot be read, what its answer needs."""

    request: Count | None = None
    subscription: Count | None = None


class _AskedInOrder(msgspec.Struct, frozen=True, array_like=True):
    request: Count


_ASKED: dict[int, "msgspec.msgpack.Decoder[_Asked] | msgspec.msgpack.Decoder[_AskedInOrder]"] = {
    PUBLISH: msgspec.msgpack.Decoder(_AskedInOrder),
    **dict.fromkeys((OPEN, SUBSCRIBE, LOOK, ASK), msgspec.msgpack.Decoder(_Asked)),
}


class BadRequest(LocalError):
    """A request with something in it that cannot be; `request` is the number that its answer needs."""

    def __init__(self, request: int, message: str) -> None:
        super().__init__(message)
        self.request = request


encode_control = msgspec.msgpack.Encoder().encode


_decode_events = msgspec.msgpack.Decoder(Events).decode


def decode_events(control: bytes) -> int:
    """The subscription that an EVENTS frame is for."""
    try:
        return _decode_events(control).subscription
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RemoteError(f"an EVENTS frame that cannot be read: {error}") from error


def decode_control(frame_type: int, control: bytes) -> msgspec.Struct:
    """The control part of a frame of this channel; a RemoteError when it is none, a BadRequest if it can be
    answered all the same."""
    decoder = _DECODERS.get(frame_type)
    if decoder is None:
        raise RemoteError(f"frame type {frame_type} is unknown on the streams channel")
    try:
        return decoder.decode(control)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"a {StreamFrame(frame_type).name} frame that cannot be read: {error}"
        number = _asked(frame_type, control)
        if number is not None:
            raise BadRequest(number, message) from error
        raise RemoteError(message) from error


def _asked(frame_type: int, control: bytes) -> int | None:
    decoder = _ASKED.get(frame_type)
    if decoder is None:
        return None
    try:
        asked = decoder.decode(control)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return (
        asked.request if isinstance(asked, _AskedInOrder) or asked.request is not None else asked.subscription
    )
