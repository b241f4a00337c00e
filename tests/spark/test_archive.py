"""A stream becomes Parquet files, exactly; and is read back as it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.archives import archive_all, fill, in_stream, rows
from tests.spark.conftest import ServerProcess

from qanat.client import Client
from qanat.pipeline.archive.errors import NotArchived
from qanat.pipeline.archive.view import archive_range, streams_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.paper("D4")


def test_the_archive_is_the_stream(spark: SparkSession, shared_server: ServerProcess, tmp_path: Path) -> None:
    with Client(shared_server.url) as client:
        fill(client, "whole", 1800)
        client.publish("whole", b"goes", key=b"k1", collects="same key")
        history = archive_all(spark, shared_server.url, tmp_path, "whole")
        assert history.newest().complete() == ((1, 1801),)
        assert len(history.newest().files) == 2  # two tasks, as there are enough events for both
        fill(client, "whole", 10, 2000)
        archive_all(spark, shared_server.url, tmp_path, "whole")
        manifest = history.newest()
        assert manifest.complete() == ((1, 1811),)
        assert [m.stream for m in streams_of(history.storage.below(".."))] == ["whole"]
        assert rows(archive_range(spark, str(tmp_path), "whole")) == in_stream(client, "whole", 1, 1811)
        part = rows(archive_range(spark, str(tmp_path), "whole", 5, 1801))
        assert [row["seq"] for row in part] == list(range(5, 1802))
        with pytest.raises(NotArchived, match="1 to 1811"):
            archive_range(spark, str(tmp_path), "whole", 5, 1812)
