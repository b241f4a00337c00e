"""The examples of docs/spark.md, copied and run as they stand there; only where the server is, and where
files go, is replaced."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from tests.servers.stream_server import ServerProcess
from tests.spark.class_archive import quick_java

from qanat.client import Client
from qanat.pipeline.session import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
PRICES = [20.0 * i for i in range(1, 11)]


def snippets(language: str, url: str, folder: Path) -> list[str]:
    """Of the chapter about streams, in their order."""
    chapter = PAGE.read_text(encoding="utf-8").split("\n## Streams as tables\n")[1].split("\n## ")[0]
    found = re.findall(rf"```{language}\n(.*?)```", chapter, re.DOTALL)
    return [text.replace("qanat://127.0.0.1:7411", url).replace("/data/", f"{folder}/") for text in found]


@pytest.fixture
def orders(server_process: ServerProcess) -> str:
    """A server with a stream of ten orders."""
    server_process.start()
    with Client(server_process.url) as client:
        client.publish_many(
            "orders", [b"%d" % i for i in range(10)], keys=[b"k"] * 10, attributes={"price": PRICES}
        )
    return server_process.url


def payloads(url: str, stream: str) -> list[bytes]:
    with Client(url) as client:
        batches = client.read(stream, 1, client.look(stream).readable).take()
        return [bytes(payload) for batch in batches for payload in batch.payloads().to_pylist()]


@pytest.mark.paper("D1")
def test_the_examples_of_the_page_run(
    spark: SparkSession, orders: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch, to_files, to_stream, table, _ = snippets("python", orders, tmp_path)
    exec(batch.replace("seq > 100", "seq > 8"), {})
    shown = capsys.readouterr().out
    assert [line.split("|")[1].strip() for line in shown.splitlines() if "2" in line] == ["9", "10"]
    exec(to_files, {})
    assert spark.read.parquet(str(tmp_path / "orders")).where("kind = 'data'").count() == 10
    exec(to_stream, {})
    assert payloads(orders, "large-orders") == [b"%d" % i for i in range(4, 10)]
    exec(table, {})
    spark.sql("DROP TABLE orders")
    assert payloads(orders, "orders")[10:] == [b"another"]
    assert [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if "| " in line][
        -1
    ] == "7"


@pytest.mark.slow
@pytest.mark.paper("D1")
def test_the_declarative_pipeline_of_the_page_runs(orders: str, tmp_path: Path) -> None:
    *_, program = snippets("python", orders, tmp_path)
    (spec,) = snippets("yaml", orders, tmp_path)
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(program)
    prepare_environment()
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run"]
    environment = os.environ | {"JDK_JAVA_OPTIONS": quick_java()}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert payloads(orders, "large-orders") == [b"%d" % i for i in range(4, 10)]
