"""The streams of a data folder: what each one's card says, and a card that was damaged."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.waiting import run

from qanat.log.config import LogConfig, Policy
from qanat.log.errors import CorruptLog
from qanat.nodes.stream_registry import StreamRegistry, _card_of


def registry(data: Path, pool: ThreadPoolExecutor) -> StreamRegistry:
    configured = LogConfig(policy=Policy(by_key=True, keep_last=1000), indexed=("order",), retain_age_ms=5000)
    return StreamRegistry(str(data), LogConfig(), {"prices": configured}, 10, pool)


def test_each_flipped_bit_of_a_card_is_damage_and_names_the_file(tmp_path: Path) -> None:
    async def work(pool: ThreadPoolExecutor) -> None:
        streams = registry(tmp_path, pool)
        streams.open_all()
        await streams.close()
        (card,) = tmp_path.glob("streams/*/stream.json")
        whole = card.read_bytes()
        assert _card_of(whole, card).name == "prices"
        for i in range(len(whole) * 8):
            flipped = bytearray(whole)
            flipped[i // 8] ^= 1 << i % 8
            with pytest.raises(CorruptLog, match=re.escape(f"{card} is damaged")):
                _card_of(flipped, card)
        card.write_bytes(whole[:-1])
        with pytest.raises(CorruptLog, match=r"stream\.json is damaged"):
            registry(tmp_path, pool).open_all()

    with ThreadPoolExecutor(1) as pool:
        run(work(pool))
