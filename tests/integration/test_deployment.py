"""A deployment as an operator has it: up, status, drills, changes, down; each a command, each process
real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from qanat.client import Client, NoStream, OrderRefused
from qanat.operate.home import Home
from qanat.operate.operations import wait_until_serving
from qanat.operate.overview import look
from qanat.operate.process_id import ProcessId

FILE = """\
name = "shop"
drills = true
first_port = 0

[regions.eu]
replicas = 1
[regions.us]
replicas = 1

[streams.prices]
owner = "eu"

[session]
timeout_ms = 800
"""

COMPRESSED = """
[[links]]
between = ["eu", "us"]
compression = "zstd"
"""


class Operator:
    """Types commands with a home folder of his own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "shop.toml"
        self.file.write_text(FILE)
        self.home = Home(folder / "state" / "qanat" / "shop")
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("QANAT")
        }
        self._environment["XDG_STATE_HOME"] = str(folder / "state")

    def types(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "qanat", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            env=self._environment,
            cwd=self.folder,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        return said

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.types("status", "--json"))
        return found

    def info(self, stream: str) -> dict[str, Any]:
        """Standard output alone has the JSON, whatever is said beside."""
        said = self.types("stream", "info", stream, "--json")
        found: dict[str, Any] = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
        return found

    def administers_streams(self, url: str) -> None:
        """In nodes that go on: a stream more, kept in another way, and less; `url` is the region that owns
        it."""
        assert "there is no region 'mars'" in self.types(
            "stream", "create", "sales", "--region", "mars", code=2
        )
        assert "name the owner with --region" in self.types("stream", "create", "sales", code=2)
        assert "add stream sales of us" in self.types(
            "stream", "create", "sales", "--region", "us", "--by-key"
        )
        assert "stream 'sales' exists already" in self.types(
            "stream", "create", "sales", "--region", "us", code=1
        )
        with Client(url) as client:
            client.publish_many("sales", [b"x"] * 50, keys=[b"k"] * 50)
            for refused in (lambda: client.create_stream("more"), lambda: client.remove_stream("sales")):
                with pytest.raises(OrderRefused, match="stand in the deployment's file"):
                    refused()
            assert self.info("prices")["kept_as"]["policy"]["keep_last"] == 5
            assert self.info("sales")["collection"]["dead_events"] == 49
            said = self.types(
                "stream", "set", "sales", "--by-key", "no", "--keep-last", "20", "--retain-age", "7d"
            )
            assert "change stream sales: policy by_key=True → keep_last=20" in said
            assert "restart" not in said
            wait_until(lambda: self.info("sales")["collection"]["dead_events"] == 30)
            assert self.info("sales")["kept_as"]["retain_age_ms"] == 7 * 86_400_000
            assert "with --yes" in self.types("stream", "rm", "sales", code=1)
            with client.subscribe("sales") as source:
                assert "its data stays" in self.types("stream", "rm", "sales", "--yes")
                with pytest.raises(NoStream, match="'sales' was removed from the deployment"):
                    source.take()
        assert "has no stream 'sales'" in self.types("stream", "set", "sales", "--keep-last", "1", code=2)

    def processes(self) -> list[ProcessId]:
        supervised = self.home.supervised
        return [*self.home.children.values(), *([supervised.process] if supervised else [])]


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    someone = Operator(tmp_path)
    try:
        yield someone
    finally:
        left = someone.processes()
        someone.types("down", "--wipe", "--data", str(someone.home.folder))
        assert not any(process.is_alive() for process in left)
        assert not someone.home.folder.exists()


@pytest.mark.slow
def test_up_change_drill_down(operator: Operator) -> None:
    assert "start one with `qanat up`" in operator.types("kill", "eu/proxy-1", code=3)
    said = operator.types("up", "shop.toml")
    assert "rebuild" not in said, "a start is no disaster"
    assert f"data in {operator.home.folder}" in said
    assert "already runs" in operator.types("up", "shop.toml")
    urls = look(operator.home).urls()
    with Client(urls["eu"]) as client:
        client.publish("prices", b"one")

    assert "one" in operator.types("sub", "prices", "--region", "us", "--from", "earliest", "--count", "1")
    assert "there is no region 'mars'" in operator.types("streams", "--region", "mars", code=2)

    # a change: a stream, a region, a policy; and what cannot be
    operator.file.write_text(FILE + '[streams.orders]\nowner = "asia"\n[regions.asia]\nreplicas = 1\n')
    assert "qanat apply shop.toml" in operator.types("up", "shop.toml", code=1)
    planned = operator.types("apply", "shop.toml", "--dry-run").splitlines()
    assert planned[:2] == ["add region asia with 1 replicas", "add stream orders of asia"]
    assert "orders" not in operator.status()["streams"]
    assert "done: every region serves" in operator.types("apply", "shop.toml")
    with Client(look(operator.home).urls()["asia"]) as client:
        client.publish("orders", b"two")
        with client.subscribe("prices", start="earliest") as events:
            assert next(iter(events)).payload == b"one"
    with Client(urls["us"]) as client, client.subscribe("orders", start="earliest") as events:
        assert next(iter(events)).payload == b"two"
    operator.file.write_text(FILE.replace('owner = "eu"', 'owner = "us"'))
    assert "'prices' belongs to 'eu' and cannot be given to 'us'" in operator.types(
        "apply", "shop.toml", code=1
    )
    operator.file.write_text(FILE.replace("replicas = 1", "replicas = none"))
    assert "shop.toml is not TOML: Invalid value (at line 6" in operator.types("apply", "shop.toml", code=2)

    # what a running log can change, and what it cannot: replicas restart, one after the other
    starts = operator.status()["nodes"]["eu/proxy-1"]["starts"]
    operator.file.write_text(FILE.replace('owner = "eu"', 'owner = "eu"\npolicy = { keep_last = 5 }'))
    said = operator.types("apply", "shop.toml")
    assert "change stream prices: policy none → keep_last=5" in said
    assert "remove region asia; its data stays" in said
    assert operator.status()["nodes"]["eu/proxy-1"]["starts"] == starts
    operator.administers_streams(urls["us"])
    assert operator.status()["nodes"]["eu/proxy-1"]["starts"] == starts
    assert "restart eu/proxy-1" in operator.types("stream", "set", "prices", "--durability", "interval")
    assert operator.status()["nodes"]["eu/proxy-1"]["starts"] == starts + 1

    # a link is compressed from now on
    operator.file.write_text(FILE + COMPRESSED)
    assert "change link eu – us: compression none → zstd" in operator.types("apply", "shop.toml")
    before = operator.status()["links"][0]["forwarded_bytes"]
    with Client(urls["eu"]) as client:
        client.publish_many("prices", [bytes(1000)] * 1000)
    wait_until(
        lambda: operator.status()["streams"]["prices"]["regions"]["us"]["stable"] > 1000, 60, every_s=0.05
    )
    assert operator.status()["links"][0]["forwarded_bytes"] - before < 200_000

    # one more replica, and one less
    operator.types("replica", "add", "eu")
    assert len(operator.status()["regions"]["eu"]["replicas"]) == 2
    operator.types("kill", "eu/proxy-1", "--stay")
    wait_until(lambda: operator.status()["regions"]["eu"]["replicas"] == ["eu/proxy-2"])
    for words in (("replica", "remove", "eu"), ("apply", "shop.toml"), ("apply", "shop.toml", "--dry-run")):
        assert "eu/proxy-2 alone is in the chain of 'eu' now" in operator.types(*words, code=1)
    operator.types("start", "eu/proxy-1")
    wait_until_serving(operator.home)
    operator.types("replica", "remove", "eu")
    wait_until(lambda: operator.status()["regions"]["eu"]["replicas"] == ["eu/proxy-1"])
    assert "is the only replica of eu" in operator.types("replica", "remove", "eu", code=1)

    # drills
    assert operator.types("link", "cut", "eu", "us", "--one-way").strip() == "cut: eu → us"
    assert "cut from eu to us" in operator.types("status")
    assert operator.types("link", "heal", "--all").splitlines() == ["healed: eu → us", "no link is cut"]
    assert "there is no region 'mars'" in operator.types("link", "cut", "eu", "mars", code=2)
    assert "there is no node 'eu/proxy-9'" in operator.types("kill", "eu/proxy-9", code=2)
    operator.types("kill", "us/proxy-1", "--stay")
    wait_until(lambda: operator.status()["nodes"]["us/proxy-1"]["state"] == "held")
    assert "us/proxy-1 is held after killed by SIGKILL" in operator.types("status")
    operator.types("start", "us/proxy-1")
    wait_until_serving(operator.home)

    # everything down and up again: ports and data are as before
    before = look(operator.home).urls()
    assert "stopped; the data stay in" in operator.types("down")
    assert operator.home.supervised is None
    operator.file.write_text(FILE)
    operator.types("up", "shop.toml")  # without the policy, as the file was at first
    now = look(operator.home).urls()
    assert now == before
    with Client(now["us"]) as client, client.subscribe("prices", start="earliest") as events:
        assert next(iter(events)).payload == b"one"


@pytest.mark.slow
def test_what_a_killed_supervisor_leaves_is_noticed(operator: Operator) -> None:
    operator.types("up", "shop.toml")
    state = operator.home.supervised
    assert state is not None
    operator.types("kill", "us/proxy-1", "--stay")
    operator.types("link", "cut", "eu", "us")
    wait_until(lambda: operator.status()["nodes"]["us/proxy-1"]["state"] == "held")
    orphans = list(operator.home.children.values())
    state.process.send(signal.SIGKILL)
    wait_until(lambda: not state.process.is_alive())
    assert Home(operator.home.folder).supervised is None
    assert all(process.is_alive() for process in orphans)
    assert "no deployment runs" in operator.types("kill", "eu/proxy-1", code=3)
    operator.types("up", "shop.toml")
    assert not any(process.is_alive() for process in orphans)
    # drills go on
    said = operator.types("status")
    assert "us/proxy-1 is held" in said and "1 link cut" in said
    assert operator.status()["nodes"]["us/proxy-1"]["starts"] == 0
    operator.types("start", "us/proxy-1")
    operator.types("link", "heal", "--all")
    wait_until_serving(operator.home)
    assert operator.home.held == []
    assert "shop: whole;" in operator.types("status")


def test_a_file_with_a_mistake_changes_nothing(operator: Operator) -> None:
    operator.file.write_text(FILE.replace('owner = "eu"', 'owner = "mars"'))
    said = operator.types("up", "shop.toml", code=2)
    assert (
        said
        == "qanat: `streams.prices.owner` (file shop.toml, line 11) is 'mars': expected one of the regions"
        " eu, us\n"
    )
    assert not (operator.folder / "state").exists()
    assert "nothing ran" in operator.types("down")


@pytest.mark.slow
def test_ctrl_c_ends_the_waiting_of_up_and_says_what_stays(operator: Operator) -> None:
    command = [sys.executable, "-m", "qanat", "up", "shop.toml"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=operator._environment,
        cwd=operator.folder,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as up:
        assert up.stdout is not None
        for line in up.stdout:
            if line.startswith("  "):  # it waits for somebody
                break
        up.send_signal(signal.SIGINT)
        said = up.stdout.read()
    assert up.returncode == 130
    assert (
        f"the deployment continues to start in the background, with its data in {operator.home.folder}"
        in said
    )
    assert f"`qanat down --data {operator.home.folder}` stops it" in said
    wait_until_serving(operator.home)
