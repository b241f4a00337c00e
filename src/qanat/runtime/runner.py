"""One machine at work: its inputs from the loop, its outputs in order, none before its record is on disk."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from qanat.events.errors import LocalError, RemoteError
from qanat.kernel import Address, Factory, Machine, Message
from qanat.runtime import logs
from qanat.runtime.backoff import Backoff
from qanat.runtime.clocks import wall_clock_us
from qanat.runtime.commit import GroupCommit
from qanat.runtime.connection import Connection
from qanat.runtime.journal import Compact, Journal
from qanat.runtime.named_errors import sentence
from qanat.runtime.placing import Placing
from qanat.runtime.service import IDLE, Closed, Service
from qanat.wire.compression import pack, unpack
from qanat.wire.frame import Frame, FrameType, MalformedFrame, encode
from qanat.wire.messages import MessageCodec

if TYPE_CHECKING:
    from qanat.runtime.driver import Driver

log = logging.getLogger("qanat.machine")

_HELD_LIMIT = 65_536
"""Outputs that wait for the disk. At the limit nothing more is read from peers and requests are refused,
until the disk has caught up with half of it: a slow disk slows the producers, it does not fill the memory."""


_AGAIN_MS, _AGAIN_LIMIT_MS = 100, 10_000
"""First and longest pause before a machine that stopped is made anew: what stops it each time costs
little."""


class Runner(Service):
    """The context of one machine and the service on its channel."""

    def __init__(
        self,
        driver: "Driver",
        channel: int,
        name: str,
        factory: Factory,
        deliver: Callable[[Any], None],
        compact: Compact | None = None,
        vouched: bool = False,
        *,
        again: bool = False,
    ) -> None:
        self.name = name
        self.address = Address(driver.identity.name)
        self.rng = random.Random(driver.rng.random())
        self.failure: str | None = None
        self.restarts = 0
        self._driver = driver
        self._channel = channel
        self._factory = factory
        self._deliver = deliver
        self._compact, self._vouched = compact, vouched
        self._machine: Machine[Any, Any] | None = None
        self._codec: MessageCodec[Message] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._saved: list[bytes] = []
        self._commit: GroupCommit | None = None
        self._held: deque[tuple[int, Callable[[], None]]] = deque()
        self._last_record = 0
        self._paused: set[Connection] = set()
        self._placing = Placing(driver, channel)
        self._started = False
        self._backoff = Backoff(_AGAIN_MS, _AGAIN_LIMIT_MS, self.rng) if again else None
        self._again: asyncio.TimerHandle | None = None
        self._began_s = 0.0

    # ------------------------------------------------------------------ life

    async def open(self) -> None:
        """Reads the journal."""
        folder = self._driver.folder
        if folder is None:
            return
        loop = asyncio.get_running_loop()
        path = folder / f"{self.name}.journal"
        journal = await loop.run_in_executor(
            self._driver.disk, partial(Journal, path, compact=self._compact, vouched=self._vouched)
        )
        self._saved, journal.records = journal.records, []
        for repair in journal.repaired:
            log.error("a journal was damaged", extra={"machine": self.name, "repair": repair})
            self._driver.repaired.append(repair)
        self._commit = GroupCommit(
            journal, self._driver.disk, self._on_durable, self._on_disk_failure, self._driver.on_room
        )

    def start(self) -> None:
        try:
            self._machine = machine = self._factory(self)
        except Exception as error:
            self._fail(error)
            return
        if machine.message_types:
            self._codec = MessageCodec(machine.message_types, machine.sent_types)
        saved, self._saved = self._saved, []
        self._began_s = asyncio.get_running_loop().time()
        self._call(machine.on_start, saved)
        self._started = True
        self._resume()

    async def close(self) -> None:
        """No more inputs; the outputs that wait for the disk still go out."""
        self._machine = None
        if self._again is not None:
            self._again.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._commit is not None:
            await self._commit.close()

    # ------------------------------------------------------------------ inputs

    def request(self, request: object) -> None:
        if self._machine is None or not self._started:
            raise LocalError(
                f"the machine {self.name!r} is not running: {self.failure or 'the node starts or stops'}"
            )
        if self._paused or len(self._held) >= _HELD_LIMIT:
            raise LocalError(f"the machine {self.name!r} waits for its disk; try again later")
        self._call(self._machine.on_request, request)

    def tell(self, news: object) -> None:
        if self._machine is not None and self._started:
            self._call(self._machine.on_request, news)

    def hear(self, sender: Address, message: Message) -> None:
        """From a neighbour, whose word is as good as ours."""
        if self._machine is not None and self._started:
            self._call(self._machine.on_message, sender, message)

    def on_connect(self, connection: Connection) -> None:
        self._placing.on_connect(connection)
        self._driver.links.connected(connection)
        if not connection.is_local:
            self._driver.came(connection.peer.name, connection.remote.rpartition(":")[0])
        if not self._started:
            self._pause(connection)  # until the machine can take what the peer sends

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        control, attachment = frame.control, frame.attachment
        self._driver.links.heard(connection.peer.name)
        match frame.type:
            case FrameType.MESSAGE:
                self._receive(connection.peer.name, control, attachment)
            case FrameType.COMPRESSED:
                control, attachment = unpack(control, attachment, self._driver.settings.frame_limit_bytes)
                self._receive(connection.peer.name, control, attachment)
            case FrameType.PLACED:
                self._receive_placed(connection, control, attachment)
            case FrameType.SHELF | FrameType.TAKEN:
                self._placing.heard(connection, frame)
            case _:
                raise MalformedFrame("malformed", f"frame type {frame.type} on a machine's channel")
        if len(self._held) >= _HELD_LIMIT:
            self._pause(connection)

    def on_datagram(self, sender: str, control: bytes, attachment: memoryview) -> None:
        if not self._started or len(self._held) >= _HELD_LIMIT:
            raise MalformedFrame("busy", "the machine cannot take datagrams now")
        self._receive(sender, control, attachment)

    def on_close(self, connection: Connection, reason: Closed) -> None:
        self._paused.discard(connection)
        self._placing.on_close(connection)
        if connection.peer.role == "node" and reason.code != IDLE:
            self.link_down(Address(connection.peer.name))

    def link_down(self, peer: Address) -> None:
        if self._machine is not None:
            self._call(self._machine.on_link_down, peer)

    def refused(self, peer: Address) -> None:
        if self._machine is not None:
            self._call(self._machine.on_refused, peer)

    def _receive_placed(self, connection: Connection, control: bytes, place: memoryview) -> None:
        try:
            self._receive(connection.peer.name, control, self._placing.take(connection, place))
        except MalformedFrame:
            self._placing.surprise(connection)
            raise

    def _receive(self, sender: str, control: bytes, attachment: memoryview) -> None:
        if self._codec is None:
            raise MalformedFrame("malformed", f"the machine {self.name!r} takes no messages")
        if sender in self._driver.neighbours:
            raise MalformedFrame("malformed", f"{sender!r} is the name of a part of this node")
        message = self._codec.decode(control, attachment)
        if self._machine is not None:
            self._call(self._machine.on_message, Address(sender), message, fault_of_peer=RemoteError)

    def _call(
        self, entry: Callable[..., None], *arguments: object, fault_of_peer: type[Exception] | tuple[()] = ()
    ) -> None:
        try:
            entry(self._driver.clock_us(), *arguments)
        except fault_of_peer:
            raise
        except Exception as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """The machine's state can no longer be trusted: nothing more goes in, and nothing that waits goes
        out."""
        named = {"machine": self.name, "node": self.address}
        if isinstance(error, OSError):  # no fault of ours: what is wrong with the machine says it all
            self.failure = sentence(error)
            log.error("machine stopped", extra=named | {"reason": self.failure})
        else:
            self.failure = f"{type(error).__name__}: {error}"
            log.error("machine stopped", exc_info=error, extra=named)
        self._machine = None
        self._held.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._resume()
        if self._backoff is not None and not isinstance(error, OSError):
            loop = asyncio.get_running_loop()
            if loop.time() - self._began_s > _AGAIN_LIMIT_MS / 1000:
                self._backoff.reset()
            self._again = loop.call_later(self._backoff.next_ms() / 1000, self._start_again)
        self._driver.on_failure(self.name, self.failure)

    def _start_again(self) -> None:
        log.warning("machine started again", extra={"machine": self.name, "node": self.address})
        self._again, self.failure = None, None
        self.restarts += 1
        self.start()

    # ------------------------------------------------------------------ outputs (the machine's Context)

    def wall_us(self) -> int:
        return wall_clock_us()

    def send(self, to: Address, message: Message) -> None:
        if to == self.address:
            self._out(lambda: self._send_here(message))
            return
        neighbour = self._driver.neighbours.get(to)
        if neighbour is not None:
            self._out(lambda: self._hand_to(neighbour, message))
            return
        control, attachments = self._encode(message)
        type_ = FrameType.MESSAGE
        if attachments and (codec := self._driver.compression(to)):
            packed = pack(codec, control, attachments)
            if packed is not None:
                type_, (control, attachments) = FrameType.COMPRESSED, packed
        limit = self._driver.settings.frame_limit_bytes
        parts = encode(type_, self._channel, control, attachments, limit=limit)
        if type_ == FrameType.COMPRESSED:
            attachments = []
        self._out(lambda: self._driver.links.send(to, self._placing.parts(to, control, attachments, parts)))

    def cast(self, to: Address, message: Message) -> None:
        if to == self.address:
            self._out(lambda: self._send_here(message))
            return
        control, attachments = self._encode(message)
        self._out(lambda: self._driver.cast(to, self._channel, control, attachments))

    def set_timer(self, name: str, after_us: int) -> None:
        self.cancel_timer(name)
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(after_us / 1e6, self._ring, name)

    def cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def persist(self, record: bytes) -> None:
        if self._commit is None:
            raise LocalError(f"the machine {self.name!r} keeps records, and the driver was given no folder")
        self._last_record = self._commit.append(record)

    def when_persisted(self, name: str) -> None:
        """Later, for this machine is in the middle of something."""
        loop, machine = asyncio.get_running_loop(), self._machine

        def tell() -> None:
            if machine is not None and machine is self._machine:  # nothing is owed to its next life
                self._call(machine.on_persisted, name)

        def later() -> None:
            loop.call_soon(tell)

        self._out(later)

    def deliver(self, item: object) -> None:
        self._out(lambda: self._hand_over(item))

    def trace(self, what: str, **fields: object) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug(what, extra=logs.extra(node=self.address, machine=self.name, **fields))

    # ------------------------------------------------------------------ inside

    def _encode(self, message: Message) -> tuple[bytes, list[Any]]:
        if self._codec is None:
            raise LocalError(f"the machine {self.name!r} names no `message_types`")
        return self._codec.encode(message)

    def _out(self, effect: Callable[[], None]) -> None:
        if self._commit is not None and self._last_record > self._commit.durable:
            self._held.append((self._last_record, effect))
        else:
            effect()

    def _on_durable(self, upto: int) -> None:
        held = self._held
        while held and held[0][0] <= upto:
            held.popleft()[1]()
        if self._paused and len(held) < _HELD_LIMIT // 2:
            self._resume()

    def _on_disk_failure(self, error: BaseException) -> None:
        self._fail(error)

    def _pause(self, connection: Connection) -> None:
        connection.pause_reading()
        self._paused.add(connection)

    def _resume(self) -> None:
        paused, self._paused = self._paused, set()
        for connection in paused:
            connection.resume_reading()

    def _ring(self, name: str) -> None:
        self._timers.pop(name, None)
        if self._machine is not None:
            self._call(self._machine.on_timer, name)

    def _send_here(self, message: Message) -> None:
        def arrive() -> None:
            if self._machine is not None:
                self._call(self._machine.on_message, self.address, message)

        asyncio.get_running_loop().call_soon(arrive)

    def _hand_to(self, neighbour: Callable[[Message], None], message: Message) -> None:
        """Later, for this machine is in the middle of something, and may be answered at once."""
        asyncio.get_running_loop().call_soon(neighbour, message)

    def _hand_over(self, item: object) -> None:
        try:
            self._deliver(item)
        except Exception:
            log.exception("the application failed on what was delivered", extra={"machine": self.name})
