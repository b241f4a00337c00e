"""The one way out of a machine."""

import random
from typing import Protocol

from qanat.kernel.address import Address
from qanat.kernel.message import Message


class Context(Protocol):
    """What a driver gives to one machine.

    Outputs take effect in call order. Nothing that is sent, cast or delivered after a `persist` leaves
    the node before that record is on disk; timers and traces are local and do not wait. Contexts may be
    called only from inside the machine's own entry points.
    """

    @property
    def address(self) -> Address:
        """The node this machine runs on."""

    @property
    def rng(self) -> random.Random:
        """The only randomness a machine may draw."""

    def wall_us(self) -> int:
        """The node's wall clock, in microseconds since the epoch: for dates alone. It may be wrong, and may
        jump either way."""

    def send(self, to: Address, message: Message) -> None:
        """Send on the FIFO channel to `to`, opening it if there is none.

        A prefix of what was sent on one channel arrives, in order, once. When the channel breaks both
        ends are told by `on_link_down`; what was sent on it and not yet received is lost, and the next
        `send` opens a new channel.
        """

    def cast(self, to: Address, message: Message) -> None:
        """Send one datagram: it may be lost, doubled or overtaken, and nobody is told."""

    def set_timer(self, name: str, after_us: int) -> None:
        """Call `on_timer(name)` once, `after_us` of monotonic time from now; replaces that timer if set."""

    def cancel_timer(self, name: str) -> None:
        """Forget the timer of that name; nothing happens if there is none."""

    def persist(self, record: bytes) -> None:
        """Append a record to this machine's journal; `on_start` gets back every record that survived."""

    def when_persisted(self, name: str) -> None:
        """Call `on_persisted(name)` once what was persisted so far is on disk, and never at once."""

    def deliver(self, item: object) -> None:
        """Hand an item to the local application."""

    def trace(self, what: str, **fields: object) -> None:
        """Note something for whoever reads the trace; no effect on any machine."""
