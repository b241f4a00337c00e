"""What changes between two deployments."""

from pathlib import Path

import msgspec
import pytest

from qanat.coordinate import ServerConfig
from qanat.log.config import Policy
from qanat.operate.file import Deployment, Link, Region, standard
from qanat.operate.home import owners_of
from qanat.operate.layout import node_files, ports_needed, replicas
from qanat.operate.plan import Plan, Refused, compare
from qanat.protocols.chain import ChainConfig
from qanat.replica.settings import StreamSettings
from qanat.runtime.node_settings import LoggingSettings

BASE = standard()
replace = msgspec.structs.replace


CHAINS = {region: tuple(replicas(BASE, region)) for region in BASE.regions}


def plan(
    new: Deployment, *, live: bool = True, old: Deployment = BASE, chains: dict[str, tuple[str, ...]] = CHAINS
) -> Plan:
    return compare(old, new, owners_of(BASE), chains if live else None)


def test_nothing() -> None:
    assert plan(BASE) == Plan([], [], [], [], [])


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


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        (("us/proxy-1", "us/proxy-2"), ""),
        (("us/proxy-1",), ""),
        (("us/proxy-2",), "us/proxy-2 alone is in the chain of 'us' now; wait until one is that stays"),
        (
            ("us/proxy-3", "us/proxy-2"),
            "only us/proxy-3, us/proxy-2 are in the chain of 'us' now; wait until",
        ),
        ((), "no replica of 'us' says who is in its chain; wait until one does"),
    ],
)
def test_somebody_stays_who_has_all_events(chain: tuple[str, ...], words: str) -> None:
    three = replace(BASE, regions={**BASE.regions, "us": Region(3)})
    fewer = replace(BASE, regions={**BASE.regions, "us": Region(1)})
    got = plan(fewer, old=three, chains={**CHAINS, "us": chain})
    assert words in "; ".join(got.refusals)
    assert bool(words) == bool(got.refusals)


def test_replicas_are_taken_away_only_from_a_deployment_that_runs() -> None:
    (refusal,) = plan(replace(BASE, regions={**BASE.regions, "us": Region(1)}), live=False).refusals
    assert refusal.startswith("us/proxy-2 cannot be taken away while nothing runs")
    assert not plan(replace(BASE, regions={**BASE.regions, "us": Region(3)}), live=False).refusals


def test_the_coordinator_of_a_region_stays_and_one_elsewhere_is_no_process() -> None:
    ensemble = "zookeeper://a:2181,b:2181/shop"
    region = replace(BASE.regions["eu"], coordinator=ensemble)
    for live in (True, False):
        got = plan(replace(BASE, regions={**BASE.regions, "eu": region}), live=live)
        assert got.refusals and "'eu' stays with its own coordinator" in got.refusals[0]
    added = replace(BASE, regions={**BASE.regions, "africa": region})
    assert plan(added).started == ["africa/proxy-1", "africa/proxy-2"]
    names = ports_needed(added)
    files = node_files(added, dict(zip(names, range(7500, 7600))), Path("/data"))
    assert f'url = "{ensemble}"' in files["africa/proxy-1"]
    assert "zookeeper" not in files["eu/proxy-1"]


REPLICAS = [f"{region}/proxy-{number}" for region in ("eu", "us", "asia") for number in (1, 2)]


def test_a_link() -> None:
    got = plan(replace(BASE, links=(Link(("us", "eu"), "lz4"),)))
    assert got == Plan(["change link eu – us: compression none → lz4"], [], [], [], [])


def test_policy_and_retention_change_in_nodes_that_run() -> None:
    kept = StreamSettings(owner="eu", policy=Policy(keep_last=10), retain_age_ms=1000)
    got = plan(replace(BASE, streams={**BASE.streams, "eu-events": kept}))
    words = [
        "change stream eu-events: policy none → keep_last=10",
        "change stream eu-events: retain_age_ms None → 1000",
    ]
    assert got == Plan(words, [], [], [], [])


def test_what_needs_new_nodes_restarts_them_one_after_the_other() -> None:
    streams = {**BASE.streams, "eu-events": StreamSettings(owner="eu", mode="interval")}
    got = plan(replace(BASE, streams=streams))
    assert got.words[0] == "change stream eu-events: mode always → interval"
    assert got.words[1].startswith("restart eu/proxy-1, eu/proxy-2, us/proxy-1")
    assert got.restarted == REPLICAS
    assert plan(replace(BASE, chain=ChainConfig(ack_ms=99.0))).restarted == REPLICAS
    coordinators = plan(replace(BASE, server=ServerConfig(sessions_max=99))).restarted
    assert coordinators == ["eu/coordinator", "us/coordinator", "asia/coordinator"]
    assert len(plan(replace(BASE, logging=LoggingSettings(level="debug"))).restarted) == 10
    assert plan(replace(BASE, streams=streams), live=False).restarted == []


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
    new = replace(BASE, drills=False)
    with pytest.raises(Refused, match="drills cannot change while the deployment runs: `qanat down`"):
        plan(new).check()
    offline = plan(new, live=False)
    offline.check()
    assert offline.words == ["set drills to false", "stop links"]


def test_what_is_on_disk_does_not_become_what_is_in_memory() -> None:
    streams = {**BASE.streams, "eu-events": StreamSettings(owner="eu", mode="memory")}
    for live in (True, False):
        with pytest.raises(Refused, match="cannot go from always to memory"):
            plan(replace(BASE, streams=streams), live=live).check()
