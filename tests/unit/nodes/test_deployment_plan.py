"""What changes between two deployments."""

import msgspec
import pytest

from qanat.log.config import Policy
from qanat.nodes.deployment.file import Deployment, Link, Region, standard
from qanat.nodes.deployment.home import owners_of
from qanat.nodes.deployment.plan import Plan, Refused, compare
from qanat.nodes.region_settings import StreamSettings
from qanat.protocols.chain import ChainConfig

BASE = standard()
replace = msgspec.structs.replace


def plan(new: Deployment, *, live: bool = True, old: Deployment = BASE) -> Plan:
    return compare(old, new, owners_of(BASE), live=live)


def test_nothing() -> None:
    assert plan(BASE) == Plan([], [], [], [])


def test_a_region_more_and_a_stream_in_it() -> None:
    new = replace(
        BASE,
        regions={**BASE.regions, "africa": Region(1)},
        streams={**BASE.streams, "africa-events": StreamSettings(owner="africa")},
    )
    assert plan(new) == Plan(
        [
            "add region africa with 1 replicas",
            "add stream africa-events of africa",
            "start africa/coordinator",
            "start africa/proxy-1",
        ],
        [],
        ["africa/coordinator", "africa/proxy-1"],
        [],
    )


def test_a_region_less() -> None:
    regions = {name: spec for name, spec in BASE.regions.items() if name != "asia"}
    streams = {name: spec for name, spec in BASE.streams.items() if spec.owner != "asia"}
    got = plan(replace(BASE, regions=regions, streams=streams))
    assert got.words[:2] == [
        "remove region asia; its data stays",
        "remove stream asia-events; its data stays",
    ]
    assert got.stopped == ["asia/coordinator", "asia/proxy-1", "asia/proxy-2"]
    assert not got.refusals


def test_replicas() -> None:
    got = plan(replace(BASE, regions={**BASE.regions, "eu": Region(3), "us": Region(1)}))
    assert got.words == [
        "change region eu from 2 to 3 replicas",
        "change region us from 2 to 1 replicas",
        "start eu/proxy-3",
        "stop us/proxy-2",
    ]


def test_a_policy_and_a_link() -> None:
    streams = {**BASE.streams, "eu-events": StreamSettings(owner="eu", policy=Policy(keep_last=10))}
    got = plan(replace(BASE, streams=streams, links=(Link(("us", "eu"), "lz4"),)))
    assert got.words == [
        "change stream eu-events: policy none → keep_last=10",
        "change link eu – us: compression none → lz4",
    ]
    assert not got.refusals


def test_what_is_refused() -> None:
    streams = {**BASE.streams, "eu-events": StreamSettings(owner="us")}
    with pytest.raises(Refused, match="stream 'eu-events' belongs to 'eu' and cannot be given to 'us'"):
        plan(replace(BASE, streams=streams)).check()
    with pytest.raises(Refused, match="cannot be renamed"):
        plan(replace(BASE, name="other")).check()


def test_a_removed_stream_comes_back_to_its_owner_or_not_at_all() -> None:
    without = replace(BASE, streams={name: s for name, s in BASE.streams.items() if name != "eu-events"})
    assert plan(BASE, old=without).words == ["add stream eu-events of eu"]
    thief = replace(BASE, streams={**without.streams, "eu-events": StreamSettings(owner="asia")})
    with pytest.raises(Refused, match="belongs to 'eu'"):
        plan(thief, old=without).check()


def test_what_needs_a_stop_is_refused_live_and_done_otherwise() -> None:
    streams = {**BASE.streams, "eu-events": StreamSettings(owner="eu", mode="interval")}
    for new, words in (
        (replace(BASE, chain=ChainConfig(ack_ms=99.0)), "change [chain]"),
        (replace(BASE, drills=False), "set drills to false"),
        (replace(BASE, streams=streams), "change stream eu-events: mode always → interval"),
    ):
        with pytest.raises(Refused, match="cannot change while the deployment runs: `qanat down`"):
            plan(new).check()
        offline = plan(new, live=False)
        offline.check()
        assert words in offline.words
