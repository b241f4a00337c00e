"""The dead-letter table: each letter once, however often and by whomever it is written."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from pyarrow.dataset import dataset

from qanat.events.position import Position
from qanat.pipeline.ingest import dead_letters
from qanat.pipeline.ingest.dead_letters import Letter, LettersDamaged, folder_of


def letter(sequence: int, index: int = 0) -> Letter:
    return Letter(
        Position(sequence, index),
        "route",
        f"no way for {sequence}",
        "json",
        b"{%d}" % sequence,
        "shop.orders",
    )


def positions(state: Path) -> list[tuple[int, int]]:
    table = dead_letters.read(state)
    return list(zip(table["sequence"].to_pylist(), table["index"].to_pylist(), strict=True))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "shop")
    assert dead_letters.read(tmp_path).num_rows == 0
    assert dead_letters.write(folder, [letter(7), letter(9, 3)]) == 2
    first, second = dead_letters.read(tmp_path, "shop").to_pylist()
    assert first.pop("written").year >= 2026
    assert first == {
        "source": "shop",
        "sequence": 7,
        "index": 0,
        "table": "shop.orders",
        "stage": "route",
        "reason": "no way for 7",
        "form": "json",
        "original": b"{7}",
    }
    assert (second["sequence"], second["index"]) == (9, 3)
    # As a table for others: the source comes from the folder, and once.
    others = dataset(tmp_path / "dead-letters", partitioning="hive").to_table()
    assert others["source"].to_pylist() == ["shop", "shop"] and others.num_columns == len(first) + 1
    assert dead_letters.count(tmp_path, "shop") == 2
    assert dead_letters.count(tmp_path, "other") == 0


@pytest.mark.paper("D2")
def test_a_letter_is_there_once_whoever_writes_it_again(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "shop")
    log = [letter(sequence, index) for sequence in range(1, 40) for index in (0, 1)]

    def task(seed: int) -> None:
        """Goes over the log in pieces of its own, and begins again a few times, as after a kill."""
        rng = random.Random(seed)
        at = 0
        while at < len(log):
            step = rng.randrange(1, 12)
            dead_letters.write(folder, log[at : at + step])
            at = max(0, at + step - (rng.randrange(0, 20) if rng.random() < 0.3 else 0))

    threads = [threading.Thread(target=task, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert positions(tmp_path) == [(one.position.sequence, one.position.index) for one in log]


def test_one_that_was_passed_over_can_follow_later(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "shop")
    dead_letters.write(folder, [letter(5), letter(9)])
    assert dead_letters.write(folder, [letter(7), letter(9)]) == 1
    assert positions(tmp_path) == [(5, 0), (7, 0), (9, 0)]


def test_a_file_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "shop")
    dead_letters.write(folder, [letter(5)])
    (folder / ".00000000000000000006-0000000000_x.parquet.123").write_bytes(b"half")
    assert positions(tmp_path) == [(5, 0)]


def test_letters_that_are_gone_or_damaged_are_missed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "shop")
    for sequence in (5, 6, 7):
        dead_letters.write(folder, [letter(sequence)])
    first, second, third = sorted(folder.glob("*.parquet"))
    third.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    problems: list[str] = []
    assert dead_letters.read(tmp_path, "shop", problems)["sequence"].to_pylist() == [5]
    assert len(problems) == 2
    assert problems[0].startswith(f"file 3 of the dead letters in {folder} is gone")
    assert problems[1].startswith(f"{second} is damaged")
    with pytest.raises(LettersDamaged, match="file 3 of the dead letters"):
        dead_letters.read(tmp_path, "shop")
    assert dead_letters.write(folder, [letter(6), letter(7)]) == 2, (
        "a task that is done again writes them again"
    )
    assert first.exists() and len(list(folder.glob("*.00000005.*.parquet"))) == 0
    assert [each.name.split(".")[1] for each in sorted(folder.glob("*.parquet"))] == [
        "00000001",
        "00000002",
        "00000004",
    ]
