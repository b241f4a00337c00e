"""The workload of Sprinkler's section 5.4: which keys are invalidated, while new keys come in.

Two Poisson processes run side by side: invalidations at `rate` per tick, new keys at `new_rate` per tick. An
invalidation hits the key at a rank drawn from a Zipf distribution; a new key takes a rank drawn from the same one.
With `keys=None` the distribution is a Zeta distribution: there are infinitely many keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from qanat.events.errors import LocalError
from qanat.studies.s14_popularity import INSERTIONS_MAX, RANK_LIMIT, Ints, Popularity

Floats = NDArray[np.float64]

_TABLE = 1 << 16
"""Ranks whose probability is tabulated. Beyond it the sum over k**-skew is an integral, exact to 1e-10 of itself."""
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
    """A run of the stream. `keys` are numbers, each key its own; `born` is when a new key came, else -inf."""

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

    def _integral(self, rank: Floats) -> Floats:
        """The sum of k**-skew over k >= rank, for large ranks."""
        return np.asarray((rank - 0.5) ** (1 - self._skew) / (self._skew - 1), np.float64)

    def at_least(self, rank: Floats | Ints) -> Floats:
        """P(rank >= k) of the Zeta distribution."""
        rank = np.asarray(rank, np.float64)
        near = self._at_least[np.minimum(rank, _TABLE + 1).astype(np.int64) - 1]
        return np.where(rank <= _TABLE, near, self._integral(np.maximum(rank, 2.0)) / self.zeta)

    def draw(self, rng: np.random.Generator, count: int, limit: Ints | int | None) -> Floats:
        """Ranks of a Zipf distribution over 1..limit, or of a Zeta distribution (limit None); whole numbers."""
        above = 0.0 if limit is None else self.at_least(np.asarray(limit) + 1)
        share = above + (1.0 - above) * (1.0 - rng.random(count))  # in (above, 1]
        # `share` lies in (P(rank > k), P(rank >= k)] for the rank k that is drawn.
        drawn = (len(self._rising) - np.searchsorted(self._rising, share)).astype(np.float64)
        far = np.flatnonzero(drawn > _TABLE)
        beyond = (share[far] * self.zeta * (self._skew - 1)) ** (-1 / (self._skew - 1)) + 0.5
        drawn[far] = np.maximum(np.floor(beyond), _TABLE + 1.0)
        return drawn if limit is None else np.minimum(drawn, limit)


def events(model: Model, seed: int, *, chunk: int = CHUNK) -> Iterator[Events]:
    """The stream without end, in runs of about `chunk`. The same model, seed and chunk give the same stream."""
    rng = np.random.default_rng([seed, 14])
    ranks, line = Ranks(model.skew), Popularity()
    born = np.zeros(0)
    tick = 0.0
    chunk = min(chunk, INSERTIONS_MAX)
    total_rate = model.rate + model.new_rate
    while True:
        # Two Poisson processes are one with the sum of their rates, in which each arrival is of either kind.
        ticks = tick + np.cumsum(rng.exponential(1 / total_rate, chunk))
        tick = float(ticks[-1])
        new = rng.random(chunk) < model.new_rate / total_rate
        before: Ints = np.cumsum(new) - new  # new keys of this run that came earlier
        limit = model.rank_max if model.keys is None else model.keys + line.inserted + before
        drawn = ranks.draw(rng, chunk, limit)
        if model.keys is not None and new.any():  # a new key may also come last
            drawn[new] = ranks.draw(rng, int(new.sum()), np.asarray(limit)[new] + 1)
        born = np.concatenate((born, ticks[new]))
        yield _named(model, drawn, ticks, new, before, line, born)


def _named(
    model: Model,
    drawn: Floats,
    ticks: Floats,
    new: NDArray[np.bool_],
    before: Ints,
    line: Popularity,
    born: Floats,
) -> Events:
    """Ranks become keys."""
    first_new = line.inserted
    far = drawn >= RANK_LIMIT
    near = np.flatnonzero(~far & ~new)
    inserted_at = np.where(far[new], RANK_LIMIT, drawn[new]).astype(np.int64)
    keys = drawn.view(np.int64).copy()  # a far rank's bits are a number of their own, above all near ranks
    keys[near] = line.step(inserted_at, drawn[near].astype(np.int64), before[near])
    keys[new] = -1 - first_new - np.arange(int(new.sum()))
    chosen = slice(None) if model.announced else ~new
    keys, ticks = keys[chosen], ticks[chosen]
    ages = np.full(len(keys), -np.inf)
    fresh = keys < 0
    ages[fresh] = born[-1 - keys[fresh]]
    return Events(keys, ticks, ages)
