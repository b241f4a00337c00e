"""A real publisher that is looked at and changed by commands while it runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.publishing import KEPT, QUICK, NodeChild, Nursery, Writer, nursery
from tests.servers.rocksdb import rocks_process
from tests.waiting import wait_until

from qanat.cli.main import main


class Desk:
    """A publisher with one application of two instances, and commands for it."""

    def __init__(self, home: Nursery, publisher: NodeChild, writer: Writer, capture: Any) -> None:
        self.home, self.publisher, self.writer, self._capture = home, publisher, writer, capture
        self.subscribers = [
            home.subscriber("cache", [publisher.url], name) for name in ("cache-1", "cache-2")
        ]

    def do(self, *words: str, code: int = 0) -> str:
        """What a command prints, to either side."""
        self._capture.readouterr()
        assert main([*words, "--publisher", str(self.publisher.config)]) == code
        out, err = self._capture.readouterr()
        return str(out or err)

    def ask(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.do(*words, "--json"))
        return found

    def owners(self) -> dict[str, str]:
        return {
            flow["shard"]: flow["subscriber"] for flow in self.ask("flows", "--application", "cache")["flows"]
        }

    def has_all(self, application: str) -> bool:
        return len({update.position for update in self.home.updates(application)}) >= self.writer.count


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    with rocks_process(tmp_path / "shop", **KEPT) as rocks, nursery(tmp_path) as home:
        writer = Writer(rocks)
        text = (
            f'[log]\nurl = "{rocks.url}?dataset=shop"\nsharding ='
            f' "hash:8"\n{QUICK}[applications.cache]\nstart = "earliest"\n'
        )
        publisher = home.node("publisher", "publisher", text)
        publisher.wait()
        found = Desk(home, publisher, writer, capsys)
        writer.write(40)
        wait_until(lambda: found.has_all("cache"), say=publisher.status)
        wait_until(lambda: found.ask("monitor")["applications"]["cache"]["subscribers"] == 2)
        yield found


@pytest.mark.paper("W6")
@pytest.mark.paper("W14")
def test_a_publisher_is_operated_by_commands(desk: Desk) -> None:
    home, publisher, writer = desk.home, desk.publisher, desk.writer
    # flows, and one that goes to another subscriber
    assert desk.ask("flows")["count"] == 8 and set(desk.owners().values()) <= {"cache-1", "cache-2"}
    shard, owner = next(iter(desk.owners().items()))
    other = "cache-2" if owner == "cache-1" else "cache-1"
    assert f"go to {other}" in desk.do("move", "cache", "--shard", shard, "--to", other)
    wait_until(lambda: desk.owners()[shard] == other, say=publisher.status)
    assert "there are 'cache-1', 'cache-2'" in desk.do("move", "cache", "--to", "nobody", code=1)
    assert "has no shard 'x'" in desk.do("move", "cache", "--shard", "x", "--to", other, code=1)

    # applications come, and are still there after a kill, with what they were changed to
    assert "operator" in desk.do("applications", "add", "index", "start=earliest")
    home.subscriber("index", [publisher.url])
    wait_until(lambda: desk.has_all("index"), say=publisher.status)
    assert "use change" in desk.do("applications", "add", "index", code=1)
    assert "`colour`" in desk.do("applications", "change", "index", "colour=red", code=1)
    assert "does not fit" in desk.do("applications", "change", "index", "where=#S in (", code=1)
    desk.do("applications", "change", "index", "where=#S = 1")
    publisher.again()
    publisher.wait()
    told = desk.ask("applications")["applications"]
    assert told["index"]["settings"]["where"] == "#S = 1" and told["index"]["settings"]["start"] == "earliest"
    assert (told["cache"]["from"], told["index"]["from"]) == ("file", "operator")
    before = len(home.updates("index"))
    writer.write(40)
    wait_until(lambda: desk.has_all("cache"), say=publisher.status)
    ones = [update.position for update in home.updates("cache") if update.shard == "1"]
    wait_until(lambda: home.updates("index")[-1].position == max(ones), say=publisher.status)
    assert {update.shard for update in home.updates("index")[before:]} == {"1"}

    # limits, which stay over the file until they are taken back
    assert "policy" in desk.do("publisher", "limits", "policy=nonsense", code=1)
    assert "parts stays" in desk.do("publisher", "limits", "parts=3", code=1)
    limits = desk.ask("publisher", "limits", "policy=least-waiting", "caravans_max=5")["limits"]
    assert limits["caravans_max"] == {
        "value": 5,
        "file": 4,
        "from": "operator, over the file",
        "fixed": False,
    }
    wait_until(lambda: publisher.status()["policy"] == "least-waiting")
    publisher.send(signal.SIGHUP)
    desk.do("publisher", "limits", "--reset", "policy")
    wait_until(lambda: publisher.status()["policy"] == "threshold")
    assert desk.ask("publisher", "limits")["limits"]["caravans_max"]["value"] == 5

    # caravans: a decision is overridden, explained, and taken back
    desk.do("move", "index", "--company", "night")
    wait_until(lambda: len(desk.ask("caravans")["caravans"]) == 2, say=publisher.status)
    assert "an operator keeps 'night' together" in desk.do("caravans")
    number = next(one["number"] for one in desk.ask("caravans")["caravans"] if not one["company"])
    assert "no caravan 99" in desk.do("move", "index", "--caravan", "99", code=1)
    desk.do("move", "index", "--caravan", str(number))
    assert desk.ask("caravans")["companies"] == {f"caravan-{number}": ["index", "cache"]}
    wait_until(lambda: [one["company"] for one in desk.ask("caravans")["caravans"]] == [f"caravan-{number}"])
    desk.do("move", "cache", "--release")
    desk.do("move", "index", "--release")
    assert "nothing was overridden" in desk.do("move", "index", "--release", code=1)
    writer.write(10)
    wait_until(lambda: desk.has_all("cache"), say=publisher.status)
    wait_until(lambda: [one["company"] for one in desk.ask("caravans")["caravans"]] == [""])

    # back to a position: all of it once more
    first = min(update.position for update in home.updates("cache"))
    count = [update.position for update in home.updates("cache")].count(first)
    desk.do("move", "cache", "--position", "0:0")
    wait_until(lambda: [update.position for update in home.updates("cache")].count(first) == count + 1)
    home.check_order("cache")

    desk.do("applications", "remove", "index")
    desk.do("applications", "remove", "cache")
    assert desk.ask("applications")["removed"] == ["cache"]
    desk.do("applications", "reset", "cache")
    assert list(desk.ask("applications")["applications"]) == ["cache"]


@pytest.mark.paper("W14")
def test_the_monitor_shows_lag_by_application_and_shard(desk: Desk) -> None:
    seen = desk.ask("monitor")
    cache = seen["applications"]["cache"]
    assert cache["owners"] == {desk.publisher.name: [0]}
    assert (cache["shards"], cache["subscribers"], cache["losses"]) == (8, 2, 0)
    (desk.home.folder / "cache.stall").touch()
    desk.do("publisher", "limits", "window_bytes=1000")
    for child in desk.subscribers:
        child.again()
    for _ in range(5):
        desk.writer.write(100)
    wait_until(lambda: desk.ask("monitor")["applications"]["cache"]["flows"][0]["unmarked"] > 0)
    (desk.home.folder / "cache.stall").unlink()
    wait_until(lambda: desk.has_all("cache"), say=desk.publisher.status)
    wait_until(lambda: desk.ask("monitor")["applications"]["cache"]["lag_s"] == 0)

    def rate() -> float:
        desk.writer.write(1)
        found: float = desk.ask("monitor")["applications"]["cache"]["updates_per_s"]
        return found

    wait_until(lambda: rate() > 0, say=desk.publisher.status)
    (one,) = desk.ask("monitor")["publishers"]
    assert one["sent_updates"] > 0 and one["read_updates"] > 0
    text = desk.do("monitor", "--once", "--shards", "3", "--publisher", "http://127.0.0.1:1")
    assert "application" in text and "farthest behind" in text
    assert "no publisher answers at http://127.0.0.1:1" in text
    assert main(["monitor", "--json", "--publisher", "http://127.0.0.1:1"]) == 3


def test_changes_need_the_token_and_looking_does_not(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    note = desk.publisher.config.parent / "data" / "admin.json"
    assert note.stat().st_mode & 0o777 == 0o600
    url = json.loads(note.read_text())["url"]
    assert main(["flows", "--publisher", url, "--json"]) == 0
    assert "there is no application 'nobody'; there are 'cache'" in desk.do(
        "flows", "--application", "nobody", code=1
    )
    assert main(["publisher", "limits", "near=7", "--publisher", url]) == 0, "the folder can be read here"
    monkeypatch.setenv("QANAT_ADMIN_TOKEN", "guess")
    assert main(["publisher", "limits", "near=8", "--publisher", url]) == 1
    assert desk.ask("publisher", "limits")["limits"]["near"]["value"] == 7
    desk.publisher.end(signal.SIGTERM)
    assert not note.exists()
    assert main(["flows", "--publisher", str(desk.publisher.config)]) == 3
    assert main(["flows", "--publisher", url]) == 3
    assert main(["flows", "--publisher", "/nowhere"]) == 2
