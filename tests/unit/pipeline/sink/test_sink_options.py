"""Options of the sink: where rows wait, how safely a new stream is kept; and what is said of values that
cannot be."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from qanat.events.errors import LocalError
from qanat.pipeline.sink.options import SinkOptions
from qanat.pipeline.sink.staging import Staging
from qanat.pipeline.source.options import BadOption

pytestmark = pytest.mark.paper("D1")


def staging(**options: str) -> str:
    return SinkOptions.read({"stream": "s", "url": "qanat://127.0.0.1:7411", **options}).staging


@pytest.mark.parametrize("value", ["", "always", "interval", "memory"])
def test_durability_is_one_of_three_or_the_server_s(value: str) -> None:
    assert SinkOptions.read({"stream": "s", "durability": value}).durability == value
    assert SinkOptions.read({"stream": "s", "durability": value.upper()}).durability == value


@pytest.mark.parametrize("value", ["none", "disk", "1"])
def test_another_durability_is_refused_with_those_that_there_are(value: str) -> None:
    with pytest.raises(
        BadOption, match=f"^option 'durability' is always or interval or memory, not '{value}'$"
    ):
        SinkOptions.read({"stream": "s", "durability": value})


def test_rows_wait_in_the_folder_that_is_given_else_in_the_checkpoint() -> None:
    assert staging(staging="/shared/wait", checkpointLocation="/data/checkpoint") == "/shared/wait"
    assert staging(STAGING="/shared/wait") == "/shared/wait"  # for Spark's options letters are alike
    for checkpoint in ("/data/checkpoint", "file:///data/checkpoint", "file:/data/checkpoint"):
        assert staging(checkpointLocation=checkpoint) == "/data/checkpoint/qanat"


def test_without_a_checkpoint_that_is_a_folder_they_wait_where_the_same_query_finds_them_again() -> None:
    distant = "hdfs://host:9000/checkpoint"
    place = staging(checkpointLocation=distant)
    assert place.startswith(f"{tempfile.gettempdir()}/qanat-staging-")
    assert staging(checkpointLocation=distant) == place
    others = [staging(), staging(name="job"), staging(checkpointLocation=f"{distant}-2")]
    assert len({place, *others}) == 4


def test_a_folder_that_cannot_be_made_is_named_with_the_option(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LocalError, match=rf"cannot wait in {file}/below: .*'staging'"):
        Staging.prepare(f"{file}/below")


def test_a_task_that_sees_another_folder_of_that_name_keeps_its_rows(tmp_path: Path) -> None:
    """As on another machine: they then go to the driver in its message."""
    mine = Staging.prepare(str(tmp_path / "wait"))
    assert mine.is_here and Staging.prepare(str(tmp_path / "wait")) == mine
    assert not Staging(mine.folder, "of another machine").is_here
    assert not Staging(str(tmp_path / "nowhere"), mine.token).is_here
