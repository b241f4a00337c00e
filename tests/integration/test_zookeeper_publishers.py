"""Copies of a dataset whose publishers agree through a real ensemble: its servers die, all of them too, and
publishers stand still in the middle of a takeover."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.integration.publishing import KEPT, QUICK, NodeChild, Nursery, Writer
from tests.rotation import few
from tests.servers.rocksdb import rocks_process
from tests.servers.zookeeper import TICK_MS, Ensemble, zookeeper_ensemble
from tests.waiting import wait_until

from qanat.protocols.publisher.holdings import decode_holding

pytestmark = pytest.mark.paper("W10")

NAMES = ("one", "two", "three")
AWAY_S = few(60, rarely=24)
"""Without any server. It is waited for and little else: whoever tests beside it has the machine meanwhile."""
PATIENT_MS = 20_000 + 1600 * AWAY_S
"""Of sessions: their leases outlast that, though up to a sixth of the timeout has passed since the last
heartbeat."""
Copies = tuple[Writer, list[NodeChild]]
MakeCopies = Callable[[int, float], Copies]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with zookeeper_ensemble(tmp_path_factory.mktemp("ensemble")) as found:
        yield found


@pytest.fixture
def ensemble(shared: Ensemble) -> Ensemble:
    shared.start()
    shared.wait()
    return shared


@pytest.fixture
def copies(home: Nursery, ensemble: Ensemble, tmp_path: Path) -> Iterator[MakeCopies]:
    """So many, with sessions of that many milliseconds; an application prefers them in order, and has one
    instance."""
    with ExitStack() as stack:

        def make(count: int, timeout_ms: float) -> Copies:
            names = NAMES[:count]
            logs = [stack.enter_context(rocks_process(tmp_path / f"{name}-log", **KEPT)) for name in names]
            told = (
                f'[coordinator]\nurl = "{ensemble.url(tmp_path.name)}"\n'
                f"[session]\ntimeout_ms = {timeout_ms}\nretry_ms = 100.0\nzookeeper_tick_ms = {TICK_MS}.0\n"
                f'[applications.cache]\nstart = "earliest"\ncopies = {[f"test/{name}" for name in names]}\n'
            )
            nodes = [
                home.node(
                    "publisher",
                    name,
                    f'[log]\nurl = "{log.url}?dataset=shop"\nsharding = "hash:8"\n{QUICK}{told}',
                )
                for name, log in zip(names, logs)
            ]
            home.subscriber("cache", [node.url for node in nodes])
            return Writer(*logs), nodes

        yield make


def copy_of(node: NodeChild) -> dict[str, Any]:
    """Empty while it does not answer."""
    return node.status().get("copy") or {}


def owns(node: NodeChild) -> bool:
    return bool(copy_of(node).get("owns"))


def wait_all(home: Nursery, writer: Writer, *nodes: NodeChild) -> None:
    wait_until(
        lambda: len({update.position for update in home.updates("cache")}) >= writer.count,
        120,
        say=lambda: [node.status() for node in nodes],
    )


def check(home: Nursery, writer: Writer) -> None:
    assert home.table("cache") == writer.rows()
    home.check_order("cache")
    assert not [words for lines in home.told("cache") for words in lines if words[0] == "lost"]


@pytest.mark.rotating
def test_updates_flow_on_what_is_known_while_the_leader_and_then_all_servers_are_away(
    home: Nursery, ensemble: Ensemble, copies: MakeCopies
) -> None:
    writer, (one, two) = copies(2, PATIENT_MS)
    wait_until(lambda: owns(one), say=lambda: (one.status(), two.status()))
    writer.write(40)
    wait_all(home, writer, one, two)
    ensemble.leader().kill()
    writer.write(40)
    wait_all(home, writer, one, two)
    ensemble.kill()
    gone, rounds = time.monotonic(), 0
    while time.monotonic() < gone + AWAY_S:
        time.sleep(4.0)  # the time that they are away is what is tested
        assert not any(server.runs() for server in ensemble.servers)
        writer.write(40)
        wait_all(home, writer, one, two)
        assert (owns(one), owns(two)) == (True, False)
        rounds += 1
    assert rounds > 1
    ensemble.start()
    ensemble.wait()
    writer.write(40)
    wait_all(home, writer, one, two)
    assert (owns(one), owns(two)) == (True, False)
    assert (one.status()["copy"]["takeovers"], two.status()["copy"]["takeovers"]) == (0, 0)
    check(home, writer)


@pytest.mark.paper("W11")
def test_publishers_balance_together_and_hold_still_while_the_ensemble_outlasts_their_leases(
    home: Nursery, ensemble: Ensemble, tmp_path: Path
) -> None:
    """Each has one flow, so that none of them alone would move anything: only together do they see that one
    subscriber has both."""
    told = (
        f'{QUICK}balance = "coordinated"\nrebalance_ms = 300.0\n[coordinator]\nurl ='
        f' "{ensemble.url(tmp_path.name)}"\n[session]\ntimeout_ms = 3000.0\nretry_ms ='
        f' 100.0\nzookeeper_tick_ms = {TICK_MS}.0\n[applications.cache]\nstart = "earliest"\n'
    )
    with ExitStack() as stack:
        logs = [stack.enter_context(rocks_process(tmp_path / f"{name}-log", **KEPT)) for name in NAMES[:2]]
        writers = [Writer(log, seed=seed) for seed, log in enumerate(logs)]
        nodes = [
            home.node(
                "publisher", name, f'[log]\nurl = "{log.url}?dataset={name}"\nsharding = "hash:1"\n{told}'
            )
            for name, log in zip(NAMES, logs)
        ]
        urls = [node.url for node in nodes]

        def loads() -> dict[str, int]:
            """Flows by subscriber, at all publishers."""
            found: dict[str, int] = {}
            for node in nodes:
                for each in node.application("cache").get("subscribers", []):
                    found[each["name"]] = found.get(each["name"], 0) + each["shards"]
            return found

        def say() -> object:
            return [node.status() for node in nodes]

        def handled() -> int:
            return len({each[1:] for each in home.updates("cache")})

        def write() -> int:
            for writer in writers:
                writer.write(20)
            return sum(writer.count for writer in writers)

        count = write()
        home.subscriber("cache", urls, "test/x")
        wait_until(lambda: loads() == {"test/x": 2}, say=say)
        home.subscriber("cache", urls, "test/y")
        wait_until(lambda: loads() == {"test/x": 1, "test/y": 1}, say=say)
        wait_until(lambda: handled() == count, say=say)
        ensemble.kill()
        wait_until(lambda: all(copy_of(node).get("leased") is False for node in nodes), say=say)
        before, count = handled(), write()
        time.sleep(0.5)  # in which they would be told, if anybody served
        assert handled() == before
        ensemble.start()
        wait_until(lambda: handled() == count, say=say)
        wait_until(lambda: loads() == {"test/x": 1, "test/y": 1}, say=say)


def test_a_copy_whose_session_expires_in_the_middle_of_its_takeover_is_taken_over_in_turn(
    home: Nursery, ensemble: Ensemble, copies: MakeCopies, tmp_path: Path
) -> None:
    writer, (one, two, three) = copies(3, 3_000.0)
    wait_until(lambda: owns(one), say=one.status)
    writer.write(40)
    wait_all(home, writer, one, two, three)
    observer = KazooClient(ensemble.hosts, timeout=20)
    observer.start(60)
    try:
        part = f"/{tmp_path.name}/publishers/shop/applications/cache/0"
        owners: list[str] = []
        stopped = threading.Event()

        def changed(data: bytes | None, _stat: object) -> None:
            if data is None:
                return
            owner = decode_holding(data).owner.partition("@")[0]
            if not owners or owners[-1] != owner:
                owners.append(owner)
                if owner == "test~two" and not stopped.is_set():
                    two.send(
                        signal.SIGSTOP
                    )  # it has it, and waits until those of the old owner are surely done
                    stopped.set()

        observer.DataWatch(part, changed)
        wait_until(lambda: owners == ["test~one"])
        one.end()
        writer.write(40)
        wait_until(stopped.is_set, say=lambda: owners)
        wait_until(lambda: owners[-1] == "test~three", say=lambda: owners)
        writer.write(40)
        wait_all(home, writer, three)
        two.send(signal.SIGCONT)
        writer.write(40)
        wait_until(lambda: owns(two) and not owns(three), say=lambda: (two.status(), three.status()))
        writer.write(40)
        wait_all(home, writer, two, three)
        assert owners == ["test~one", "test~two", "test~three", "test~two"]
    finally:
        two.send(signal.SIGCONT)
        observer.stop()
        observer.close()
    check(home, writer)
