"""A region of processes as its users see it: the commands, and the blocking client, by several endpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.waiting import wait_until

from qanat.client import Client, ClientSettings, NoStream, OwnedElsewhere
from qanat.operate.region_processes import RegionProcesses, region_processes


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionProcesses]:
    streams = {"prices": {"owner": "eu"}, "orders": {"owner": "us"}}
    quick = {"session": {"timeout_ms": 700.0, "retry_ms": 50.0}, "chain": {"failure_ms": 1500.0}}
    folder = tmp_path_factory.mktemp("regions")
    with region_processes({"eu": 2, "us": 1}, streams, folder=folder, **quick) as processes:
        yield processes


def qanat(*words: str, given: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "qanat", *words], input=given, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


def test_commands_take_several_endpoints(regions: RegionProcesses) -> None:
    eu, us = regions.url("eu"), regions.url("us")
    code, out, _ = qanat("pub", "prices", "--url", eu, "--json", given="a\nb\n")
    assert (code, json.loads(out)["published"]) == (0, 2)
    assert qanat("sub", "prices", "--url", us, "--from", "earliest", "--count", "2")[:2] == (
        0,
        "1\ta\n2\tb\n",
    )
    code, out, _ = qanat("streams", "--url", eu)
    assert code == 0 and out.splitlines()[0].split()[:2] == ["stream", "owner"]
    code, out, _ = qanat("status", "--url", eu)
    assert code == 0 and "region eu: " in out and "eu/proxy-" in out
    code, _, err = qanat("pub", "prices", "--url", us, given="c\n")
    assert code == 1 and "'eu'" in err
    code, _, err = qanat("sub", "nowhere", "--url", us)
    assert code == 2 and "there are orders, prices. `qanat stream create nowhere` creates it" in err
    code, _, err = qanat("pub", "price", "--create", "--url", eu, given="d\n")
    assert code == 2 and "did you mean prices?" in err


@pytest.mark.paper("W7")
def test_subscribers_behind_at_a_regions_tail_are_shown_and_moved(regions: RegionProcesses) -> None:
    """They are sent what their window holds, and take nothing of it."""
    tail = str(regions["us/proxy-1"].config)
    count, size = 200, 64 * 1024
    with Client(regions.url("us")) as publisher:
        publisher.publish_many("orders", [b"%08d" % number * (size // 8) for number in range(count)])
    settings = ClientSettings(in_place=False)
    with Client(regions.url("us"), name="reports", settings=settings) as client:
        orders = client.subscribe("orders", start="earliest")

        def trailing() -> list[dict[str, Any]]:
            code, out, _ = qanat("caravans", "--server", tail, "--stream", "orders", "--json")
            found = json.loads(out)["streams"]["orders"]["caravans"] if code == 0 else []
            return [one for one in found if not one["lead"] and one["reads"]]

        wait_until(lambda: [one["flows"] for one in trailing()] == [1])
        code, out, err = qanat("move", "reports", "--company", "night", "--server", tail)
        assert (code, out) == (0, "company night shares a caravan: reports\n"), err
        assert [next(orders).seq for _ in range(count)] == list(range(1, count + 1))
        code, out, err = qanat("move", "reports", "--release", "--server", tail)
        assert (code, out) == (0, "released to the policy: reports\n"), err


@pytest.mark.paper("S9")
def test_a_blocking_client_outlives_the_head(regions: RegionProcesses) -> None:
    settings = ClientSettings(patience_ms=60_000)
    with Client(regions.url("eu"), settings=settings) as client, client.subscribe("prices") as prices:
        first = client.publish("prices", b"before")
        head = regions[client.ask("place")["head"]]
        head.kill()
        second = client.publish("prices", b"after")
        assert second in (first + 1, 0)
        assert [(next(prices).seq, next(prices).seq)] == [(first, first + 1)]
        with pytest.raises(OwnedElsewhere) as caught:
            client.publish("orders", b"x")
        assert caught.value.owner == "us"
        with pytest.raises(NoStream):
            client.subscribe("nowhere")
        head.start()
    regions.wait_chain("eu", 2)
