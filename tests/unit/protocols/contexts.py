"""Contexts for machines that a test drives by hand: they write down what goes out and do nothing with it."""

from __future__ import annotations

import random
from typing import Any

from qanat.kernel import Address, Message


class InOrder:
    """All outputs in one list, for machines whose promises are about order."""

    def __init__(self, address: Address, rng: random.Random | None = None) -> None:
        self.address = address
        self.rng = rng or random.Random(1)
        self.outputs: list[tuple[Any, ...]] = []

    date_us = 0
    """What its wall clock says."""

    def wall_us(self) -> int:
        return self.date_us

    def send(self, to: Address, message: Message) -> None:
        self.outputs.append(("send", to, message))

    def cast(self, to: Address, message: Message) -> None:
        self.outputs.append(("cast", to, message))

    def set_timer(self, name: str, after_us: int) -> None:
        self.outputs.append(("timer", name, after_us))

    def cancel_timer(self, name: str) -> None:
        self.outputs.append(("cancel", name))

    def persist(self, record: bytes) -> None:
        self.outputs.append(("persist", record))

    def when_persisted(self, name: str) -> None:
        self.outputs.append(("when persisted", name))

    def deliver(self, item: object) -> None:
        self.outputs.append(("deliver", item))

    def trace(self, what: str, **fields: object) -> None:
        self.outputs.append(("trace", what, fields))

    def kinds(self) -> list[str]:
        return [output[0] for output in self.outputs]

    def take(self, kind: str) -> list[Any]:
        """What was sent (with whom to) or delivered since the last time."""
        found = [output[1:] if kind == "send" else output[1] for output in self.outputs if output[0] == kind]
        self.outputs = [output for output in self.outputs if output[0] != kind]
        return found


class ByKind:
    """A list of each kind of output, for machines that remember nothing across lives."""

    def __init__(self, address: Address, seed: int = 1) -> None:
        self.address = address
        self.rng = random.Random(seed)
        self.sent: list[tuple[Address, Message]] = []
        self.casts: list[tuple[Address, Message]] = []
        self.timers: dict[str, int] = {}
        self.delivered: list[Any] = []

    date_us = 0
    """What its wall clock says."""

    def wall_us(self) -> int:
        return self.date_us

    def send(self, to: Address, message: Message) -> None:
        self.sent.append((to, message))

    def cast(self, to: Address, message: Message) -> None:
        self.casts.append((to, message))

    def set_timer(self, name: str, after_us: int) -> None:
        self.timers[name] = after_us

    def cancel_timer(self, name: str) -> None:
        self.timers.pop(name, None)

    def persist(self, record: bytes) -> None:
        raise AssertionError("nothing here survives")

    def when_persisted(self, name: str) -> None:
        raise AssertionError("nothing here survives")

    def deliver(self, item: object) -> None:
        self.delivered.append(item)

    def trace(self, what: str, **fields: object) -> None: ...
