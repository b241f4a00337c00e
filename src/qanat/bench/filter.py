"""How many events a second are matched against how many filters, and how that compares with one filter at a
time.

The workload is a market feed: batches of events with symbol, price, volume, venue, region and side;
subscriptions that ask for a symbol within a price range, for a region within a narrow price range, for a few
symbols but one side, for a symbol on venues by pattern, and for volumes. An event has a few matches at 10,000
subscriptions. Events are counted once however many filters there are, so events/s × filters is the number of
answers a second.
"""

import random
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from qanat.bench.figures import gathered, in_turns
from qanat.events.batch import Batch, stream_id
from qanat.events.filters import Filter, FilterIndex, evaluate, parse

DESCRIPTION = "events/s matched against 1 to 100,000 filters, and against one filter at a time"

_SYMBOLS, _ROWS, _BATCHES = 5_000, 4_096, 4
_REGIONS = ["us-east", "us-west", "eu-west", "eu-north", "ap-south", "ap-east", "sa-east", "af-south"]
_VENUES = [f"{c}{d}-{n:02}" for c in ("XN", "XL", "XT", "XP") for d in ("YS", "ON", "KS") for n in range(4)]
_PATTERNS = ["^XNYS", "ON-0[12]$", "KS", "^X[LT]", "-03", "^XP(YS|KS)", "YS-00", "^XTON-"]
_SIZES = (1, 100, 1_000, 10_000, 100_000)


def run(rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Medians over the rounds; each round matches every size in turn, so that noise falls on all alike."""
    batches = [market_batch(np.random.default_rng(seed)) for seed in range(_BATCHES)]
    some = subscriptions(max(_SIZES), random.Random(1))
    indexes = {size: _index(some[:size], say) for size in _SIZES}
    figures: dict[str, list[float]] = {}
    for turn in range(rounds):
        for size, index in indexes.items():
            seconds, found = _time_index(index, batches)
            figures.setdefault(f"match_events_per_s_{size}", []).append(_events(batches) / seconds)
            figures.setdefault(f"matches_per_event_{size}", []).append(found / _events(batches))
        seconds = _time_plain(some[:1], batches)
        figures.setdefault("columnar_events_per_s", []).append(_events(batches) / seconds)
        pair = in_turns(
            lambda: 1 / _time_index(indexes[1_000], batches[:1])[0],
            lambda: 1 / _time_plain(some[:1_000], batches[:1]),
            2,
            first=turn,
        )
        figures.setdefault("speedup_over_one_by_one_1000", []).append(pair.ratio)
        ratio = figures["match_events_per_s_1000"][-1] / figures["match_events_per_s_100000"][-1]
        figures.setdefault("slowdown_100000_over_1000", []).append(ratio)
        say(
            f"round {turn + 1} of {rounds}: "
            + ", ".join(
                f"{figures[f'match_events_per_s_{size}'][-1]:,.0f} events/s × {size:,}" for size in _SIZES
            )
        )
    return gathered(figures) | {"add_filters_per_s": len(some) / _time_adding(some)}


def market_batch(rng: np.random.Generator, rows: int = _ROWS) -> Batch:
    """One batch of trades; symbols follow a Zipf-like law, as trades do."""
    rank = np.minimum(rng.pareto(1.0, rows) * 50, _SYMBOLS - 1).astype(np.int64)
    columns: dict[str, pa.Array] = {
        "symbol": pa.array([f"S{i:04}" for i in rank.tolist()]),
        "price": pa.array(np.round(rng.uniform(1, 1_000, rows), 2)),
        "volume": pa.array(rng.integers(1, 100_000, rows)),
        "venue": pa.array(_VENUES).take(pa.array(rng.integers(0, len(_VENUES), rows))),
        "region": pa.array(_REGIONS).take(pa.array(rng.integers(0, len(_REGIONS), rows))),
        "side": pa.array(["buy", "sell"]).take(pa.array(rng.integers(0, 2, rows))),
    }
    payloads = rng.integers(0, 256, (rows, 32)).astype(np.uint8)
    return Batch.build(stream_id("market"), payloads, first=1, attributes=columns)


def subscriptions(count: int, rng: random.Random) -> list[Filter]:
    return [parse(_subscription(rng)) for _ in range(count)]


def _subscription(rng: random.Random) -> str:
    rank = min(int((rng.paretovariate(1.0) - 1) * 500), _SYMBOLS - 1)
    symbol, low = f"S{rank:04}", rng.uniform(1, 900)
    match rng.choices("spnvw", weights=(70, 14, 10, 5, 1))[0]:
        case "s":
            return f"symbol = '{symbol}' and price in {low:.2f}..{low + 100:.2f}"
        case "p":
            regions = ", ".join(f"'{r}'" for r in rng.sample(_REGIONS, 2))
            return f"region in ({regions}) and price in {low:.2f}..{low + rng.uniform(0.1, 5):.2f}"
        case "n":
            symbols = ", ".join(f"'S{rng.randrange(_SYMBOLS):04}'" for _ in range(3))
            return f"symbol in ({symbols}) and not side = 'sell'"
        case "v":
            return f"symbol = '{symbol}' and venue ~ '{rng.choice(_PATTERNS)}'"
        case _:
            volume = rng.randrange(100_000)
            return f"volume in {volume}..{volume + 50} or symbol = '{symbol}' and volume in 90000.."


def _index(some: list[Filter], say: Callable[[str], None]) -> FilterIndex:
    say(f"adding {len(some):,} filters")
    index = FilterIndex()
    for i, f in enumerate(some):
        index.add(i, f)
    return index


def _time_adding(some: list[Filter]) -> float:
    """Seconds to add all filters to a fresh index and plan them."""
    empty = market_batch(np.random.default_rng(0), 1)
    start = time.perf_counter()
    _index(some, lambda _: None).match(empty)
    return time.perf_counter() - start


def _time_index(index: FilterIndex, batches: list[Batch]) -> tuple[float, int]:
    index.match(batches[0])  # plans what is new: the cost of adding, not of matching
    start = time.perf_counter()
    found = sum(len(index.match(batch).ids) for batch in batches)
    return time.perf_counter() - start, found


def _time_plain(some: list[Filter], batches: list[Batch]) -> float:
    start = time.perf_counter()
    for batch in batches:
        for f in some:
            evaluate(f, batch)
    return time.perf_counter() - start


def _events(batches: list[Batch]) -> int:
    return sum(batch.count for batch in batches)
