"""An instance that stands still with an item in hand until its shards are another's begins nothing of it when
it goes on."""

from __future__ import annotations

import json
import signal
import urllib.request
from typing import Any

import pytest
from tests.integration.publishing import QUICK, Nursery, Writer, free_port
from tests.servers.rocksdb import RocksProcess
from tests.waiting import wait_until

pytestmark = pytest.mark.paper("W4")

SCRIPT = """
import sys, time
from pathlib import Path
from qanat.applications import Callbacks, InstanceSettings, run

url, port, stall, out = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])

def write(line):
    with out.open("a") as file:
        file.write(line + "\\n")

class Slow(Callbacks):
    def on_shard_notice(self, shard):
        write(f"notice {shard}")

    def on_updates(self, delivery):
        updates = list(delivery.rows())
        write("begun " + " ".join(str(update.position) for update in updates))
        while stall.exists():
            time.sleep(0.01)
        write("done " + " ".join(str(update.position) for update in updates))

run(Slow(), application="cache", publishers=url, settings=InstanceSettings(admin_port=port))
"""


class Slow:
    """One instance: what it wrote down, and what it says of itself."""

    def __init__(self, home: Nursery, url: str, name: str) -> None:
        script = home.folder / "slow.py"
        script.write_text(SCRIPT, encoding="utf-8")
        self.stall, self._out, self._port = home.folder / f"{name}.stall", home.folder / name, free_port()
        self.stall.touch()
        self.child = home.script(script, url, str(self._port), str(self.stall), str(self._out))

    def status(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/status", timeout=20) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}

    def lines(self, kind: str = "") -> list[list[str]]:
        text = self._out.read_text(encoding="utf-8") if self._out.exists() else ""
        return [words for words in map(str.split, text.split("\n")[:-1]) if words[0].startswith(kind)]


def test_what_was_handed_over_before_a_standstill_is_not_begun_once_its_shard_is_anothers(
    home: Nursery, rocks: RocksProcess
) -> None:
    writer, limits = Writer(rocks), QUICK.replace("marker_ms = 300.0", "marker_ms = 60000.0")
    text = (
        f'[log]\nurl = "{rocks.url}?dataset=shop"\nsharding = "hash:1"\n{limits}[applications.cache]\nstart ='
        ' "earliest"\n'
    )
    publisher = home.node("publisher", "publisher", text)
    one = Slow(home, publisher.url, "one")
    writer.write(1)
    wait_until(lambda: one.lines("begun"), say=publisher.status)
    writer.write(1)
    wait_until(lambda: one.status().get("in_hand") == 2, say=one.status)
    one.child.stand_still()
    one.stall.unlink()
    two = Slow(home, publisher.url, "two")
    two.stall.unlink()
    wait_until(
        lambda: len({place for words in two.lines("done") for place in words[1:]}) == writer.count,
        say=publisher.status,
    )
    one.child.send(signal.SIGCONT)
    wait_until(lambda: one.lines("done") and one.status().get("in_hand") == 0, say=one.status)
    wait_until(lambda: len(publisher.application("cache").get("subscribers", ())) == 2, say=publisher.status)
    after = one.lines()[one.lines().index(["done", *one.lines("begun")[0][1:]]) + 1 :]
    assert not after or after[0][0] == "notice", "it goes on with what is its own by then"
