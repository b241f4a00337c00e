"""Single events on their way into batches: those that are published together travel together."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from qanat.client.errors import Congested
from qanat.client.flight import Flight, Receipt
from qanat.events.attributes import Value
from qanat.events.batch import Kind
from qanat.events.encode import Array
from qanat.events.errors import MalformedBatch, QanatError

_HOLD_WINDOWS = 8
"""Windows' worth of bytes that `publish` takes without anyone waiting for room; then it refuses."""
_EAGER_FLIGHTS = 32
"""Unanswered batches at which single events wait for company. Below it an event leaves at the end of its turn
of the loop; a server that is behind gets fewer and larger batches instead of a longer queue of small ones. In
32 batches there is enough to do for a server until the next arrive, and an event waits for a 32nd of a round
trip."""


class Gathering(ABC):
    """Takes events of one stream one by one, and makes batches of them. What becomes of a batch is its
    heir's."""

    def __init__(
        self,
        stream: str,
        now_us: Callable[[], int],
        forget: Callable[[], None],
        batch_bytes: int,
        window_bytes: int,
    ) -> None:
        self.stream = stream
        self.error: QanatError | None = None
        self.queued_bytes = 0
        """Waiting and flying together: what the publisher's process holds."""
        self._now_us, self._forget = now_us, forget
        self._batch_bytes, self._window_bytes = batch_bytes, window_bytes
        self._payloads: list[bytes] = []
        self._keys: list[bytes] = []
        self._attributes: list[dict[str, Value] | None] = []
        self._receipts: list[Receipt] = []
        self._kinds: dict[int, int] = {}
        self._has_keys = self._has_attributes = False
        self._buffered = 0
        self._flush_set = False
        self._held = False
        """Whether what `add` took waits for an answer rather than for the end of this turn."""

    @abstractmethod
    def put(
        self, payloads: Any, keys: Any, attributes: Any, time_us: int, kinds: Array | None = None
    ) -> Flight:
        """A batch from columns, on its way."""

    @property
    @abstractmethod
    def unanswered(self) -> int:
        """Batches that were put and have not landed."""

    def add(
        self, payload: bytes, key: bytes, attributes: dict[str, Value] | None, kind: int = Kind.DATA
    ) -> Receipt:
        """One event; it leaves with others at the end of this turn of the loop, or when a batch is full; or,
        if many batches are unanswered, with the next answer."""
        if self.error is not None:
            self.refuse(self.error)
        if self.queued_bytes + self._buffered > _HOLD_WINDOWS * self._window_bytes:
            raise Congested(
                f"{self.queued_bytes + self._buffered} bytes for {self.stream!r} wait for the server; "
                "`await client.room(stream)` between publishes"
            )
        if not isinstance(payload, bytes) or not isinstance(key, bytes):
            raise MalformedBatch(
                f"payload and key must be bytes, not {type(payload).__name__} and {type(key).__name__}"
            )
        receipt = Receipt(self)
        self._payloads.append(payload)
        self._keys.append(key)
        self._attributes.append(attributes)
        self._receipts.append(receipt)
        if kind:
            self._kinds[len(self._receipts) - 1] = kind
        if key:
            self._has_keys = True
        if attributes:
            self._has_attributes = True
        self._buffered += len(payload) + len(key)
        if self._buffered >= self._batch_bytes or len(self._payloads) >= 65_536:
            self.flush()
        elif not self._flush_set:
            self._flush_set = True
            asyncio.get_running_loop().call_soon(self._turn_over)
        return receipt

    def _turn_over(self) -> None:
        if self.unanswered < _EAGER_FLIGHTS:
            self.flush()
        else:
            self._held = True

    def flush(self) -> None:
        """Makes a batch of what `add` took and sends it as soon as it can go."""
        self._flush_set = self._held = False
        if not self._payloads:
            return
        payloads, self._payloads = self._payloads, []
        keys, self._keys = self._keys, []
        attributes, self._attributes = self._attributes, []
        receipts, self._receipts = self._receipts, []
        kinds: Array | None = None
        if self._kinds:
            kinds = np.zeros(len(payloads), np.uint8)
            kinds[list(self._kinds)] = list(self._kinds.values())
            self._kinds = {}
        self._buffered = 0
        has_keys, self._has_keys = self._has_keys, False
        has_attributes, self._has_attributes = self._has_attributes, False
        self._depart(
            receipts,
            payloads,
            keys if has_keys else None,
            attributes if has_attributes else None,
            self._now_us(),
            kinds,
        )

    def _depart(
        self,
        receipts: list[Receipt],
        payloads: list[bytes],
        keys: list[bytes] | None,
        attributes: list[dict[str, Value] | None] | None,
        time_us: int,
        kinds: Array | None,
    ) -> None:
        """One batch of them; if that cannot be made, halves, so that one bad event fails alone."""
        try:
            flight = self.put(payloads, keys, attributes, time_us, kinds)
        except QanatError as error:
            if len(receipts) > 1 and self.error is None:
                middle = len(receipts) // 2
                for part in (slice(None, middle), slice(middle, None)):
                    self._depart(
                        receipts[part],
                        payloads[part],
                        keys[part] if keys else None,
                        attributes[part] if attributes else None,
                        time_us,
                        kinds[part] if kinds is not None else None,
                    )
                return
            flight = Flight((bytearray(),), len(payloads))
            flight.land(0, 0, error)
        for index, receipt in enumerate(receipts):
            receipt.take_seat(flight, index)

    def refuse(self, error: QanatError) -> NoReturn:
        """Says once that what was published before failed; the next publish tries anew, with an outbox of its
        own."""
        self._forget()
        raise error
