"""The streams of a data folder: what each one's card says, and what vanished."""

from __future__ import annotations

import asyncio
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qanat.events.batch import Batch
from qanat.events.kept import sealed, unsealed
from qanat.log.config import LogConfig, Policy
from qanat.log.errors import CorruptLog
from qanat.serving.stream_registry import StreamRegistry, _card_of

CONFIGURED = LogConfig(policy=Policy(by_key=True, keep_last=1000), indexed=("order",), retain_age_ms=5000)


def open_again(data: Path) -> list[str]:
    """The streams there are, and what was said."""

    async def work() -> list[str]:
        with ThreadPoolExecutor(1) as pool:
            streams = StreamRegistry(str(data), LogConfig(), {}, 10, pool)
            try:
                streams.open_all()
            finally:
                await streams.close()
            return [*streams.streams, *streams.notes]

    return asyncio.run(work())


def make(data: Path) -> Path:
    """A server's data with one event of one stream; its folder."""

    async def work() -> None:
        with ThreadPoolExecutor(1) as pool:
            streams = StreamRegistry(str(data), LogConfig(), {"prices": CONFIGURED}, 10, pool)
            streams.open_all()
            log = streams.streams["prices"].log
            log.append(Batch.build(log.stream, [b"one"]))
            log.sync()
            await streams.close()

    asyncio.run(work())
    (folder,) = data.glob("streams/*")
    return folder


def test_each_flipped_bit_of_a_card_is_noticed(tmp_path: Path) -> None:
    folder = make(tmp_path)
    card, twin = folder / "stream.json", tmp_path / "streams.synced" / f"{folder.name}.json"
    whole = card.read_bytes()
    found = unsealed(whole)
    assert found is not None
    for i in range(len(found[1]) * 8):
        flipped = bytearray(found[1])
        flipped[i // 8] ^= 1 << i % 8
        with pytest.raises(CorruptLog, match=re.escape(f"{card} is damaged")):
            _card_of(flipped, card)
    card.write_bytes(whole[:-1])
    assert open_again(tmp_path) == ["prices", f"{card} was damaged; what counts is {twin}"]
    assert (card.read_bytes(), open_again(tmp_path)) == (whole, ["prices"])
    for path in (card, twin):
        path.write_bytes(whole[:-1])
    with pytest.raises(CorruptLog, match=r"stream\.json is damaged"):
        open_again(tmp_path)
    for path in (card, twin):
        path.write_bytes(sealed(b"{}"))
    with pytest.raises(CorruptLog, match="it is not the card that was written"):
        open_again(tmp_path)


def test_a_stream_that_vanished_is_missed(tmp_path: Path) -> None:
    folder = make(tmp_path)
    card, twin = folder / "stream.json", tmp_path / "streams.synced" / f"{folder.name}.json"
    aside = shutil.move(folder, tmp_path / "aside")
    with pytest.raises(CorruptLog, match=r"manifest is damaged.* though events up to 1 were synced"):
        open_again(tmp_path)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(aside, folder)
    assert open_again(tmp_path) == ["prices"]
    card.unlink()
    twin.unlink()
    with pytest.raises(CorruptLog, match=r"stream\.json is damaged.* is gone, and so is"):
        open_again(tmp_path)


def test_a_stream_that_was_not_made_to_its_end_is_none(tmp_path: Path) -> None:
    (tmp_path / "streams" / f"{7:016x}").mkdir(parents=True)
    assert open_again(tmp_path) == []


def test_the_record_of_an_earlier_version_is_moved(tmp_path: Path) -> None:
    folder = make(tmp_path)
    record = tmp_path / "streams.synced" / folder.name
    shutil.move(record, folder / "synced")
    assert open_again(tmp_path) == ["prices"]
    assert record.exists() and not (folder / "synced").exists()
