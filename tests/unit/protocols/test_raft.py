"""An ensemble of three, told what to do: its first start, lost disks, bounds, what it writes down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocols.contexts import InOrder

from qanat.checks.raft_checkers import CommittedStays, OneLeader
from qanat.checks.raft_hosts import Keeper, Look, Put, Stored, raft_of
from qanat.kernel import Address, Context, ProtocolInvariantError
from qanat.protocols.raft import Kept, RaftConfig, begin_from, compact
from qanat.protocols.raft.messages import AppendEntries, Entry, RequestVote, VoteReply
from qanat.protocols.raft.records import Beginning, Standing, Term
from qanat.sim import Checker, Links, LinkSpec, SimNode, World
from qanat.sim.paths import Condition

S = 1_000_000
A, B, C = (Address(name) for name in "abc")
CONFIG = RaftConfig(beat_ms=50.0, election_ms=300.0, message_bytes=100, log_bytes=200)


class HasJournal(Keeper):
    """Begins its first life with what it is given."""

    def __init__(self, context: Context, journals: Mapping[Address, Sequence[bytes]]) -> None:
        super().__init__(context, CONFIG, [A, B, C])
        self._given = journals.get(context.address, ())

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None:
        super().on_start(now_us, saved or self._given)


class Room:
    """Three members; `said` is what they answered."""

    def __init__(self, *absent: Address, journals: Mapping[Address, Sequence[bytes]] | None = None) -> None:
        checkers: list[Checker] = [OneLeader(), CommittedStays()]
        self.world = World(1, links=Links(LinkSpec(latency_ms=1.0)), checkers=checkers, tracing=False)
        self.said: list[Any] = []
        self.world.deliver_hooks.append(lambda world, node, item: self.said.append(item))
        for address in (A, B, C):
            self.world.add(address, lambda context: HasJournal(context, journals or {}))
        for address in (A, B, C):
            if address not in absent:
                self.world.after(0, self.node(address).start)
        self.run(1.5)

    def node(self, address: Address) -> SimNode:
        return self.world.nodes[address]

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now + round(seconds * S))
        assert self.world.violations == []

    @property
    def leader(self) -> SimNode | None:
        leaders = [node for node in self.world.node_list if node.up and raft_of(node).serves]
        return max(leaders, key=lambda node: raft_of(node).seat.kept.term) if leaders else None

    def led_by(self, address: Address) -> None:
        """Until that one leads: whoever does is stopped for a while."""
        while self.leader is not self.node(address):
            leader = self.leader
            assert leader is not None
            leader.pause()
            self.run(1.5)
            leader.resume()
            self.run(0.5)

    def put(self, number: int, seconds: float = 0.5) -> bool:
        leader = self.leader
        if leader is not None:
            leader.request(Put(number, 1))
        self.run(seconds)
        return any(isinstance(item, Stored) and item.number == number for item in self.said)

    def crash(self, *addresses: Address) -> None:
        for address in addresses:
            self.world.crash(self.node(address))

    def lose_disk(self, *addresses: Address, lost: bool = False) -> None:
        self.crash(*addresses)
        for address in addresses:
            self.node(address).wipe()

    def back(self, *addresses: Address, seconds: float = 2.0) -> None:
        for address in addresses:
            self.world.after(0, self.node(address).restart)
        self.run(seconds)

    def cut(self, one: Address, *others: Address) -> Condition:
        sides = frozenset((self.node(one).index,)), frozenset(self.node(other).index for other in others)
        condition = Condition(*sides, both_ways=True, cut=True)
        self.world.network.worsen(condition)
        return condition


def test_an_ensemble_begins_from_nothing_only_when_all_members_say_that_they_have_nothing() -> None:
    room = Room(C)
    room.run(10)
    assert room.leader is None
    waits = raft_of(room.node(A)).status().waits
    assert waits.startswith("a, b came without a journal, so it waits for c;")
    room.back(C)
    assert room.put(1)


def test_who_lost_its_disk_counts_for_nothing_until_a_majority_of_others_vouches() -> None:
    room = Room()
    room.led_by(A)
    assert room.put(1)
    room.lose_disk(B)
    room.crash(C)
    room.back(B, seconds=0.0)
    assert not room.put(2)
    assert not raft_of(room.node(B)).seat.kept.whole
    room.run(2)
    assert raft_of(room.node(A)).leading is None
    assert raft_of(room.node(A)).status().waits.startswith("b came without a journal, so it waits for c;")
    room.crash(A)
    room.back(C)
    assert room.leader is None, (
        "the two that are there are one that may have been behind, and one that forgot"
    )
    room.back(A)
    assert room.put(3)
    assert raft_of(room.node(B)).seat.kept.whole
    assert raft_of(room.node(B)).seat.kept.log.records(1 << 30) != []


def test_a_majority_without_journals_never_makes_the_third_forget() -> None:
    room = Room()
    assert room.put(1)
    room.lose_disk(B, C)
    room.back(B, C, seconds=10)
    assert room.leader is None
    waits = raft_of(room.node(A)).status().waits
    assert (
        waits == "b, c came without a journal, so a majority has forgotten: bring one journal back, or `qanat"
        " coordinator begin`"
    )
    assert raft_of(room.node(A)).seat.kept.log.records(1 << 30)[0] == b"1/1"


def test_a_journal_that_was_refused_is_not_one_that_never_was() -> None:
    context = InOrder(A)
    keeper = Keeper(context, CONFIG, [A, B, C])
    keeper.raft.start(0, [], lost=True)
    assert not keeper.raft.seat.kept.nothing
    again = Keeper(InOrder(A), CONFIG, [A, B, C])
    again.raft.start(0, context.take("persist"))
    assert not again.raft.seat.kept.nothing
    assert not again.raft.seat.kept.whole


def test_when_a_leader_dies_another_one_serves_what_was_stored() -> None:
    room = Room()
    for number in range(1, 100):
        assert room.put(number, 0.02)
    leader = room.leader
    assert leader is not None
    room.crash(leader.address)
    room.run(1.5)
    assert room.put(100)
    now = room.leader
    assert now is not None
    now.request(Look(100))
    room.run(0.2)
    assert room.said[-1].count == 100
    room.back(leader.address)
    assert raft_of(leader).seat.commit == raft_of(now).seat.commit
    assert raft_of(leader).seat.kept.log.base > 0


def test_a_leader_that_hears_of_no_majority_resigns() -> None:
    room = Room()
    leader = room.leader
    assert leader is not None
    room.cut(leader.address, *(each for each in (A, B, C) if each != leader.address))
    room.run(1.0)
    assert raft_of(leader).leading is None
    assert room.leader is not None
    assert room.leader is not leader


def test_a_member_that_was_cut_off_disturbs_nobody_when_it_is_back() -> None:
    room = Room()
    room.led_by(A)
    term = raft_of(room.node(A)).seat.kept.term
    cut = room.cut(C, A, B)
    room.run(10)
    room.world.network.better(cut)
    room.run(2)
    assert raft_of(room.node(A)).seat.kept.term == term
    assert room.leader is room.node(A)


def test_a_new_ensemble_begins_with_one_journal_and_older_members_take_it() -> None:
    before = Room()
    for number in range(1, 20):
        before.put(number, 0.05)
    old = raft_of(before.node(A)).seat.kept
    records = old.log.records(old.log.last_index)
    beginning = begin_from(old, records[:10])
    room = Room(journals={A: beginning, B: beginning, C: old.saved()})
    assert room.put(99)
    for address in (A, B, C):
        kept = raft_of(room.node(address)).seat.kept
        assert kept.log.records(kept.log.last_index) == [*records[:10], b"99/1"]


# By hand


def follower() -> tuple[Keeper, InOrder]:
    context = InOrder(A)
    keeper = Keeper(context, CONFIG, [A, B, C])
    kept = Kept()
    kept.apply(Standing(whole=True, lost=False))
    keeper.on_start(0, kept.saved())
    context.outputs.clear()
    return keeper, context


def leader(**settings: Any) -> tuple[Keeper, InOrder]:
    context = InOrder(A)
    keeper = Keeper(context, RaftConfig(**settings), [A, B, C])
    kept = Kept()
    kept.apply(Standing(whole=True, lost=False))
    keeper.on_start(0, kept.saved())
    keeper.on_timer(0, "raft/elect")
    keeper.on_message(0, B, VoteReply(1, True, True))
    keeper.on_message(0, B, VoteReply(1, False, True))
    assert keeper.raft.leading is not None
    context.outputs.clear()
    return keeper, context


def test_a_vote_is_on_disk_before_it_is_given() -> None:
    keeper, context = follower()
    keeper.on_message(0, B, RequestVote(1, False, 0, 0))
    kinds = [kind for kind in context.kinds() if kind in ("persist", "send")]
    assert kinds == ["persist", "persist", "send"]
    keeper.on_message(0, C, RequestVote(1, False, 5, 0))
    assert [reply.granted for _, reply in context.take("send")] == [True, False]


def test_a_leader_sends_to_a_silent_member_no_more_than_its_window() -> None:
    keeper, context = leader(message_bytes=100, window_messages=3)
    for _ in range(200):
        keeper.raft.propose(b"x" * 90)
        keeper.raft.flush(0)
    sent = [message for to, message in context.take("send") if to == B and isinstance(message, AppendEntries)]
    assert sum(len(message.entries) for message in sent) <= 2 * 3 + 1


def test_a_leader_with_too_much_that_no_majority_has_is_overfull() -> None:
    keeper, _ = leader(pending_records=10)
    for _ in range(9):
        keeper.raft.propose(b"x")
    assert not keeper.raft.is_overfull()
    keeper.raft.propose(b"x")
    assert keeper.raft.is_overfull()
    keeper, _ = leader(pending_bytes=10)
    keeper.raft.propose(b"x" * 11)
    assert keeper.raft.is_overfull()


def test_a_record_that_fits_no_message_is_refused() -> None:
    keeper, _ = leader()
    with pytest.raises(ProtocolInvariantError, match="a record has 1 to"):
        keeper.raft.propose(bytes(1 << 20))


def test_all_that_was_proposed_in_one_turn_is_one_record_on_disk_and_one_message_to_each() -> None:
    keeper, context = leader()
    keeper.raft.leading.members[B].probing = False  # type: ignore[union-attr]
    for _ in range(5):
        keeper.raft.propose(b"x")
    keeper.raft.flush(0)
    outputs = [kind for kind in context.kinds() if kind in ("persist", "send")]
    assert outputs == ["send", "send", "persist"], "sent first, so that all disks work at once"


@given(
    st.lists(
        st.one_of(
            st.builds(Term, st.integers(0, 9), st.sampled_from(["", "a", "b"])),
            st.builds(Standing, st.booleans(), st.booleans()),
            st.tuples(st.integers(0, 5), st.lists(st.binary(max_size=3), max_size=4)),
            st.integers(0, 8),
        )
    )
)
def test_fewer_records_lead_to_the_same_member(steps: list[Any]) -> None:
    kept, context = Kept(), InOrder(A)
    for step in steps:
        log = kept.log
        match step:
            case Term() | Standing():
                kept.write(context, step)
            case (back, records):
                first = max(log.base + 1, log.last_index + 1 - back)
                kept.put(context, first, [Entry(3, record) for record in records])
            case index:
                if log.base < log.base + index <= log.last_index:
                    upto = log.base + index
                    kept.write(context, Beginning(upto, log.term_at(upto) or 0, tuple(log.records(upto))))
    written = context.take("persist")
    for saved in (written, compact(written)):
        again = Kept()
        again.load(saved)
        assert (again.term, again.vote, again.whole, again.lost) == (
            kept.term,
            kept.vote,
            kept.whole,
            kept.lost,
        )
        assert (again.log.base, again.log.snapshot, again.log.last_index, again.log.last_term) == (
            kept.log.base,
            kept.log.snapshot,
            kept.log.last_index,
            kept.log.last_term,
        )
        assert again.log.records(1 << 30) == kept.log.records(1 << 30)
