"""The view of one member, driven by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocols.contexts import ByKind

from qanat.kernel import Address, Message, ProtocolInvariantError
from qanat.protocols.views import Gossip, Leave, Membership, UseProxy, Views, ViewsConfig

pytestmark = pytest.mark.paper("S6")

ME, PROXY, A, B = (Address(name) for name in ("eu/me", "eu/proxy-1", "eu/a", "eu/b"))


class Outputs(ByKind):
    def __init__(self, address: Address = ME, seed: int = 1) -> None:
        super().__init__(address, seed)

    def send(self, to: Address, message: Message) -> None:
        raise AssertionError("views go by datagram")


def member(
    context: Outputs | None = None, *, listens: bool = True, **config: int
) -> tuple[Membership, Outputs]:
    context = context or Outputs()
    made = Membership(context, ViewsConfig(**config), PROXY, listens=listens)
    made.start()
    return made, context


def names(count: int) -> tuple[Address, ...]:
    return tuple(Address(f"eu/client-{number}") for number in range(count))


def test_a_new_member_knows_the_proxy_alone_and_asks_it() -> None:
    made, context = member()
    assert list(made.view) == [PROXY]
    assert context.casts == [(PROXY, Gossip((), (), True))]
    assert 0 < context.timers["gossip"] <= 500_000


def test_a_received_view_is_joined_cut_to_size_and_the_sender_stays() -> None:
    for seed in range(50):
        made, _ = member(Outputs(seed=seed), view_size=4)
        made.on_gossip(A, Gossip(names(4), (1, 1, 1, 1), False))
        assert len(made.view) == 4
        assert made.view[A] == 0


def test_whoever_wants_an_answer_gets_the_view_from_before() -> None:
    made, context = member(view_size=4)
    context.casts.clear()
    made.on_gossip(A, Gossip((B,), (3,), True))
    [(to, answer)] = context.casts
    assert to == A
    assert isinstance(answer, Gossip)
    assert not answer.answer
    assert answer.members == (PROXY,)
    assert made.view[B] == 3


def test_a_copy_is_older_than_what_it_was_copied_from() -> None:
    made, context = member()
    made.on_gossip(A, Gossip((), (), False))
    made.on_round()
    _, told = context.casts[-1]
    assert isinstance(told, Gossip)
    assert dict(zip(told.members, told.ages, strict=True))[A] == 2


def test_a_silent_member_is_forgotten_and_the_younger_copy_counts() -> None:
    made, _ = member(forget_rounds=3)
    made.on_gossip(A, Gossip((B,), (3,), False))
    made.on_gossip(A, Gossip((B,), (2,), False))
    made.on_gossip(A, Gossip((B,), (3,), False))
    assert made.view[B] == 2
    made.on_round()
    assert B in made.view
    made.on_round()
    assert B not in made.view
    made.on_gossip(A, Gossip((B,), (4,), False))
    assert B not in made.view


def test_the_proxy_that_fills_a_view_is_not_passed_on_as_alive() -> None:
    made, context = member()
    made.on_round()
    _, told = context.casts[-1]
    assert isinstance(told, Gossip)
    assert told.ages[told.members.index(PROXY)] > ViewsConfig().forget_rounds
    other, _ = member(Outputs(B), view_size=1)
    other.view = {A: 0}
    other.on_gossip(ME, told)
    assert list(other.view) == [ME]


def test_every_so_often_the_proxy_is_told_even_if_it_is_not_in_the_view() -> None:
    made, context = member(view_size=1, proxy_rounds=5)
    context.casts.clear()
    for _ in range(10):
        made.on_gossip(A, Gossip((), (), False))
        made.on_round()
    told = [to for to, _ in context.casts]
    assert told.count(PROXY) == 2
    assert told.count(A) == 8


def test_a_client_without_a_way_in_takes_no_part() -> None:
    made, context = member(listens=False)
    made.on_gossip(A, Gossip((B,), (1,), True))
    assert context.casts == []
    assert context.timers == {}
    assert list(made.view) == [PROXY]


def test_the_proxy_itself_is_a_member_that_does_not_know_itself() -> None:
    made, context = member(Outputs(PROXY))
    made.on_gossip(A, Gossip((PROXY, B), (1, 1), True))
    assert sorted(made.view) == [A, B]
    made.on_round()
    assert all(to != PROXY for to, _ in context.casts)


def test_a_broken_connection_and_a_new_proxy_change_the_view() -> None:
    context = Outputs()
    machine = Views(context, ViewsConfig(), PROXY)
    machine.on_start(0, ())
    machine.on_message(0, A, Gossip((), (), False))
    machine.on_link_down(0, A)
    assert list(machine.membership.view) == [PROXY]
    machine.on_request(0, UseProxy(B))
    assert list(machine.membership.view) == [PROXY, B]
    machine.on_timer(0, "gossip")
    machine.on_request(0, Leave())
    assert context.timers == {}
    machine.on_message(0, A, Gossip((), (), True))
    assert machine.membership.view == {}
    with pytest.raises(ProtocolInvariantError):
        machine.on_timer(0, "lunch")


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="view_size"):
        ViewsConfig(view_size=0)


@given(
    st.lists(st.tuples(st.sampled_from([ME, PROXY, *names(30)]), st.integers(-5, 100)), max_size=60),
    st.integers(1, 20),
)
def test_nothing_that_is_said_makes_a_view_too_large(said: list[tuple[Address, int]], view_size: int) -> None:
    made, _ = member(view_size=view_size)
    members, ages = tuple(peer for peer, _ in said), tuple(age for _, age in said)
    made.on_gossip(A, Gossip(members, ages, True))
    assert ME not in made.view
    assert len(made.view) <= view_size
    assert A in made.view
    assert all(0 <= age <= 40 for age in made.view.values())
