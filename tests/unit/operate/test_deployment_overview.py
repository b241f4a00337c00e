"""How the answers of all nodes become one picture."""

from typing import Any

import msgspec

from qanat.cli.deployment_status import shown
from qanat.operate.overview import Chain, Overview


def node(kind: str, port: int, state: str = "running", last_end: str = "") -> dict[str, Any]:
    return {
        "kind": kind,
        "state": state,
        "pid": 7,
        "starts": 1,
        "last_end": last_end,
        "port": port,
        "http": port + 1,
    }


def stream(name: str, owner: str, last: int, source: str = "") -> dict[str, Any]:
    return {
        "stream": name, "owner": owner, "durability": "always", "next": last + 1, "stable": last,
        "source": source, "subscribers": 1, "largest_lag": 0, "mesh": {"members": [], "visitors": 0},
    }  # fmt: skip


def replica(epoch: int, replicas: list[str], serves: bool, *streams: dict[str, Any]) -> dict[str, Any]:
    chain = {"epoch": epoch, "replicas": replicas, "joining": "", "serves": serves, "answers": True}
    return {"state": "ready", "chain": chain, "streams": list(streams)}


def link(here: str, there: str, connections: int) -> dict[str, Any]:
    return {
        "from": here,
        "to": there,
        "state": "up",
        "connections": connections,
        "forwarded_bytes": 5,
        "queued_bytes": 0,
    }


WHOLE = Overview(
    { "name": "shop", "folder": "/f", "pid": 1, "uptime_s": 61.0, "drills": True, "cuts": [],
    "nodes": { "links": node("links", 0), "eu/coordinator": node("coordinator", 10),
    "us/coordinator": node("coordinator", 20), "eu/proxy-1": node("proxy", 30), "eu/proxy-2": node("proxy",
    40), "us/proxy-1": node("proxy", 50), }, }, { "links": {"state": "ready",
    "links": {"eu>us/proxy-1": link("eu", "us", 2), "us>eu/proxy-1": link("us", "eu", 0)}},
    "eu/coordinator": {"state": "ready"}, "us/coordinator": {"state": "ready"}, "eu/proxy-1": replica(3,
    ["eu/proxy-1", "eu/proxy-2"], False, stream("s", "eu", 12)), "eu/proxy-2": replica(3, ["eu/proxy-1",
    "eu/proxy-2"], True, stream("s", "eu", 10)), "us/proxy-1": replica(1, ["us/proxy-1"], True, stream("s",
    "eu", 7, "eu/proxy-2")), },
)  # fmt: skip


def changed(**parts: Any) -> Overview:
    """The same with some nodes' answers or the supervisor's words replaced."""
    supervisor = {**WHOLE.supervisor, **{k: v for k, v in parts.items() if k in WHOLE.supervisor}}
    return Overview(supervisor, parts.get("answers", WHOLE.nodes))


def test_a_whole_one() -> None:
    assert WHOLE.missing() == []
    assert WHOLE.urls() == {"eu": "qanat://127.0.0.1:30,127.0.0.1:40", "us": "qanat://127.0.0.1:50"}
    assert WHOLE.chain("eu") == Chain(3, ("eu/proxy-1", "eu/proxy-2"), "", True)
    told = WHOLE.streams()["s"]["regions"]
    assert (told["eu"]["stable"], told["us"]["stable"], told["us"]["behind"]) == (10, 7, 3)
    assert told["us"]["source"] == "eu/proxy-2"
    assert WHOLE.links() == {("eu", "us"): {"state": "up", "connections": 2, "forwarded_bytes": 10}}
    text = shown(WHOLE)
    assert text.startswith("shop: whole; up 1 m 1 s, data in /f\n")
    assert "eu/proxy-1 → eu/proxy-2" in text
    assert msgspec.json.encode(WHOLE.as_json())


def test_a_replica_that_is_away() -> None:
    nodes = {**WHOLE.supervisor["nodes"], "eu/proxy-2": node("proxy", 40, "waiting", "killed by SIGKILL")}
    alone = replica(4, ["eu/proxy-1"], True, stream("s", "eu", 12))
    answers = {name: said for name, said in WHOLE.nodes.items() if name != "eu/proxy-2"} | {
        "eu/proxy-1": alone
    }
    overview = changed(nodes=nodes, answers=answers)
    assert overview.missing() == [
        "eu/proxy-2 is waiting after killed by SIGKILL",
        "the chain of eu is eu/proxy-1 (1 of 2)",
    ]
    assert "! the chain of eu is eu/proxy-1 (1 of 2)" in shown(overview)


def test_nodes_that_are_held_are_missing_but_not_waited_for() -> None:
    held = node("proxy", 40, "held", "killed by SIGKILL")
    nodes = {**WHOLE.supervisor["nodes"], "eu/proxy-2": held, "us/proxy-1": held}
    alone = replica(4, ["eu/proxy-1"], True, stream("s", "eu", 12))
    answers = {"eu/proxy-1": alone, "eu/coordinator": {}, "us/coordinator": {}, "links": {}}
    overview = changed(nodes=nodes, answers=answers)
    assert len(overview.missing()) == 4
    assert overview.missing(but_held=True) == []


def test_the_latest_epoch_is_believed() -> None:
    answers = {**WHOLE.nodes, "eu/proxy-2": replica(2, ["eu/proxy-2", "eu/proxy-1"], True)}
    overview = changed(answers=answers)
    assert overview.chain("eu").epoch == 3
    assert overview.chain("eu").tail == "eu/proxy-2"


def test_a_chain_serves_only_if_its_head_answers_and_its_tail_shows_in_one_epoch() -> None:
    def with_(name: str, **chain: Any) -> Overview:
        said = WHOLE.nodes[name]
        return changed(answers={**WHOLE.nodes, name: {**said, "chain": {**said["chain"], **chain}}})

    silent = with_("eu/proxy-1", answers=False)
    assert not silent.chain("eu").serves
    assert silent.missing() == [
        "the chain of eu does not serve: its head, eu/proxy-1, does not answer publishers yet"
    ]
    assert with_("eu/proxy-2", serves=False).missing() == [
        "the chain of eu does not serve: its tail, eu/proxy-2, does not serve yet"
    ]
    assert not with_("eu/proxy-1", epoch=2).chain("eu").serves


def test_whom_a_chain_waits_for_is_all_that_is_missing_of_it() -> None:
    said = replica(7, [], False)
    said["chain"]["waits"] = "the chain of eu waits for eu/proxy-2: why; what to do"
    overview = changed(answers={**WHOLE.nodes, "eu/proxy-1": said, "eu/proxy-2": replica(7, [], False)})
    assert overview.missing() == ["the chain of eu waits for eu/proxy-2: why; what to do"]
    assert "not whole" in shown(overview)


def test_what_was_damaged_is_no_word_of_whole() -> None:
    said = {
        **WHOLE.nodes["eu/coordinator"],
        "set_aside": [{"folder": "/f/set-aside/1", "why": "it had forgotten"}],
    }
    overview = changed(answers={**WHOLE.nodes, "eu/coordinator": said})
    assert overview.missing() == []
    assert shown(overview).startswith("shop: serves, and damage was found; up")
    assert "! eu/coordinator began anew: it had forgotten; what it held lies in /f/set-aside/1" in shown(
        overview
    )


def test_nobody_answers() -> None:
    overview = changed(answers={})
    assert len(overview.missing()) == 6 + 2
    assert overview.streams() == {}
    assert "no chain" in shown(overview)
    assert "silent" in shown(overview)


def test_links() -> None:
    assert changed(cuts=[["eu", "us"]]).links()["eu", "us"]["state"] == "cut from eu to us"
    both = changed(cuts=[["eu", "us"], ["us", "eu"]])
    assert both.links()["eu", "us"]["state"] == "cut"
    assert "whole, 1 link cut" in shown(both)
    quiet = {"state": "ready", "links": {"a": link("eu", "us", 0)}}
    assert changed(answers={**WHOLE.nodes, "links": quiet}).missing() == [
        "the link eu – us has no connection yet"
    ]


def test_what_is_damaged_is_said_and_what_was_set_aside() -> None:
    aside = {"folder": "/d/set-aside/1", "why": "stream 's' is damaged"}
    damaged = {**WHOLE.nodes["eu/proxy-1"], "set_aside": [aside]}
    alone = {**WHOLE.nodes["us/proxy-1"], "damaged": "stream 's' is damaged, and no other replica has it"}
    overview = changed(answers={**WHOLE.nodes, "eu/proxy-1": damaged, "us/proxy-1": alone})
    assert overview.missing() == []
    assert overview.damage() == [
        (
            "eu/proxy-1 began anew: stream 's' is damaged; what it held lies in /d/set-aside/1 until you"
            " remove it"
        ),
        "us/proxy-1: stream 's' is damaged, and no other replica has it",
    ]
    assert "  ! eu/proxy-1 began anew" in shown(overview)


def test_a_full_disk_is_missing_in_its_own_words() -> None:
    sentence = "the disk of eu/proxy-1 is full (/data: 0.0 of 500 MB free); make room there"
    nodes = {**WHOLE.nodes, "eu/proxy-1": {**WHOLE.nodes["eu/proxy-1"], "disk_full": sentence}}
    full = WHOLE._replace(nodes=nodes)
    assert full.missing() == [sentence]
    assert f"  ! {sentence}" in shown(full).splitlines()
    assert "not whole" in shown(full)
