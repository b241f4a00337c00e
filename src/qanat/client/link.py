"""One connection to one server: requests out, answers back to whoever asked."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Protocol

from qanat.client.errors import RequestRefused, Unavailable
from qanat.client.late import Late
from qanat.events.errors import RemoteError
from qanat.runtime.service import STREAMS_CHANNEL, Closed, Service
from qanat.wire.streams import (
    ASK,
    EVENTS,
    NOT_HEAD,
    NOT_TAIL,
    STOPPING,
    Ask,
    Lost,
    Opened,
    Place,
    Placed,
    Refused,
    Seen,
    Stored,
    Subscribed,
    Told,
    decode_control,
    decode_events,
    decode_place,
    encode_control,
)

if TYPE_CHECKING:
    from qanat.client.outbox import Outbox
    from qanat.client.subscription import Subscription
    from qanat.runtime.connection import Connection
    from qanat.runtime.url import Url
    from qanat.wire.frame import Frame

RoleName = Literal["head", "tail"]
_ELSEWHERE = frozenset((NOT_HEAD, NOT_TAIL, STOPPING))


class Owner(Protocol):
    """Who made a link, and is told what becomes of it."""

    def on_up(self, link: "Link") -> None: ...
    def on_down(self, link: "Link", reason: Closed) -> None: ...
    def on_served(self, link: "Link", role: RoleName) -> None: ...
    def on_misplaced(self, link: "Link", role: RoleName, why: str) -> None: ...
    def on_place(self, link: "Link", place: Place) -> None: ...
    def doubts(self, role: RoleName) -> bool: ...
    def owner_of(self, stream: str) -> str: ...


class Link(Service):
    """Frames of one connection. Whoever leaves a link hears nothing more from it, however late it comes."""

    connection: "Connection"

    def __init__(self, owner: Owner, requests: Iterator[int], url: "Url") -> None:
        self.name = ""
        """Of the server at the other end."""
        self.url = url
        """Where it was dialled."""
        self.up = False
        self._owner = owner
        self._requests = requests
        self._outboxes: dict[Outbox, None] = {}
        self._by_request: dict[int, Outbox] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._questions: dict[int, asyncio.Future[bytes]] = {}
        self._place_request = 0
        self._late = Late(lambda: self._by_request, self.ask_place)

    # --- for outboxes, subscriptions and questions --------------------------------------------------

    def board(self, outbox: "Outbox") -> None:
        """`outbox` publishes by this link from now on."""
        self._outboxes[outbox] = None

    def expect(self, outbox: "Outbox") -> int:
        """A number for a request of `outbox`, which gets its answer."""
        request = next(self._requests)
        self._by_request[request] = outbox
        self._late.begin()
        return request

    def leave(self, outbox: "Outbox") -> None:
        self._outboxes.pop(outbox, None)
        self._by_request = {
            number: other for number, other in self._by_request.items() if other is not outbox
        }

    def enlist(self, subscription: "Subscription") -> int:
        """A number for `subscription`: a new one each time, so that nothing meant for a former one reaches
        it."""
        number = next(self._requests)
        self._subscriptions[number] = subscription
        return number

    def dismiss(self, number: int) -> None:
        self._subscriptions.pop(number, None)

    def ask(
        self, what: str, stream: str = "", start: int = 1, settings: bytes = b""
    ) -> "asyncio.Future[bytes]":
        """Sends a question, or an order; the answer is JSON."""
        request = next(self._requests)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._questions[request] = answer
        answer.add_done_callback(lambda _: self._questions.pop(request, None))
        self.connection.send(
            ASK, STREAMS_CHANNEL, encode_control(Ask(request, what, stream, start, settings))
        )
        return answer

    def ask_place(self) -> None:
        """Asks where head and tail are. Its owner is told before any answer to what is sent after this."""
        if not self._place_request:
            self._place_request = next(self._requests)
            question = Ask(self._place_request, "place")
            self.connection.send(ASK, STREAMS_CHANNEL, encode_control(question))

    @property
    def busy(self) -> bool:
        """Whether someone waits for an answer to a question."""
        return bool(self._questions)

    @property
    def doubtful_head(self) -> bool:
        """Whether a publish was refused for want of a head, and none was taken since."""
        return self._owner.doubts("head")

    def served_as_head(self) -> None:
        self._owner.on_served(self, "head")

    def owner_of(self, stream: str) -> str:
        """The region that a stream belongs to, if the server has told."""
        return self._owner.owner_of(stream)

    # --- the connection's side ----------------------------------------------------------------------

    def on_connect(self, connection: "Connection") -> None:
        self.connection = connection
        self.name = connection.peer.name
        self.up = True
        self._owner.on_up(self)

    def on_frame(self, connection: "Connection", frame: "Frame") -> None:
        if frame.type == EVENTS:  # the one that comes for every batch
            subscription = self._subscriptions.get(decode_events(frame.control))
            if subscription is not None:
                subscription.on_item(frame.attachment)
            return
        match decode_control(frame.type, frame.control):
            case Stored() as stored:
                outbox = self._by_request.pop(stored.request, None)
                if outbox is not None:
                    outbox.on_stored(stored)
            case Opened() as opened:
                outbox = self._by_request.pop(opened.request, None)
                if outbox is not None:
                    outbox.on_opened(opened)
            case Refused() as refused:
                self._on_refused(refused)
            case Subscribed() as subscribed:
                subscription = self._subscriptions.get(subscribed.subscription)
                if subscription is not None:
                    self._owner.on_served(self, "tail")
                    subscription.on_subscribed(subscribed)
            case Seen() as seen:
                glance = self._subscriptions.get(seen.subscription)
                if glance is not None:
                    self._owner.on_served(self, "tail")
                    glance.on_seen(seen)
            case Lost() as lost:
                subscription = self._subscriptions.get(lost.subscription)
                if subscription is not None:
                    subscription.on_item(lost)
            case Placed() as placed:
                subscription = self._subscriptions.get(placed.subscription)
                if subscription is not None:
                    subscription.on_placed(placed)
            case Told() as told if told.request == self._place_request:
                self._place_request = 0
                place = decode_place(told.answer)
                self._late.on_place(place)
                self._owner.on_place(self, place)
            case Told() as told:
                answer = self._questions.pop(told.request, None)
                if answer is not None and not answer.done():
                    answer.set_result(told.answer)
            case _:
                raise RemoteError(f"a server does not send frame type {frame.type}")

    def _on_refused(self, refused: Refused) -> None:
        request, elsewhere = refused.request, refused.code in _ELSEWHERE
        if request in self._by_request:
            if elsewhere:  # whatever is unanswered is sent again, in order, to whoever is head by then
                self._owner.on_misplaced(self, "head", refused.message)
            else:
                self._by_request.pop(request).on_refused(refused)
        elif request in self._subscriptions:
            if elsewhere:
                self._owner.on_misplaced(self, "tail", refused.message)
            else:
                self._subscriptions.pop(request).on_refused(refused)
        elif request == self._place_request:  # a server from before there were replicas
            self._place_request = 0
            self._owner.on_place(self, Place(me=self.name, head=self.name, tail=self.name))
        else:
            answer = self._questions.pop(request, None)
            if answer is not None and not answer.done():
                answer.set_exception(RequestRefused(refused.code, refused.message))

    def on_writable(self, connection: "Connection") -> None:
        for outbox in list(self._outboxes):
            outbox.take_off()

    def on_close(self, connection: "Connection", reason: Closed) -> None:
        self.up = False
        self._late.end()
        self._owner.on_down(self, reason)
        questions, self._questions = self._questions, {}
        for answer in questions.values():
            if not answer.done():
                answer.set_exception(Unavailable(f"the connection to {connection.label} broke: {reason}"))
