"""What a live publisher and a live instance tell at /metrics is what the page says."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.servers.rocksdb import batch, database, log_file, put, write_log
from tests.waiting import until

from qanat.applications import Callbacks, Delivery, Instance, InstanceSettings
from qanat.publisher.node import PublisherNode
from qanat.publisher.settings import PublisherSettings
from qanat.runtime.config import load
from qanat.runtime.node_settings import AdminSettings
from qanat_workshop.metrics_page import page, statistics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
UPDATES = 20


def in_page(title: str) -> dict[str, tuple[str, str, str]]:
    """Name: kind, labels, what it is; of one table."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\S+)` \| (\S+) \| (.*?) ?\| (.*) \|$", text, re.MULTILINE)
    return {f"qanat_{name}": (kind, labels.strip(), what) for name, kind, labels, what in rows}


def labels_in(text: str, known: set[str]) -> dict[str, list[str]]:
    """Labels of those that have any number, without a histogram's own."""
    found = {}
    for name, labels in re.findall(r"^(qanat_\w+)\{(.*)\} ", text, re.MULTILINE):
        plain = name if name in known else re.sub(r"_(bucket|count|sum)$", "", name)
        found[plain] = sorted(each for each in re.findall(r'(\w+)="', labels) if each != "le")
    return found


def number(text: str, start: str) -> float:
    return float(next(line.split()[-1] for line in text.splitlines() if line.startswith(start)))


class Slow(Callbacks):
    def __init__(self) -> None:
        self.count = 0

    def on_updates(self, delivery: Delivery) -> None:
        self.count += len(delivery)


async def look(port: int, path: str) -> str:
    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=300) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(get)


async def both(tmp_path: Path) -> tuple[str, str, dict[str, Any]]:
    """A publisher with one application and its instance, after everything was handled and marked."""
    log = database(tmp_path / "shop")
    write_log(log, 3, log_file([batch(n, put(b"k%d" % n, b"v")) for n in range(1, UPDATES + 1)]))
    flags = {
        "node.data": str(tmp_path / "data"),
        "node.listen": "127.0.0.1:0",
        "log.url": f"rocksdb://{log}?dataset=shop",
        "log.sharding": "hash:4",
        "publisher.marker_ms": 100.0,
        "publisher.settle_ms": 10.0,
        "applications": {"cache": {"start": "earliest"}},
    }
    node = PublisherNode(partial(load, PublisherSettings, flags=flags))
    await node.admin.start(AdminSettings(port=0))
    await node.on_start()
    callbacks = Slow()
    instance = Instance(callbacks, "cache", [node.url], InstanceSettings(admin_port=0))
    await instance.start()
    try:
        done = b'qanat_application_unmarked{application="cache"} 0.0'
        await until(lambda: callbacks.count == UPDATES and done in node.metrics.render())
        told = await look(node.admin.port, "/metrics")
        mine = await look(instance.admin.port, "/metrics")
        status = json.loads(await look(instance.admin.port, "/status"))
        assert await look(instance.admin.port, "/healthz") == "ok\n"
        return told, mine, status
    finally:
        instance.stop()
        await instance.wait()
        await node.on_stop()
        await node.admin.close()


@pytest.mark.paper("W14")
def test_the_table_of_statistics_is_what_a_live_publisher_and_its_subscriber_tell(tmp_path: Path) -> None:
    told, mine, status = asyncio.run(both(tmp_path))
    publisher = in_page("Publishers")
    instance = {
        name: row
        for name, row in {**publisher, **in_page("Instances of applications")}.items()
        if name in statistics(mine)
    }
    for text, table in ((told, publisher), (mine, instance)):
        live = statistics(text)
        assert {name: (kind, what) for name, (kind, _, what) in table.items()} == live
        for name, labels in labels_in(text, set(table)).items():
            assert sorted(filter(None, table[name][1].split(", "))) == labels, name
    assert len(statistics(told)) > 100
    assert set(statistics(mine)) >= set(in_page("Instances of applications"))
    for start, value in {
        "qanat_publisher_read_updates_total": UPDATES,
        'qanat_application_sent_updates_total{application="cache"}': UPDATES,
        'qanat_application_flows{application="cache"}': 4,
        'qanat_application_items_total{application="cache",kind="loss"}': 0,
        'qanat_publisher_limit{name="caravans_max"}': 4,
        "qanat_publisher_sessions_total": 1,
        "qanat_publisher_caravans ": 1,
    }.items():
        assert number(told, start) == value, start
    assert number(told, "qanat_publisher_read_delay_seconds_count") >= 1
    assert number(mine, "qanat_instance_updates_total") == UPDATES
    assert number(mine, "qanat_instance_delay_seconds_count") >= 1
    assert number(mine, "qanat_instance_shards") == 4
    assert (status["updates"], status["shards"], status["state"]) == (UPDATES, 4, "ready")


def test_the_page_of_statistics_is_up_to_date() -> None:
    how = "python -m qanat_workshop.metrics_page > docs/metrics.md"
    assert PAGE.read_text(encoding="utf-8") == page(), how
