"""What a machine is made of: parts that keep their own messages, timers and broken channels to themselves."""

import random
from collections.abc import Callable
from typing import Any, TypeVar

from qanat.kernel.address import Address
from qanat.kernel.context import Context
from qanat.kernel.invariants import require
from qanat.kernel.message import Message


class Part:
    """What can be a part of a machine. A machine is one, too: so machines can be put together."""

    message_types: tuple[type[Message], ...] = ()
    """Every type that `on_message` may be given: nothing else is decoded for it."""
    sent_types: tuple[type[Message], ...] = ()
    """What it sends to machines of other kinds; to its like it sends what it takes."""

    def on_message(self, now_us: int, sender: Address, message: Any) -> None:
        """A message from a peer, by channel or datagram. It may be hostile; the driver checked its types."""
        raise NotImplementedError

    def on_timer(self, now_us: int, name: str) -> None:
        """The timer `name` ran out; it is no longer set."""
        raise NotImplementedError

    def on_persisted(self, now_us: int, name: str) -> None:
        """What was persisted before `context.when_persisted(name)` is on disk."""
        raise NotImplementedError

    def on_link_down(self, now_us: int, peer: Address) -> None:
        """The channel with `peer` broke: what was sent on it after some point did not arrive."""


P = TypeVar("P", bound=Part)


class PartContext:
    """The machine's context as one part sees it: what the part names has the part's name before it."""

    def __init__(self, context: Context, name: str) -> None:
        self.address: Address = context.address
        self.rng: random.Random = context.rng
        self.wall_us = context.wall_us
        self.send, self.cast = context.send, context.cast
        self.persist, self.deliver, self.trace = context.persist, context.deliver, context.trace
        self._context, self._prefix = context, f"{name}/"

    def set_timer(self, name: str, after_us: int) -> None:
        self._context.set_timer(self._prefix + name, after_us)

    def cancel_timer(self, name: str) -> None:
        self._context.cancel_timer(self._prefix + name)

    def when_persisted(self, name: str) -> None:
        self._context.when_persisted(self._prefix + name)


class Parts:
    """The parts of one machine, by name. The machine hands over what it hears, and keeps what is none of
    theirs."""

    def __init__(self, machine: Part, context: Context) -> None:
        self._machine, self._context = machine, context
        self._named: dict[str, Part] = {}
        self._takes: dict[type[Message], Part] = {}

    def add(self, name: str, make: Callable[[Context], P]) -> P:
        """The machine speaks what its parts speak. They hear of a broken channel in the order in which they
        were added."""
        require("/" not in name and name not in self._named, f"a machine has one part {name!r}")
        part = make(PartContext(self._context, name))
        self._named[name] = part
        for kind in part.message_types:
            require(kind not in self._takes, f"two parts take {kind.__name__}")
            self._takes[kind] = part
        machine = self._machine
        machine.message_types = (*machine.message_types, *part.message_types)
        machine.sent_types = (*machine.sent_types, *part.sent_types)
        return part

    def on_message(self, now_us: int, sender: Address, message: Message) -> bool:
        """False if no part takes such messages."""
        part = self._takes.get(type(message))
        if part is None:
            return False
        part.on_message(now_us, sender, message)
        return True

    def on_timer(self, now_us: int, name: str) -> bool:
        """False if it is no part's."""
        part, rest = self._owner(name)
        if part is None:
            return False
        part.on_timer(now_us, rest)
        return True

    def on_persisted(self, now_us: int, name: str) -> None:
        part, rest = self._owner(name)
        require(part is not None, f"no part waits for {name!r}")
        if part is not None:
            part.on_persisted(now_us, rest)

    def on_link_down(self, now_us: int, peer: Address) -> None:
        for part in self._named.values():
            part.on_link_down(now_us, peer)

    def _owner(self, name: str) -> tuple[Part | None, str]:
        owner, slash, rest = name.partition("/")
        return (self._named.get(owner), rest) if slash else (None, name)
