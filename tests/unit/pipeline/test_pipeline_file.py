"""The pipeline file: what it says, and what each mistake in it is told."""

from pathlib import Path

import pytest

from qanat.pipeline.pipeline_file import Route, Source, read
from qanat.pipeline.running import patient_log, routes_of
from qanat.runtime.config import BadConfiguration

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline.toml"
WHOLE = """\
name = "shop"
url = "qanat://10.0.0.5:7411"
state = "kept"

[filters]
large = "total in 100.."

[sources.orders]
log = "mariadb://me@127.0.0.1/shop?dataset=shop"
tables = ["orders"]
where = "#op != read"
shards = "hash:4"
lost = "publish"

[[routes]]
stream = "orders-{shard}"

[[routes]]
stream = "large-orders"
source = "orders"
filters = ["large"]
where = "country = NL or country = BE"

[archive]
path = "history"
batch_ms = 1000

[ingest]
patience_s = 10

[spark]
master = "local[2]"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "shop.toml"
    file.write_text(text)
    return file


def test_a_whole_file(tmp_path: Path) -> None:
    file = read(written(tmp_path, WHOLE))
    pipeline = file.pipeline
    assert (file.name, file.state, file.archive) == ("shop", tmp_path / "kept", str(tmp_path / "history"))
    source = pipeline.sources["orders"]
    assert source == Source(
        log="mariadb://me@127.0.0.1/shop?dataset=shop",
        tables=("orders",),
        where="#op != read",
        shards="hash:4",
        lost="publish",
    )
    assert pipeline.routes[0] == Route(stream="orders-{shard}")
    assert pipeline.filter_of(pipeline.routes[1]) == "(total in 100..) and (country = NL or country = BE)"
    assert (pipeline.ingest.patience_s, pipeline.spark.master, pipeline.archive.batch_ms) == (
        10,
        "local[2]",
        1000,
    )
    routes = routes_of(file, "orders")
    assert routes.streams() == ("orders-0", "orders-1", "orders-2", "orders-3", "large-orders")


def test_what_is_left_out_is_taken_from_the_file_itself(tmp_path: Path) -> None:
    file = read(written(tmp_path, '[sources.a]\nlog = "rocksdb:///db"\n[[routes]]\nstream = "a"\n'))
    assert (file.name, file.state, file.archive) == ("shop", tmp_path / "shop.state", "")


def test_the_example_is_a_pipeline() -> None:
    assert read(EXAMPLE).pipeline.sources


SOURCE = '[sources.a]\nlog = "rocksdb:///db"\n'
ROUTE = '[[routes]]\nstream = "a"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ROUTE, r"`sources` \(file .*shop.toml, line 1\) is empty: expected at least one source"),
        (SOURCE, r"`routes` \(file .*, line 1\) is empty: expected at least one route"),
        (
            f"{SOURCE}shard = 'x'\n{ROUTE}",
            r"`sources.a.shard` \(file .*, line 3\) is not known: did you mean `shards`",
        ),
        (
            f'[sources.a]\nlog = "mongo:///db"\n{ROUTE}',
            r"`sources.a.log` \(.*line 2\) cannot be read: .*no log is read by",
        ),
        (
            f"{SOURCE}start = 'now'\n{ROUTE}",
            r"`sources.a.start` \(.*line 3\) cannot be 'now': expected earliest, latest",
        ),
        (
            f"{SOURCE}shards = 'hash:0'\n{ROUTE}",
            r"`sources.a.shards` \(.*line 3\) cannot be read: .*number of shards",
        ),
        (f"{SOURCE}where = 'total >'\n{ROUTE}", r"`sources.a.where` \(.*line 3\) is no filter: .*column 7"),
        (f"{SOURCE}where = 'same key'\n{ROUTE}", r"`sources.a.where` \(.*line 3\) is for garbage collection"),
        (f"{SOURCE}lost = 'skip'\n{ROUTE}", r"`sources.a.lost` \(.*line 3\) cannot be 'skip'"),
        (
            f"{SOURCE}filters = ['big']\n{ROUTE}",
            r"`sources.a.filters` \(.*line 3\) names 'big': there is no \[filters\]",
        ),
        (f"[filters]\nbig = ''\n{SOURCE}{ROUTE}", r"`filters.big` \(.*line 2\) is empty"),
        (
            f"{SOURCE}[[routes]]\nstream = 'a-{{key}}'\n",
            r"`routes.0.stream` \(.*line 4\) cannot be 'a-\{key\}': .*only \{shard\}",
        ),
        (f"{SOURCE}[[routes]]\nstream = 'a-{{'\n", r"`routes.0.stream` \(.*line 4\) cannot be"),
        (f"{SOURCE}[[routes]]\nstream = ''\n", r"`routes.0.stream` \(.*line 4\).*1 to 200 bytes"),
        (
            f"{SOURCE}{ROUTE}{ROUTE}source = 'b'\n",
            r"`routes.1.source` \(.*line 7\) is 'b': expected one of a",
        ),
        (
            f"{SOURCE}[sources.b]\nlog = 'rocksdb:///c'\n{ROUTE}source = 'a'\n",
            r"`sources.b` \(.*line 3\) has no route",
        ),
        (
            f"[sources.A]\nlog = 'rocksdb:///c'\n{ROUTE}",
            r"`sources.A` \(.*line 1\) is no name of a source: expected small",
        ),
        (f"url = 'http://x'\n{SOURCE}{ROUTE}", r"`url` \(.*line 1\) cannot be read"),
        (f"{SOURCE}{ROUTE}[ingest]\npatience_s = -1\n", r"`ingest.patience_s` \(.*line 6\) cannot be -1"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadConfiguration, match=sentence):
        read(written(tmp_path, text))


def test_a_range_of_postgresql_ends_as_soon_as_its_log_does() -> None:
    assert patient_log("postgresql://me@h/db?create=yes") == "postgresql://me@h/db?create=yes&heartbeat_s=0.5"
    assert patient_log("postgresql://me@h/db?heartbeat_s=3") == "postgresql://me@h/db?heartbeat_s=3"
    assert patient_log("rocksdb:///db") == "rocksdb:///db"
