"""The workload of Sprinkler's section 5.4: which keys are invalidated, while new keys come in.

Two Poisson processes run side by side: invalidations at `rate` per tick, new keys at `new_rate` per tick. An
invalidation hits the key at a rank drawn from a Zipf distribution; a new key takes a rank drawn from the same
one. With `keys=None` the distribution is a Zeta distribution: there are infinitely many keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from qanat.events.errors import LocalError
from qanat.studies.s14.popularity import INSERTIONS_MAX, RANK_LIMIT, Ints, Popularity

Floats = NDArray[np.float64]

_TABLE = 1 << 16
"""Ranks whose probability is tabulated. Beyond it the sum over k**-skew is an integral, exact to 1e-10 of
itself."""
_GUIDE = 1 << 20
"""Equal parts of 0..1, a power of two: in nearly all of them lies no entry of the table, so that the part
tells the rank without a search."""
CHUNK = 1 << 20
"""Arrivals that are drawn at a time: some 50 MB at work."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One curve's workload."""

    skew: float
    keys: int | None = None
    """Keys at the start; None: infinitely many."""
    rate: float = 200.0
    """Invalidations per tick (the paper's λ)."""
    new_rate: float = 0.0
    """New keys per tick; the paper has 10 for the Zeta model, and a tenth of `rate` for the Zipf model."""
    announced: bool = False
    """Whether a new key is an event of the stream, too."""
    rank_max: int | None = None
    """Ranks above it are drawn again: what a sampler with so many bits does to a Zeta distribution."""

    def __post_init__(self) -> None:
        if not self.skew > 1:
            raise LocalError(f"a Zeta distribution needs a skew above 1, not {self.skew}")
        if self.rate <= 0 or self.new_rate < 0:
            raise LocalError("rates are per tick: `rate` above 0, `new_rate` 0 or more")
        if self.keys is not None and not 1 <= self.keys < RANK_LIMIT // 2:
            raise LocalError(f"keys = {self.keys} is outside 1..{RANK_LIMIT // 2 - 1}")


class Events(NamedTuple):
    """A run of the stream. `keys` are numbers, each key its own; `born` is when a new key came, else -inf.

    Where nobody asked for times, `ticks` and `born` are empty.
    """

    keys: Ints
    ticks: Floats
    born: Floats


class Ranks:
    """Draws ranks by inverting P(rank >= k), which a table and, beyond it, an integral give."""

    def __init__(self, skew: float) -> None:
        self._skew = skew
        terms = np.arange(1, _TABLE + 1, dtype=np.float64) ** -skew
        sums = np.concatenate((np.cumsum(terms[::-1])[::-1], [0.0])) + self._integral(np.array(_TABLE + 1.0))
        self.zeta = float(sums[0])
        self._at_least = sums / self.zeta  # [k - 1] is P(rank >= k)
        self._rising = self._at_least[::-1].copy()
        edges = np.searchsorted(self._rising, np.arange(_GUIDE + 2) / _GUIDE)
        self._guide = np.where(edges[1:] == edges[:-1], edges[:-1], -1).astype(np.int32)

    def _integral(self, rank: Floats) -> Floats:
        """The sum of k**-skew over k >= rank, for large ranks."""
        return np.asarray((rank - 0.5) ** (1 - self._skew) / (self._skew - 1), np.float64)

    def at_least(self, rank: Floats | Ints) -> Floats:
        """P(rank >= k) of the Zeta distribution."""
        rank = np.asarray(rank, np.float64)
        near = self._at_least[np.minimum(rank, _TABLE + 1).astype(np.int64) - 1]
        return np.where(rank <= _TABLE, near, self._integral(np.maximum(rank, 2.0)) / self.zeta)

    def draw(self, rng: np.random.Generator, count: int, limit: Ints | int | None) -> Floats:
        """Ranks of a Zipf distribution over 1..limit, or of a Zeta distribution (limit None); whole
        numbers."""
        above = 0.0 if limit is None else self.at_least(np.asarray(limit) + 1)
        share = above + (1.0 - above) * (1.0 - rng.random(count))  # in (above, 1]
        # `share` lies in (P(rank > k), P(rank >= k)] for the rank k that is drawn.
        found = self._guide[(share * _GUIDE).astype(np.int64)]
        unsure = np.flatnonzero(found < 0)
        found[unsure] = np.searchsorted(self._rising, share[unsure])
        drawn = (len(self._rising) - found).astype(np.float64)
        far = np.flatnonzero(drawn > _TABLE)
        beyond = (share[far] * self.zeta * (self._skew - 1)) ** (-1 / (self._skew - 1)) + 0.5
        drawn[far] = np.maximum(np.floor(beyond), _TABLE + 1.0)
        return drawn if limit is None else np.minimum(drawn, limit)


class Start(NamedTuple):
    """Where a part of the stream begins: its first chunk, and what came before it."""

    number: int = 0
    inserted: int = 0
    """New keys."""
    tick: float = 0.0


BEGINNING = Start()


class Chunk:
    """One run of arrivals. What it draws depends on its number alone, so that any process can draw any part
    of it.

    Two Poisson processes are one with the sum of their rates, in which each arrival is of either kind.
    """

    def __init__(self, model: Model, seed: int, number: int, size: int = CHUNK) -> None:
        self._model = model
        self._seed = (seed, 14, number)
        self._size = size
        self.new = self._rng(0).random(size) < model.new_rate / (model.rate + model.new_rate)
        """Which arrivals are new keys."""

    def _rng(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([*self._seed, purpose])

    def ticks(self) -> Floats:
        """When they come, counted from the chunk's beginning."""
        gaps = self._rng(1).exponential(1 / (self._model.rate + self._model.new_rate), self._size)
        return np.cumsum(gaps)

    def inserted_at(self, ranks: Ranks, inserted: int) -> Floats:
        """Ranks of the new keys, when so many came before the chunk. Among a fixed set one may also come
        last."""
        many = int(self.new.sum())
        return ranks.draw(self._rng(2), many, self._limit(inserted + np.arange(many), 1))

    def invalidated(self, ranks: Ranks, inserted: int) -> tuple[Floats, Ints]:
        """Ranks that the invalidations hit, and how many new keys of this chunk came before each."""
        after: Ints = np.cumsum(self.new, dtype=np.int64)[~self.new]
        before = inserted + after if self._model.new_rate else inserted
        return ranks.draw(self._rng(3), len(after), self._limit(before, 0)), after

    def _limit(self, inserted: Ints | int, more: int) -> Ints | int | None:
        return self._model.rank_max if self._model.keys is None else self._model.keys + inserted + more


def events(
    model: Model, seed: int, *, chunk: int = CHUNK, start: Start = BEGINNING, timed: bool = True
) -> Iterator[Events]:
    """The stream without end, in runs of about `chunk`. The same model, seed and chunk give the same stream.

    From a later start on, a key that was there before is named by the rank where it stood at that moment, and
    a new key by how many came since; from the beginning on, these are the keys themselves.
    """
    ranks, line = Ranks(model.skew), Popularity()
    ticks = born = np.zeros(0)
    tick = start.tick
    for number in count(start.number):
        drawn = Chunk(model, seed, number, chunk_size(chunk))
        keys = name_keys(drawn, ranks, line, start.inserted)
        told = slice(None) if model.announced else ~drawn.new
        if timed:
            ticks = tick + drawn.ticks()
            tick = float(ticks[-1])
            born = np.concatenate((born, ticks[drawn.new]))
        yield (
            Events(keys[told], ticks[told], _came(keys[told], born))
            if timed
            else Events(keys[told], ticks, born)
        )


def _came(keys: Ints, born: Floats) -> Floats:
    came = np.full(len(keys), -np.inf)
    fresh = keys < 0
    came[fresh] = born[-1 - keys[fresh]]
    return came


def chunk_size(wanted: int) -> int:
    return min(wanted, INSERTIONS_MAX)


def name_keys(drawn: Chunk, ranks: Ranks, line: Popularity, before: int) -> Ints:
    """Keys of all arrivals of a chunk; `before` new keys had come when the line was as it is at its start."""
    first_new, inserted = line.inserted, before + line.inserted
    hit, after = drawn.invalidated(ranks, inserted)
    near = hit < RANK_LIMIT
    inserted_at = np.minimum(drawn.inserted_at(ranks, inserted), RANK_LIMIT).astype(np.int64)
    named = hit.view(np.int64).copy()  # a far rank's bits are a number of their own, above all near ranks
    named[near] = line.step(inserted_at, hit[near].astype(np.int64), after[near])
    keys = np.empty(len(drawn.new), np.int64)
    keys[~drawn.new] = named
    keys[drawn.new] = -1 - first_new - np.arange(len(inserted_at))
    return keys
