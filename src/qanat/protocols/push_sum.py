"""Push-sum gossip: every node learns the average (or sum) of all nodes' values.

After Kempe, Dobra and Gehrke, as used by the circuit-breaker paper (section 6.1): a node keeps a portion
`p` and a weight `w`, at first its own value and one. Each round it splits both into `b + 1` equal shares
and gives one to each of `b` random peers; `p / w` converges to the average, `p / w · n` to the sum, as long
as no portion and no weight is ever lost or counted twice.

| message | sent | says |
|---|---|---|
| `Portion` | each round to `b` peers; again while unacknowledged | all that the sender ever gave this peer |
| `Ack` | for each `Portion` | the highest number incorporated |

Loss and duplication are harmless because a `Portion` carries cumulative totals (the idea of section
6.2.1): the receiver takes the difference to what it took before, so any later message repairs a lost one
and an old one changes nothing. Totals count modulo 2^63, as TCP's numbers do, so they never overflow.

Guarantees. Portions and weights are whole numbers of small units, so conservation is exact, not up to
rounding. With `durable`, every change is on disk before anything that reveals it leaves the node, so mass
is conserved across crashes too; without it, a crash forgets the node's mass and the estimate is wrong
from then on. What a crashed or unreachable node holds is missing from others' estimates until it is back.
Deviation from the paper: totals since the beginning, not since the last acknowledgement, so a node keeps
two numbers per peer for ever; and the journal is never shortened.
"""

from collections.abc import Sequence
from typing import TypeAlias, assert_never

import msgspec

from qanat.events.ranges import Count
from qanat.kernel import Address, Context, Machine, Message, require

VALUE_UNITS = 1 << 20
"""Units per 1.0 of value: six decimals."""
WEIGHT_UNITS = 1 << 40
"""Units of a node's first weight: shares stay exact to one in a thousand after thirty halvings."""
VALUE_LIMIT = 1e9
"""Largest value a node may hold: a thousand nodes' units then stay below 2^60."""
_MODULUS = 1 << 63
ROUND = "round"


class Portion(Message, frozen=True):
    """All that the sender ever gave to the receiver, in units modulo 2^63, up to gift number `number`."""

    number: Count
    value: Count
    weight: Count


class Ack(Message, frozen=True):
    """The sender has incorporated all gifts up to `number`."""

    number: Count


PushSumMessage: TypeAlias = Portion | Ack


class SetValue(msgspec.Struct, frozen=True):
    """Request: this node's own value is now `value`."""

    value: float


class Estimate(msgspec.Struct, frozen=True):
    """Delivered after each round."""

    average: float
    total: float


class PushSumConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    branching: int = 1
    """Peers per round (the paper's b). 1 converges in O(log n) rounds with the fewest messages."""
    interval_ms: float = 100.0
    """Time between rounds. At least a round trip, or most messages are retries."""
    retry_rounds: int = 2
    """Rounds without an acknowledgement before a portion is sent again: twice the time it should take."""
    durable: bool = True
    """Write each change to disk before it shows; without it a crash loses the node's mass."""

    def __post_init__(self) -> None:
        if self.branching < 1 or self.retry_rounds < 1 or self.interval_ms <= 0:
            raise ValueError("branching and retry_rounds must be at least 1, interval_ms above 0")


class Account(msgspec.Struct):
    """Everything given to, or taken from, one peer: the number of the last gift and the totals."""

    number: int = 0
    value: int = 0
    weight: int = 0

    def add(self, value: int, weight: int) -> None:
        self.number += 1
        self.value = (self.value + value) % _MODULUS
        self.weight = (self.weight + weight) % _MODULUS


class Given(msgspec.Struct, frozen=True, tag=True):
    """Record: one share of this size went to each of these peers."""

    peers: tuple[str, ...]
    value: int
    weight: int


class Taken(msgspec.Struct, frozen=True, tag=True):
    """Record: what this peer gave, up to this number, is now ours."""

    peer: str
    number: int
    value: int
    weight: int


class Changed(msgspec.Struct, frozen=True, tag=True):
    """Record: our own value, in units."""

    value: int


Record: TypeAlias = Given | Taken | Changed
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class PushSum(Machine[PushSumMessage, SetValue]):
    """One node's part. `given` and `taken` are its accounts with each peer, for checkers to read."""

    message_types = (Portion, Ack)
    delivers = (Estimate,)

    def __init__(self, context: Context, config: PushSumConfig, everyone: Sequence[Address]) -> None:
        super().__init__(context)
        self._config = config
        self._interval_us = round(config.interval_ms * 1000)
        self._nodes = len(everyone)
        self._peers = tuple(sorted(peer for peer in everyone if peer != context.address))
        self._known = frozenset(self._peers)
        self._branching = min(config.branching, len(self._peers))
        self._round = 0
        self._unacked: dict[Address, int] = {}
        """Peers that owe us an acknowledgement, with the round in which we last sent."""
        self.own = 0
        self.portion = 0
        self.weight = WEIGHT_UNITS
        self.given: dict[Address, Account] = {}
        self.taken: dict[Address, Account] = {}

    @property
    def average(self) -> float:
        return self.portion / VALUE_UNITS / (self.weight / WEIGHT_UNITS)

    # Inputs

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        for record in saved:
            self._apply(_decode(record))
        self._unacked = dict.fromkeys(self.given, 0)
        self.context.set_timer(ROUND, self.context.rng.randrange(self._interval_us) + 1)

    def on_message(self, now_us: int, sender: Address, message: PushSumMessage) -> None:
        if sender not in self._known:
            self.context.trace("stranger", sender=sender)
            return
        match message:
            case Portion():
                self._on_portion(sender, message)
            case Ack():
                if sender in self.given and message.number >= self.given[sender].number:
                    self._unacked.pop(sender, None)
            case _:
                assert_never(message)

    def on_timer(self, now_us: int, name: str) -> None:
        require(name == ROUND, f"no timer is called {name!r}")
        self._round += 1
        self._give()
        self._retry()
        self.context.deliver(Estimate(self.average, self.average * self._nodes))
        self.context.set_timer(ROUND, self._interval_us)

    def on_request(self, now_us: int, request: SetValue) -> None:
        if not abs(request.value) <= VALUE_LIMIT:
            self.context.trace("refused", reason=f"value beyond {VALUE_LIMIT:g}")
            return
        self._record(Changed(round(request.value * VALUE_UNITS)))

    # Transitions

    def _give(self) -> None:
        if not self._peers:
            return
        chosen = self.context.rng.sample(self._peers, self._branching)
        shares = self._branching + 1
        self._record(Given(tuple(chosen), self.portion // shares, self.weight // shares))
        for peer in chosen:
            self._send(peer)

    def _retry(self) -> None:
        late = self._round - self._config.retry_rounds
        for peer in [peer for peer, last in self._unacked.items() if last <= late]:
            self._send(peer)

    def _send(self, peer: Address) -> None:
        account = self.given[peer]
        self._unacked[peer] = self._round
        self.context.cast(peer, Portion(account.number, account.value, account.weight))

    def _on_portion(self, sender: Address, message: Portion) -> None:
        account = self.taken.get(sender)
        if account is None or message.number > account.number:
            self._record(Taken(sender, message.number, message.value, message.weight))
        self.context.cast(sender, Ack(self.taken[sender].number))

    def _record(self, record: Record) -> None:
        """Every change of what must survive goes through here, now and when it is read back."""
        if self._config.durable:
            self.context.persist(_encode(record))
        self._apply(record)

    def _apply(self, record: Record) -> None:
        match record:
            case Given():
                for peer in record.peers:
                    self.given.setdefault(Address(peer), Account()).add(record.value, record.weight)
                    self.portion -= record.value
                    self.weight -= record.weight
            case Taken():
                account = self.taken.setdefault(Address(record.peer), Account())
                self.portion += _signed(record.value - account.value)
                self.weight += (record.weight - account.weight) % _MODULUS
                account.number, account.value, account.weight = record.number, record.value, record.weight
            case Changed():
                self.portion += record.value - self.own
                self.own = record.value
            case _:
                assert_never(record)
        require(self.weight > 0, "a node's weight fell to nothing")


def _signed(difference: int) -> int:
    """A difference modulo 2^63 as the number nearest to zero: values may be negative."""
    return (difference + _MODULUS // 2) % _MODULUS - _MODULUS // 2
