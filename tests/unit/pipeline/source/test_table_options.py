"""How options reach the format: from a query, from `load(…)` and `save(…)`, and from a table of Spark's
catalog."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from qanat.pipeline.columns import ARROW
from qanat.pipeline.source.format import QanatSource
from qanat.pipeline.source.options import BadOption
from qanat.pipeline.source.tables import options_of
from qanat.pipeline.spark_versions import OldSpark

pytestmark = pytest.mark.paper("D1")

MADE = {
    "provider": "qanat",
    "owner": "me",
    "url": "u",
    "option.url": "qanat://h:1",
    "option.stream": "orders",
    "stream": "orders",
    "option.startingoffsets": "latest",
    "option.durability": "memory",
}
"""As Spark tells it of CREATE TABLE … OPTIONS (url …, stream …, startingOffsets …, durability …)."""


@pytest.mark.parametrize("version", ["3.5.9", "4.0.1", "4.1.4"])
def test_a_spark_that_is_too_old_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(OldSpark, match=rf"needs PySpark 4\.2 or newer, and this is {version}"):
        QanatSource({})


def columns() -> StructType:
    """Those of a table that was made, as they come back from the catalog."""
    made = QanatSource(MADE).schema()
    assert isinstance(made, StructType)
    return StructType.fromJson(made.jsonValue())


def test_a_table_remembers_its_options() -> None:
    kept = {"url": "qanat://h:1", "stream": "orders", "start": "latest", "durability": "memory"}
    assert columns().fieldNames() == ARROW.names
    assert options_of({}, columns()) == kept
    assert options_of({"start": "5"}, columns()) == kept | {"start": "5"}
    assert options_of({"pattern": "o.*"}, columns()).keys() == {"url", "pattern", "start", "durability"}


def test_a_table_that_cannot_be_is_refused_when_it_is_made() -> None:
    with pytest.raises(BadOption, match="no option 'strem'"):
        QanatSource({**MADE, "option.strem": "x"}).schema()
    with pytest.raises(BadOption, match=r"CREATE TABLE t USING qanat OPTIONS"):
        QanatSource({"provider": "qanat"}).schema()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("orders", {"stream": "orders"}),
        ("orders, prices", {"stream": "orders, prices"}),
        ("qanat://h:7411/orders", {"url": "qanat://h:7411", "stream": "orders"}),
        ("qanat://h,h2:7411/a/b", {"url": "qanat://h,h2:7411", "stream": "a/b"}),
    ],
)
def test_a_path_is_a_stream(path: str, expected: dict[str, str]) -> None:
    assert options_of({"path": path}) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "qanat://h:7411"}, "does not say which stream of which server"),
        ({"path": "qanat:///orders"}, "does not say which stream of which server"),
        ({"path": "qanat://h/orders", "url": "qanat://h"}, "both name a server"),
        ({"path": "orders", "stream": "orders"}, "both say which stream"),
        ({"path": "orders", "subscribePattern": "o.*"}, "both say which stream"),
        ({"path": "/data/orders"}, "is no stream"),
        ({"path": "hdfs://h/orders"}, "is no stream"),
        ({"paths": '["a","b"]'}, r"load\('orders,prices'\)"),
        ({"path": "orders", "changes": "rocksdb:///x"}, "names the log already"),
    ],
)
def test_a_path_that_is_none_is_answered(options: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        options_of(options)
