"""Which files of an archive are written anew when its garbage is collected, and which stay as they are."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pyspark.sql import functions as F

from qanat.pipeline.archive.manifest import DataFile, Range
from qanat.pipeline.compact.collection import Found


class Content(NamedTuple):
    """What one file holds, and whether a run of dead events goes on from the file before it into this one."""

    events: int
    living: int
    continued: bool


def contents(found: Found, files: Sequence[DataFile]) -> list[Content]:
    """Of each file of a stream, read from the words in which files begin; `found` is of that stream alone."""
    walls = found.streams[0].walls()
    ends = found.words.agg(F.sum(F.bit_count("living")), F.sum(F.bit_count("there"))).collect()[0]
    table = found.words.where(F.col("cuts") != 0).orderBy("word").toArrow()
    words = {row["word"]: row for row in table.to_pylist()}
    ranks, counts, continued = [], [], []
    for file in files:
        word = words[file.first >> 6]
        mask, own = ~((1 << (64 - (file.first & 63))) - 1), 1 << (63 - (file.first & 63))
        living, there = word["living"] & ((1 << 64) - 1), word["there"] & ((1 << 64) - 1)
        earlier = living & mask
        lowest = (earlier & -earlier).bit_length() - 1
        before = (word["word"] << 6) + 63 - lowest if earlier else word["before"]
        ranks.append(word["rank"] + earlier.bit_count() - int(np.searchsorted(walls, file.first)))
        counts.append(word["there_rank"] + (there & mask).bit_count())
        continued.append(not living & own and before != file.first - 1)
    ranks.append(int(ends[0] or 0) - len(walls))
    counts.append(int(ends[1] or 0))
    return [
        Content(counts[i + 1] - counts[i], ranks[i + 1] - ranks[i], continued[i]) for i in range(len(files))
    ]


class Rewriting(NamedTuple):
    """What is written anew: the group of each file (-1: it stays), and the range that adjacent groups cover
    together."""

    groups: list[int]
    pieces: list[Range]
    piece_of_group: list[int]

    @property
    def outputs(self) -> int:
        return len(self.piece_of_group)


def choose(files: Sequence[DataFile], held: Sequence[Content], file_bytes: int) -> Rewriting:
    """Files with dead events, or with tombstones that meet; neighbours of one day become one as far as they
    fit."""
    changed = [content.living < content.events for content in held]
    for i, content in enumerate(held):
        if content.continued:
            changed[i - 1] = changed[i] = True
    groups: list[int] = []
    pieces: list[Range] = []
    piece_of_group: list[int] = []
    size = 0.0
    for i, file in enumerate(files):
        if not changed[i]:
            groups.append(-1)
            continue
        left = file.bytes * held[i].living / max(file.rows, 1)
        adjacent = i > 0 and groups[i - 1] >= 0 and files[i - 1].last + 1 == file.first
        if adjacent and files[i - 1].day == file.day and size + left <= file_bytes:
            size += left
        else:
            size = left
            piece_of_group.append(len(pieces) - 1 if adjacent else len(pieces))
        groups.append(len(piece_of_group) - 1)
        if adjacent:
            pieces[-1] = Range(pieces[-1].first, file.last)
        else:
            pieces.append(Range(file.first, file.last))
    return Rewriting(groups, pieces, piece_of_group)
