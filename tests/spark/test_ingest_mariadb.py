"""A MariaDB through a pipeline file, by the commands that a user types: run, status, dead-letters, stop."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.mariadb import MariadbServer, mariadb_server
from tests.servers.stream_server import ServerProcess
from tests.spark.ingesting import LONG_S, in_stream
from tests.waiting import wait_until

from qanat.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capsys = pytest.CaptureFixture[str]
pytestmark = [pytest.mark.paper("D2"), pytest.mark.server("mariadb")]


def told(capsys: Capsys, *words: str | Path, codes: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
    """What a command of ours prints with --json."""
    capsys.readouterr()
    assert main(["pipeline", *map(str, words), "--json"]) in codes
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def while_it_runs(file: Path, work: Callable[[], None]) -> None:
    """Runs the pipeline as its command does; `work` is done meanwhile, and then it is stopped, by the command
    for that."""
    codes: list[int] = []
    failed: list[BaseException] = []

    def beside() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
        finally:
            codes.append(main(["pipeline", "stop", str(file)]))

    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, lambda *_: None)  # `stop` must not end these tests
    thread = threading.Thread(target=beside)
    thread.start()
    try:
        assert main(["pipeline", "run", str(file)]) == 0
    finally:
        thread.join()
        for number, handler in kept.items():
            signal.signal(number, handler)
    if failed:
        raise failed[0]
    assert codes == [0]


def published(url: str) -> dict[str, list[Any]]:
    return {
        stream: [(one.op.name.lower(), one.after and one.after["id"]) for one in in_stream(url, stream)]
        for stream in ("orders-NL", "orders-BE", "prices")
    }


def shop(maria: MariadbServer, file: Path, url: str) -> None:
    maria.run("CREATE DATABASE shop CHARACTER SET utf8mb4")
    maria.run("CREATE TABLE shop.orders (id INT PRIMARY KEY, total INT, country VARCHAR(2))")
    maria.run(
        "CREATE TABLE shop.prices (id INT PRIMARY KEY, price DECIMAL(10,2), unit VARCHAR(9) CHARACTER SET"
        " hebrew)"
    )
    maria.run("CREATE TABLE shop.drafts (id INT PRIMARY KEY)")
    file.write_text(f"""
        url = "{url}"
        [sources.shop]
        log = "{maria.url}shop?dataset=shop"
        shards = "country"
        [filters]
        large = "total in 100..1000000"
        [[routes]]
        tables = ["orders"]
        filters = ["large"]
        stream = "orders-{{shard}}"
        [[routes]]
        tables = ["prices"]
        stream = "prices"
        """)


def test_the_commands_of_a_pipeline_from_a_mariadb(
    spark: SparkSession, server_process: ServerProcess, tmp_path: Path, capsys: Capsys
) -> None:
    url, file = server_process.start().url, tmp_path / "shop.toml"
    with mariadb_server(tmp_path / "maria") as maria:
        shop(maria, file, url)
        orders = "(1, 100, 'NL'), (2, 99, 'NL'), (3, 500, 'BE'), (4, 700, NULL)"
        maria.run(
            f"INSERT INTO shop.orders VALUES {orders}", "INSERT INTO shop.prices VALUES (1, 9.99, 'kg')"
        )

        def more() -> None:
            wait_until(lambda: status()["published"] == 3, LONG_S, say=status)
            maria.run(
                "BEGIN",
                "UPDATE shop.orders SET total = 200 WHERE id = 1",
                "INSERT INTO shop.drafts VALUES (1)",
                "COMMIT",
            )
            maria.run("DELETE FROM shop.prices WHERE id = 1")
            maria.run("INSERT INTO shop.prices VALUES (7, 1, _hebrew X'A1'), (2, 1, 'g')")
            wait_until(lambda: status()["published"] == 6, LONG_S, say=status)
            assert status()["state"] == "running"

        def status() -> dict[str, Any]:
            # A busy machine may take longer to start a Python than Spark waits for one: that is trouble, and
            # is tried again.
            (found,) = told(capsys, "status", file, codes=(0, 1))
            source: dict[str, Any] = found["sources"].get("shop", {"published": 0})
            return source

        while_it_runs(file, more)
        (ended,) = told(capsys, "status", file)
        assert (ended["state"], ended["runs"]) == ("stopped", False)
        assert published(url) == {
            "orders-NL": [("insert", 1), ("update", 1)],
            "orders-BE": [("insert", 3)],
            "prices": [("insert", 1), ("delete", None), ("insert", 2)],
        }
        what_was_there_before_comes_first(maria, file, url)
    assert main(["pipeline", "stop", str(file)]) == 0
    assert "shop does not run" in capsys.readouterr().err
    dead_letters_are_listed_with_their_reason(capsys, file, tmp_path / "originals")


def what_was_there_before_comes_first(maria: MariadbServer, file: Path, url: str) -> None:
    """A second pipeline, which begins with a snapshot, and goes on with the log in its next run."""
    other = file.with_name("taken.toml")
    text = file.read_text().replace("dataset=shop", "dataset=taken").replace('"orders-', '"taken-')
    other.write_text(text.replace('shards = "country"', 'shards = "country"\nstart = "snapshot"'))
    maria.run("DELETE FROM shop.prices")
    assert main(["pipeline", "run", str(other), "--once"]) == 0
    maria.run("UPDATE shop.orders SET total = 300 WHERE id = 3")
    assert main(["pipeline", "run", str(other), "--once"]) == 0
    found = {
        stream: [(one.op.name.lower(), one.after and one.after["total"]) for one in in_stream(url, stream)]
        for stream in ("taken-NL", "taken-BE")
    }
    assert found == {"taken-NL": [("read", 200)], "taken-BE": [("read", 500), ("update", 300)]}


def dead_letters_are_listed_with_their_reason(capsys: Capsys, file: Path, originals: Path) -> None:
    letter, poison = told(capsys, "dead-letters", file, "--source", "shop", "--originals", originals)
    assert (poison["source"], poison["stage"], poison["form"]) == ("shop", "decode", "raw")
    assert (
        "a row of shop.prices: a text column has bytes that are not of its character set" in poison["reason"]
    )
    assert (letter["source"], letter["table"], letter["stage"]) == ("shop", "shop.orders", "route")
    assert "it has no shard (country)" in letter["reason"]
    sizes = sorted(original.stat().st_size for original in originals.iterdir())
    assert sizes == sorted((letter["bytes"], poison["bytes"])) and sizes[0] > 0
    assert main(["pipeline", "dead-letters", str(file)]) == 0
    line, _ = capsys.readouterr().out.splitlines()
    assert line.startswith(f"shop {letter['sequence']}:{letter['index']} shop.orders: route: ")
    assert main(["pipeline", "dead-letters", str(file), "--source", "other"]) == 2
    assert "has shop" in capsys.readouterr().err
