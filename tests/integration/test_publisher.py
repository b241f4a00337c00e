"""Real publishers and subscribers on a real log: killed, stalled, reloaded."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.publishing import KEPT, QUICK, NodeChild, Nursery, Writer, free_port
from tests.servers.rocksdb import RocksProcess, rocks_process
from tests.waiting import wait_until


def settings(rocks: RocksProcess, *applications: str, limits: str = QUICK) -> str:
    """`applications`: name, then lines of TOML."""
    text = f'[log]\nurl = "{rocks.url}?dataset=shop"\nsharding = "hash:8"\n{limits}'
    for application in applications:
        name, _, lines = application.partition("\n")
        text += f"[applications.{name}]\n{lines}\n"
    return text


def has_all(home: Nursery, application: str, writer: Writer) -> bool:
    return len({update.position for update in home.updates(application)}) >= writer.count


@pytest.mark.paper("W3")
@pytest.mark.paper("W4")
@pytest.mark.paper("W9")
def test_every_application_gets_every_change_through_kills_of_all_parts(
    home: Nursery, rocks: RocksProcess
) -> None:
    rng, writer = random.Random(7), Writer(rocks)
    publisher = home.node(
        "publisher",
        "publisher",
        settings(rocks, 'cache\nstart = "earliest"', "odd\nstart = 'earliest'\nwhere = '#S in (1, 3, 5, 7)'"),
    )
    subscribers = [
        home.subscriber("cache", [publisher.url], "cache-1"),
        home.subscriber("cache", [publisher.url]),
    ]
    subscribers.append(home.subscriber("odd", [publisher.url]))
    for _ in range(30):
        writer.write(rng.randint(5, 60))
        victim = rng.choice([publisher, *subscribers])
        time.sleep(rng.uniform(0, 0.2))  # wherever it is then
        victim.again()
    writer.write(50)
    wait_until(lambda: has_all(home, "cache", writer), say=publisher.status)
    assert home.table("cache") == writer.rows()
    odd = {update.position for update in home.updates("cache") if int(update.shard) % 2}
    wait_until(lambda: {update.position for update in home.updates("odd")} == odd)
    for application in ("cache", "odd"):
        home.check_order(application)
        assert not [words for lines in home.told(application) for words in lines if words[0] == "lost"]


def test_large_updates_lie_in_shared_memory_through_kills_and_standstills(
    home: Nursery, rocks: RocksProcess
) -> None:
    """Applications on the publisher's machine read them there; processes are killed and stopped in the
    midst."""
    rng, writer = random.Random(3), Writer(rocks, sizes=(20, 3_000, 9_000))
    text = settings(rocks, *(f'{name}\nstart = "earliest"' for name in ("one", "two", "three")))
    publisher = home.node("publisher", "publisher", text)
    subscribers = [home.subscriber(name, [publisher.url]) for name in ("one", "one", "two", "three")]
    placed = 0.0
    for _ in range(16):
        writer.write(rng.randint(20, 120))
        victim = rng.choice([publisher, *subscribers])
        time.sleep(rng.uniform(0, 0.2))  # wherever it is then
        placed = max(placed, publisher.metric("transport_placed_bytes_total"))
        if victim is publisher or rng.random() < 0.5:
            victim.again()
        else:
            victim.send(signal.SIGSTOP)
            writer.write(100)
            victim.send(signal.SIGCONT)
    writer.write(200)
    for name in ("one", "two", "three"):
        wait_until(lambda name=name: has_all(home, name, writer), say=publisher.status)  # type: ignore[misc]
        assert home.table(name) == writer.rows()
        home.check_order(name)
        assert not [words for lines in home.told(name) for words in lines if words[0] == "lost"]
    assert max(placed, publisher.metric("transport_placed_bytes_total")) > 0


@pytest.mark.paper("W7")
def test_an_application_that_stalls_costs_the_others_nothing(home: Nursery, rocks: RocksProcess) -> None:
    writer = Writer(rocks)
    limits = QUICK + "window_bytes = 20000\n"
    publisher = home.node(
        "publisher",
        "publisher",
        settings(rocks, 'fast\nstart = "earliest"', 'slow\nstart = "earliest"', limits=limits),
    )
    stall = home.folder / "slow.stall"
    stall.touch()
    home.subscriber("fast", [publisher.url])
    home.subscriber("slow", [publisher.url])
    for _ in range(10):
        writer.write(100)
    wait_until(lambda: has_all(home, "fast", writer), say=publisher.status)
    assert home.updates("slow") == []
    slow = publisher.application("slow")
    assert slow["subscribers"][0]["takes"] is False
    assert slow["subscribers"][0]["waiting_bytes"] < 20_000 + 200 * 1000, "a window, and what one read brings"
    stall.unlink()
    wait_until(lambda: has_all(home, "slow", writer), say=publisher.status)
    assert home.table("slow") == home.table("fast") == writer.rows()
    wait_until(lambda: len(publisher.status()["caravans"]) == 1)


@pytest.mark.paper("W6")
@pytest.mark.paper("W8")
def test_applications_filters_and_limits_change_while_it_runs(home: Nursery, rocks: RocksProcess) -> None:
    writer = Writer(rocks)
    publisher = home.node("publisher", "publisher", settings(rocks, 'cache\nstart = "earliest"'))
    home.subscriber("cache", [publisher.url])
    writer.write(30)
    wait_until(lambda: has_all(home, "cache", writer))
    home.subscriber("late", [publisher.url])
    publisher.write(
        settings(
            rocks,
            "cache\nstart = 'earliest'\nwhere = '#S = 1'",
            "late\nstart = 'earliest'",
            limits=QUICK + 'caravans_max = 7\npolicy = "least-waiting"\n',
        )
    )
    publisher.send(signal.SIGHUP)
    wait_until(lambda: has_all(home, "late", writer), say=publisher.status)
    assert publisher.status()["policy"] == "least-waiting"
    before = len(home.updates("cache"))
    writer.write(60)
    wait_until(lambda: has_all(home, "late", writer))
    ones = [update.position for update in home.updates("late") if update.shard == "1"]
    wait_until(lambda: home.updates("cache")[-1].position == max(ones))
    assert {update.shard for update in home.updates("cache")[before:]} == {"1"}
    publisher.write(settings(rocks, "late\nstart = 'earliest'"))
    publisher.send(signal.SIGHUP)
    wait_until(lambda: publisher.application("cache") == {})
    for text, what in (
        (
            settings(rocks, "late\nstart = 'earliest'", limits=QUICK + "parts = 3\n"),
            "parts wait for a restart",
        ),
        ("[publisher]\nparts = 'three'\n", "a bad file changes nothing"),
    ):
        publisher.write(text)
        publisher.send(signal.SIGHUP)
        writer.write(5)
        wait_until(lambda: has_all(home, "late", writer))
        assert [one["name"] for one in publisher.status()["applications"]] == ["late"], what


@pytest.mark.paper("W4")
def test_who_stops_in_peace_leaves_nothing_to_be_sent_again(home: Nursery, rocks: RocksProcess) -> None:
    writer = Writer(rocks)
    publisher = home.node("publisher", "publisher", settings(rocks, 'cache\nstart = "earliest"'))
    first = home.subscriber("cache", [publisher.url])
    writer.write(50)
    wait_until(lambda: has_all(home, "cache", writer))
    first.end(signal.SIGTERM)
    home.subscriber("cache", [publisher.url])
    writer.write(50)
    wait_until(lambda: has_all(home, "cache", writer))
    positions = [update.position for update in home.updates("cache")]
    assert len(positions) == len(set(positions)) == writer.count


@pytest.mark.paper("W10")
def test_a_copy_takes_over_when_the_preferred_one_dies_and_gives_back(home: Nursery, tmp_path: Path) -> None:
    with (
        rocks_process(tmp_path / "primary", **KEPT) as primary,
        rocks_process(tmp_path / "replica", **KEPT) as replica,
    ):
        writer = Writer(primary, replica)
        coordinator = home.node("coordinator", "coordinator", "[server]\nsession_min_ms = 200.0\n")
        coordinator.wait()
        told = (
            f'[coordinator]\nname = "{coordinator.name}"\nurl = "{coordinator.url}"\n'
            "[session]\ntimeout_ms = 800.0\nretry_ms = 100.0\n"
        )
        cache = 'cache\nstart = "earliest"\ncopies = ["test/one", "test/two"]'
        limits = QUICK + "parts = 2\n"
        one = home.node("publisher", "one", settings(primary, cache, limits=limits) + told)
        two = home.node("publisher", "two", settings(replica, cache, limits=limits) + told)
        for _ in range(2):
            home.subscriber("cache", [one.url, two.url])

        def owns(node: NodeChild) -> list[str]:
            return sorted(node.status().get("copy", {}).get("owns", []))

        both = ["cache/0", "cache/1"]
        wait_until(lambda: owns(one) == both, say=lambda: (one.status(), two.status()))
        writer.write(40)
        wait_until(lambda: has_all(home, "cache", writer), say=one.status)
        one.end()
        writer.write(40)
        wait_until(lambda: has_all(home, "cache", writer), say=two.status)
        assert owns(two) == both
        one.start()
        wait_until(lambda: owns(one) == both and owns(two) == [], say=lambda: (one.status(), two.status()))
        writer.write(40)
        wait_until(lambda: has_all(home, "cache", writer), say=one.status)
        assert home.table("cache") == writer.rows()
        home.check_order("cache")


@pytest.mark.paper("W5")
def test_the_example_of_the_page_works_as_it_is_written(
    home: Nursery, rocks: RocksProcess, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "publisher.md").read_text(encoding="utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    port = free_port()
    config, script = tmp_path / "shop.toml", tmp_path / "cache.py"
    head = f'[node]\nlisten = "127.0.0.1:{port}"\ndata = "{tmp_path / "data"}"\n[admin]\nport = 0\n'
    config.write_text(head + settings(rocks, 'cache\nstart = "earliest"'), encoding="utf-8")
    script.write_text(example.replace("qanat://db-1:7421", f"qanat://127.0.0.1:{port}"), encoding="utf-8")
    Writer(rocks).write(1)
    command = [sys.executable, "-m", "qanat", "publisher", "run", str(config)]
    publisher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    cache = subprocess.Popen([sys.executable, "-u", str(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert publisher.stdout is not None and cache.stdout is not None
        assert "listening on" in publisher.stdout.readline()
        assert cache.stdout.readline().startswith("forget ")
    finally:
        for process in (cache, publisher):
            process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in (cache, publisher)] == [0, 0]
        for process in (cache, publisher):
            if process.stdout is not None:
                process.stdout.close()
