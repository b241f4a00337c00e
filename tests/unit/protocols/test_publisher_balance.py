"""Who gets which flow: by chance, by least load, by a class of one's own."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocols.contexts import InOrder
from tests.unit.protocols.publisher_by_hand import NOW, Desk, row

from qanat.events.errors import LocalError
from qanat.events.position import Position
from qanat.kernel import Address
from qanat.protocols.publisher.balance import Coordinated, WeightedRandom, loads_of, make_balance
from qanat.protocols.publisher.config import ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.flows import Flow, Served
from qanat.protocols.publisher.link import Link
from qanat.protocols.publisher.messages import Token
from qanat.protocols.publisher.reading import Configure


def application(weights: list[float], flows: list[int], elsewhere: list[int] | None = None) -> Served:
    """With a subscriber of each weight, which has so many flows."""
    served = Served("cache", ApplicationConfig(), 1)
    for number, weight in enumerate(weights):
        link = Link(InOrder(Address("publisher")), Address(f"s{number}"), served)
        link.weight, link.open = weight, True
        served.links[link.address] = link
        for _ in range(flows[number]):
            flow = Flow(served, 0, Position(0), f"shard-{len(served.flows)}", len(served.flows))
            served.add(flow)
            link.add(flow)
    if elsewhere is not None:
        served.elsewhere = {f"s{number}": count for number, count in enumerate(elsewhere)}
    return served


SUBSCRIBERS = st.lists(
    st.tuples(st.sampled_from((1.0, 1.0, 2.0, 0.5)), st.integers(0, 40), st.integers(0, 40)), min_size=2,
    max_size=8
)  # fmt: skip


@pytest.mark.paper("W11")
@given(SUBSCRIBERS, st.integers(0, 1000))
def test_no_move_would_make_it_more_even_than_coordinated_does(
    subscribers: list[tuple[float, int, int]], seed: int
) -> None:
    weights, flows, _ = (list(column) for column in zip(*subscribers, strict=True))
    served = application(weights, flows)
    links = list(served.links.values())
    loads = loads_of(served, links)
    moves = Coordinated().rebalance(served, links, random.Random(seed))
    assert len({flow.shard for flow, _ in moves}) == len(moves), "each goes once"
    for flow, to in moves:
        assert flow.link is not None
        loads[flow.link] -= 1
        loads[to] += 1
    most = max(loads[link] / link.weight for link in links)
    assert all((loads[link] + 1) / link.weight >= most for link in links)


@pytest.mark.paper("W11")
@given(SUBSCRIBERS, st.integers(0, 1000))
def test_a_publisher_moves_no_more_than_all_together_should(
    subscribers: list[tuple[float, int, int]], seed: int
) -> None:
    weights, flows, elsewhere = (list(column) for column in zip(*subscribers, strict=True))
    served = application(weights, flows, elsewhere)
    links = list(served.links.values())
    whole = application(weights, [a + b for a, b in zip(flows, elsewhere, strict=True)])
    together = Coordinated().rebalance(whole, list(whole.links.values()), random.Random(seed))
    mine = Coordinated().rebalance(served, links, random.Random(seed))
    assert len(mine) <= len(together)
    assert all(flow.link is not to for flow, to in mine)


@pytest.mark.paper("W11")
def test_coordinated_spreads_far_more_tightly_than_chance() -> None:
    """Figure 11: most have 122 to 126 flows, against 88 to 135 by chance."""
    spread = {}
    for name, balance in (("chance", WeightedRandom()), ("coordinated", Coordinated())):
        served = application([1.0] * 20, [0] * 20)
        links = list(served.links.values())
        flows = [Flow(served, 0, Position(0), f"{n}", n) for n in range(2480)]
        chosen = balance.assign(served, flows, links, random.Random(1))
        counts = [chosen.count(link) for link in links]
        spread[name] = max(counts) - min(counts)
    assert spread["coordinated"] == 0
    assert spread["chance"] > 10


def test_flows_that_are_on_their_way_count_where_they_go() -> None:
    desk = Desk(PublisherConfig(balance="coordinated"))
    desk.join("one")
    desk.settle()
    desk.read(*(row(number + 1, f"s{number}") for number in range(4)))
    desk.join("two")
    desk.settle()
    served = desk.machine.served["cache"]
    links = list(served.links.values())
    assert list(loads_of(served, links).values()) == [2, 2]
    desk.timer("rebalance")
    assert desk.machine.counts["flows_rebalanced"] == 0, "they are not moved twice"
    desk.handle_all("one")
    assert [len(link.flows) for link in links] == [2, 2]


class Mine(WeightedRandom):
    pass


def test_the_balance_is_chosen_by_name_and_changes_while_it_runs() -> None:
    assert isinstance(make_balance(PublisherConfig(balance=f"{__name__}:Mine")), Mine)
    with pytest.raises(LocalError, match=r"no balance 'even'; there are weighted-random, coordinated"):
        make_balance(PublisherConfig(balance="even"))
    with pytest.raises(LocalError, match=r"cannot be loaded.*PYTHONPATH"):
        make_balance(PublisherConfig(balance="nowhere:Mine"))
    with pytest.raises(LocalError, match=r"has no method assign"):
        make_balance(PublisherConfig(balance="builtins:object"))
    desk = Desk()
    desk.machine.on_request(
        NOW, Configure(desk.machine.applications, PublisherConfig(balance="coordinated", rebalance_ms=5.0))
    )
    assert isinstance(desk.machine.balance, Coordinated)


@pytest.mark.paper("W11")
def test_who_was_away_for_a_moment_takes_nothing_from_the_others() -> None:
    desk = Desk()
    for name in ("s1", "s2"):
        desk.join(name)
    desk.settle()
    desk.read(*(row(number, f"shard-{number}") for number in range(1, 41)))
    before = {name: set(desk.machine.links[Address(name)].flows) for name in ("s1", "s2")}
    assert all(before.values())
    desk.machine.on_link_down(NOW, Address("s1"))
    desk.join("s1", attempt=1)
    desk.settle()
    assert [item for name in before for item in desk.sent(name, Token)] == []
    assert {name: set(desk.machine.links[Address(name)].flows) for name in before} == before
    desk.join("s3")
    desk.settle()
    assert {item.last for name in before for item in desk.sent(name, Token)} == {True}, (
        "who is new gets its share"
    )
