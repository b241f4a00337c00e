"""A coordinator that has forgotten: chains go on from what their replicas know, or wait; and what goes wrong
without each rule."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
from tests.rotation import share
from tests.simulation.chain_story import COORDINATOR, ONE, STREAM, THREE, TWO, BrokenPromise, Story
from tests.simulation.planting import first_caught

from qanat.checks.chain_hosts import chain_of, history_of
from qanat.checks.scenarios import load_scenario
from qanat.kernel import Address
from qanat.protocols.chain import Chain, Configuration, GiveUp, manager, recovery
from qanat.protocols.chain.knowledge import Knowledge
from qanat.protocols.chain.recovery import Standing
from qanat.sim.testing import assert_kept

SCENARIO = Path(__file__).parents[2] / "scenarios/chain_collect.toml"
FORGETFUL, REWOUND = "scenarios/chain_forgetful.toml", "scenarios/chain_rewound.toml"


@pytest.mark.rotating
@pytest.mark.paper("S9")
@pytest.mark.parametrize("part", range(2))
def test_a_chain_keeps_its_promises_though_its_coordinator_forgets_everything(part: int) -> None:
    assert_kept(load_scenario(FORGETFUL), share(range(part * 30, part * 30 + 30)))


@pytest.mark.soak
def test_a_chain_keeps_its_promises_though_its_coordinator_forgets_everything_at_length() -> None:
    assert_kept(load_scenario(FORGETFUL), range(100, 1500))
    assert_kept(load_scenario(REWOUND), range(100, 300))


@pytest.mark.paper("S9")
def test_a_chain_keeps_its_promises_though_its_coordinator_is_put_back_as_it_was() -> None:
    assert_kept(load_scenario(REWOUND), range(6))


def test_a_coordinator_that_is_put_back_between_a_session_and_its_registration_is_told_again() -> None:
    assert_kept(load_scenario(REWOUND), [51])


@pytest.mark.rotating
def test_regions_keep_their_promises_though_their_coordinators_forget_everything() -> None:
    assert_kept(load_scenario("scenarios/region_forgetful.toml"), share(range(15)))


# Planted bugs


@pytest.mark.parametrize(
    ("where", "what", "bug"),
    [
        (manager, "begun", lambda me, newest, named, gone: Configuration(1, (me,))),
        (recovery, "absent", lambda now, newest, gone=(): []),
        (Knowledge, "_take", lambda self, configuration: False),
    ],
    ids=["begins again at once", "asks nobody", "writes nothing down"],
)
def test_a_planted_bug_is_caught(
    monkeypatch: pytest.MonkeyPatch, where: object, what: str, bug: Callable[..., object]
) -> None:
    monkeypatch.setattr(where, what, bug)
    _, (worst, *_) = first_caught(load_scenario(FORGETFUL), range(60))
    assert worst.explanation


# Stories


def coordinator_returns(story: Story, share: float = 0.0) -> None:
    node = story.node(Address(COORDINATOR))
    if node.up:
        story.world.crash(node)
    node.forget(share)
    node.restart()


def one_reigns_alone() -> tuple[Story, Address, Address]:
    """Head and tail; the head dies, the tail acknowledges alone, and dies as well, the coordinator with
    it."""
    story = Story(SCENARIO)
    story.run_until(lambda: story.serves(2))
    head, tail = story.chain
    (other,) = {ONE, TWO, THREE} - {head, tail}
    story.crash(other)
    assert story.publish(head, 1, "a", 1) is not None
    story.crash(head)
    story.run_until(lambda: story.chain == [tail])
    story.run(1)
    assert story.publish(tail, 2, "a", 2, 3) is not None
    story.crash(tail)
    return story, head, tail


def waits(story: Story, at: Address) -> tuple[str, ...]:
    found = story.node(at).machine.manager.waits  # type: ignore[attr-defined]
    return () if found is None else found.away


@pytest.mark.paper("S9")
def test_who_was_away_waits_for_the_one_that_reigned_alone() -> None:
    story, first, last = one_reigns_alone()
    coordinator_returns(story)
    story.node(first).restart()
    story.run(5)
    assert waits(story, first) == (last,)
    assert story.publish(first, 3, "b", 1) is None
    story.node(last).restart()
    story.run(3)
    assert story.publish(last, 4, "b", 1) is not None
    assert story.rows(last) == [b"a:1", b"a:2", b"a:3", b"a:4", b"b:1"]
    assert chain_of(story.node(last)).epoch > 4


def test_who_reigned_alone_goes_on_alone() -> None:
    """Nobody else can know more than it: an outage ends without the others."""
    story, _, last = one_reigns_alone()
    coordinator_returns(story)
    story.node(last).restart()
    story.run(3)
    assert story.publish(last, 4, "b", 1) is not None


def test_an_operator_lets_the_others_go_on_without_the_one_that_is_gone_for_ever() -> None:
    story, first, last = one_reigns_alone()
    coordinator_returns(story)
    story.node(first).restart()
    story.run(3)
    story.node(first).request(GiveUp((last,)))
    story.run(3)
    assert chain_of(story.node(first)).answers(story.node(first).now_us)
    story.node(last).restart()
    story.run(3)
    replica = story.node(last).machine
    assert "which the coordinator has forgotten" in replica.manager.apart  # type: ignore[attr-defined]
    assert history_of(story.node(last)).counter(STREAM) == 4  # and nothing of it is given up in silence


def test_an_empty_coordinator_begins_nothing_with_a_new_disk_alone() -> None:
    """The only one that has anything is away, and a replica comes that has never been in the chain."""
    story, first, last = one_reigns_alone()
    (new,) = {ONE, TWO, THREE} - {first, last}
    coordinator_returns(story)
    story.node(new).forget(0.0)
    story.node(new).restart()
    story.run(4)
    assert waits(story, new) == tuple(sorted((first, last)))
    assert story.publish(new, 3, "b", 1) is None


def test_with_a_new_disk_alone_what_was_answered_would_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "unborn", lambda newest, named, gone: [])
    story, first, last = one_reigns_alone()
    (new,) = {ONE, TWO, THREE} - {first, last}
    coordinator_returns(story)
    story.node(new).forget(0.0)
    story.node(new).restart()
    with pytest.raises(BrokenPromise, match="fenced"):
        story.run(4)
        story.publish(new, 3, "b", 1)


def a_log_is_put_back(chain: type[Chain] = Chain) -> tuple[Story, Address, Address]:
    """Both acknowledge more, and die; the log of one is then an older copy, and it comes first."""
    story = Story(SCENARIO, chain, vouch_ms=200.0)
    story.run_until(lambda: story.serves(2))
    first, last = story.chain
    story.crash(*({ONE, TWO, THREE} - {first, last}))
    assert story.publish(first, 1, "a", 1) is not None
    disks = story.node(first)._factory.__self__._disks  # type: ignore[attr-defined]
    copy = deepcopy(disks[first])
    assert story.publish(first, 2, "a", 2, 3, wait_s=1.0) is not None
    story.crash(first, last)
    disks[first] = copy
    story.node(first).restart()
    story.run(3)
    return story, first, last


@pytest.mark.paper("S9")
def test_a_replica_whose_log_is_an_older_copy_vouches_for_nothing() -> None:
    story, first, last = a_log_is_put_back()
    assert story.publish(first, 3, "b", 1) is None
    assert chain_of(story.node(first)).knowledge.short == [(STREAM, 1, 4)]
    story.node(last).restart()
    story.run(4)
    assert story.publish(last, 4, "b", 1) is not None
    assert story.rows(first) == story.rows(last) == [b"a:1", b"a:2", b"a:3", b"a:4", b"b:1"]
    assert chain_of(story.node(first)).knowledge.kept


def test_taken_at_its_word_it_would_lose_what_was_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Knowledge, "measure", lambda self, history: None)
    with pytest.raises(BrokenPromise, match="stable"):
        story, first, _ = a_log_is_put_back()
        story.publish(first, 3, "b", 1)


def older(share: float) -> Story:
    """The coordinator is put back as it was when the chain was longer; the one that went on alone is there,
    and the other comes."""
    story = Story(SCENARIO)
    story.run_until(lambda: story.serves(2))
    head, tail = story.chain
    (other,) = {ONE, TWO, THREE} - {head, tail}
    story.crash(other)
    assert story.publish(head, 1, "a", 1) is not None
    story.crash(head)
    story.run(3)
    assert story.publish(tail, 2, "a", 2, 3) is not None
    epoch = chain_of(story.node(tail)).epoch
    coordinator_returns(story, share)
    story.node(head).restart()
    story.run(6)
    assert chain_of(story.node(tail)).epoch > epoch
    assert story.chain[0] == tail
    assert story.publish(tail, 3, "b", 1) is not None
    assert story.rows(tail) == story.rows(head) == [b"a:1", b"a:2", b"a:3", b"a:4", b"b:1"]
    return story


@pytest.mark.parametrize("share", [0.0, 0.5, 0.7, 0.8, 0.9, 0.95])
def test_an_older_copy_is_seen_by_who_read_more(share: float) -> None:
    older(share)


def test_taken_at_its_word_an_older_copy_would_lose_what_was_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager, "standing", lambda claim, now: Standing.KNOWN)
    monkeypatch.setattr(recovery, "standing", lambda claim, now: Standing.KNOWN)
    monkeypatch.setattr(recovery, "forgotten", lambda now, registered, doubted: None)
    monkeypatch.setattr(manager, "begun", lambda me, newest, named, gone: Configuration(1, (me,)))
    with pytest.raises((BrokenPromise, AssertionError)):
        for share in (0.5, 0.7, 0.8, 0.9):
            older(share)
