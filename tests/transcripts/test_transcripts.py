"""Every transcript is what happens now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.transcripts.chain_room import ChainRoom
from tests.transcripts.publisher_room import PublisherRoom
from tests.transcripts.transcript import Room, blocks, check, played

FOLDER = Path(__file__).parent
ROOMS: dict[str, Callable[[], Room]] = {"chain": ChainRoom, "publisher": PublisherRoom}
FILES = sorted(path for name in ROOMS for path in (FOLDER / name).glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_happens_is_what_stands_there(path: Path, request: pytest.FixtureRequest) -> None:
    check(path, ROOMS[path.parent.name], update=request.config.option.update_transcripts)


def test_a_difference_is_seen() -> None:
    path = FOLDER / "chain" / "a_publish_through_three.txt"
    text = path.read_text(encoding="utf-8")
    other = text.replace("sync b", "sync a")
    assert played(other, ChainRoom()) != other


def test_blocks_are_commands_and_reasons() -> None:
    text = "# why\na 1\nb\n----\nsaid\n\nc\n----\nnothing\n"
    assert list(blocks(text)) == [(["# why"], ["a 1", "b"]), ([], ["c"])]
