"""What operators decide: who travels together, who gets which shard, which applications there are."""

from __future__ import annotations

import pytest
from tests.unit.protocols.publisher_by_hand import NOW, Desk, row

from qanat.protocols.publisher.config import ApplicationConfig, PublisherConfig
from qanat.protocols.publisher.messages import Notice, Token
from qanat.protocols.publisher.reading import Configure, Give

BOTH = {"cache": ApplicationConfig(start="0:0"), "index": ApplicationConfig(start="0:0")}


def desk(most: int = 3) -> Desk:
    """Two applications with one subscriber each, all aboard one caravan at 2:0."""
    found = Desk(PublisherConfig(caravans_max=most), None, **BOTH)
    found.join("cache-1", "cache")
    found.join("index-1", "index")
    found.settle()
    found.read(row(1, "a"), row(2, "b"))
    found.timer("plan/soon")
    found.only_caravan()
    return found


def companies(found: Desk) -> dict[str, set[str]]:
    return {
        caravan.company: {f"{one.served.name}/{getattr(one, 'shard', '*')}" for one in caravan.travellers}
        for caravan in found.machine.caravans.all.values()
    }


def configure(found: Desk, **told: tuple[str, ...]) -> None:
    found.machine.on_request(NOW, Configure(BOTH, found.machine.config, told))
    found.timer("plan/soon")


@pytest.mark.paper("W14")
def test_who_is_kept_together_has_a_reader_of_its_own_until_the_policy_decides_again() -> None:
    found = desk()
    configure(found, night=("index", "cache/b"))
    assert companies(found) == {
        "": {"cache/a", "cache/*"},
        "night": {"index/a", "index/b", "index/*", "cache/b"},
    }
    last = found.machine.caravans.decisions[-1]
    assert (last.what, "an operator keeps 'night' together" in last.why) == ("split", True)
    found.read(row(3, "a"), row(4, "b"))
    found.read(row(3, "a"), row(4, "b"))
    assert found.got("cache-1").count("3:0") == found.got("cache-1").count("4:0") == 1
    assert len(found.machine.caravans.all) == 2, "they are at one place, and stay two"
    configure(found)
    assert set(companies(found)) == {""}
    found.only_caravan()


@pytest.mark.paper("W7")
def test_the_limit_on_readers_holds_whatever_an_operator_wants() -> None:
    found = desk(most=2)
    configure(found, one=("index",), two=("cache",))
    assert found.machine.honoured == ["one"]
    assert set(companies(found)) == {"", "one"}
    found = desk(most=1)
    configure(found, one=("index",))
    assert set(companies(found)) == {""}


def test_a_shard_that_is_found_travels_with_its_own() -> None:
    found = desk()
    configure(found, night=("cache/new",))
    found.read(row(3, "new"))
    found.timer("plan/soon")
    assert companies(found)["night"] == {"cache/new"}
    found.read(row(3, "new"))
    assert found.got("cache-1")[-1] == "3:0"


@pytest.mark.paper("W14")
def test_shards_go_to_whom_an_operator_names_once_the_other_is_done() -> None:
    found = desk()
    found.join("cache-2", "cache")
    found.machine.on_request(NOW, Give("cache", "cache-2", ("a",)))
    token = found.last("cache-1", Token)
    assert token.last and token.marks[0].shards == ("a",)
    assert found.sent("cache-2", Notice) == []
    found.handle_all("cache-1")
    assert found.last("cache-2", Notice).shards == ("a",)
    found.machine.on_request(NOW, Give("cache", "nobody", ("a",)))
    found.machine.on_request(NOW, Give("nothing", "cache-1", ("a",)))
    assert found.machine.served["cache"].flows["a"].link is found.machine.links["cache-2"]  # type: ignore[index]


@pytest.mark.paper("W6")
@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_goes_and_comes_again_waits_for_those_who_were_at_work_for_it(restarted: bool) -> None:
    desk = Desk()
    desk.join("s1")
    desk.settle()
    desk.read(row(1), row(2))
    assert desk.got("s1") == ["1:0", "2:0"]
    applications = dict(desk.machine.applications)
    desk.machine.on_request(NOW, Configure({}, desk.machine.config))
    if restarted:
        desk = Desk(saved=desk.journal)
    else:
        desk.machine.on_request(NOW, Configure(applications, desk.machine.config))
    desk.join("s2")
    desk.settle()
    desk.read(row(1), row(2))
    desk.settle()
    assert desk.got("s2") == []
    desk.timer("await/cache")
    desk.settle()
    desk.read(row(1), row(2))
    assert desk.got("s2") == ["1:0", "2:0"]
