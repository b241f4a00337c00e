"""What garbage collection knows of a stream: which events are dead, and which predicates still hunt for
theirs.

Every event that is stored passes through `ingest`, here and again when a log is opened, so nothing of this
needs a file of its own: the events that collect are themselves in the log. An event is dead in one of two
ways.

- The prefix: everything up to a number. `upto`, `keep last` and `all`, the keep-last policy and the age
  policy end there.
  An earlier GC event in the prefix may go too: whatever it matched came before it and lies in the prefix as
  well.
- A mark, by a same-key predicate through the key index, or by any other predicate through a hunt.

Under the key-based policy an event with a key is itself a GC event, so only a later event of its key or a
prefix collects it; another predicate would remove the proof for what that event had collected. Under the age
policy the newest event stays until one at least as new follows: it is what tells a reader that the old ones
are gone.
"""

from collections import deque
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import pyarrow as pa

from qanat.events.batch import Batch, Kind
from qanat.events.encode import Array
from qanat.events.filters import Context, Filter, FilterError
from qanat.events.filters.model import KeepLast, OlderThan, SameKey, Term, UpTo
from qanat.events.layout import KEYS, KINDS, Header
from qanat.events.tombstones import predicates
from qanat.log.config import LogConfig
from qanat.log.hunt import Hunt
from qanat.log.key_index import KeyIndex
from qanat.log.predicates import SAME_KEY, check, given, known_predicates, may_need_no_hunt

HUNTS_MAX = 10_000
"""Predicates that wait for their hunt, about 1 KiB each. Those beyond it are read from the log again in their
turn."""
HUNTED_BYTES_MAX = 1 << 20
"""Text of the predicates that wait for their hunt: as filters they are some 26 MiB."""


class Collector:
    """The dead of one stream. Guarded by the log's lock, except where it says otherwise."""

    def __init__(self, config: LogConfig) -> None:
        self._policy = config.policy
        self._age_us = None if config.policy.age_ms is None else config.policy.age_ms * 1000
        by_key = config.policy.by_key
        limit = config.index_keys_max
        self.keys = KeyIndex(limit, hunts=not by_key) if limit else None
        self._indexing = by_key
        """Keys are indexed from the first `same key` on: most streams never see one, and the index is most of
        what an append costs. What came before is hunted."""
        self.prefix = 0
        """Every event up to this number is dead."""
        self.newest = (0, -(1 << 63))
        """(number, time) of the newest event, where there is an age policy."""
        self._held = False
        self._marks: list[Array] = []
        self.marks_waiting = 0
        self.hunts: deque[Hunt] = deque()
        self._hunted_bytes = 0
        self.hunt_again_from: int | None = None
        """The first GC event that found no room among the hunts."""

    def forget(self, *, keys: bool) -> None:
        """What is remembered only to be faster; keys if so told."""
        known_predicates.clear()
        if keys and self.keys is not None:
            self.keys.forget_old()

    def wants(self, header: Header) -> bool:
        """Whether a batch with this header must be ingested with its columns."""
        return bool(
            header.flags & KINDS
            or (header.flags & KEYS and self._indexing)
            or self._age_us is not None
            or self._policy.keep_last is not None
        )

    def check(self, batch: Batch) -> None:
        """Refuses GC events without a predicate, or with one that does not parse."""
        check(given(batch))

    def ingest(self, batch: Batch) -> None:
        """Takes a numbered batch in stream order."""
        if not self.wants(batch.header) or not batch.count:
            return
        kinds, seqs = batch.kinds, batch.seqs()
        real = None if kinds is None else kinds != Kind.TOMBSTONE
        last = int(seqs[-1]) if real is None else int(seqs[real][-1]) if real.any() else 0
        if self._policy.keep_last is not None:
            self.prefix = max(self.prefix, last - self._policy.keep_last)
        if self._age_us is not None and last:
            self._note_newest(batch, real)
        same_key = special = None
        if kinds is not None and (kinds == Kind.GC).any():
            same_key, special = self._ingest_collectors(batch, kinds)
        keys = batch.keys()
        if keys is not None and self.keys is not None and self._indexing:
            collectors = (
                None if self._policy.by_key else np.zeros(batch.count, bool) if same_key is None else same_key
            )
            replaced = self.keys.replace(keys, seqs, collectors, special)
            self._mark(replaced.dead)
            if replaced.to_hunt:
                times = batch.times()
                for key, row in replaced.to_hunt:
                    self.hunt(Hunt(SAME_KEY, Context(int(seqs[row]), key, int(times[row]))))

    def _note_newest(self, batch: Batch, real: Array | None) -> None:
        times, seqs = batch.times(), batch.seqs()
        if real is not None:
            times, seqs = times[real], seqs[real]
        row = len(times) - 1 - int(np.argmax(times[::-1]))
        if int(times[row]) >= self.newest[1]:
            if self._held:
                self._put(np.array([self.newest[0]], np.uint64))
                self._held = False
            self.newest = (int(seqs[row]), int(times[row]))

    def _ingest_collectors(self, batch: Batch, kinds: Array) -> tuple[Array, Array]:
        """(rows whose predicate is exactly `same key`, rows with any other predicate)."""
        texts, rows = predicates(batch), np.flatnonzero(kinds == Kind.GC)
        same_key, special = np.zeros(batch.count, bool), np.zeros(batch.count, bool)
        if texts is None:
            special[rows] = True
            return same_key, special
        coded = texts.take(pa.array(rows)).dictionary_encode()
        codes = np.asarray(coded.indices.fill_null(-1))
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(coded.dictionary) + 1))
        seqs, times, keys = batch.seqs(), batch.times(), batch.keys()
        for code, text in enumerate(coded.dictionary.to_pylist()):
            if self._overflowing and not may_need_no_hunt(text):
                continue  # it is read from the log again
            try:
                predicate = known_predicates.parse(text)
            except FilterError:  # from a peer or an older log: it collects nothing, and is kept
                continue
            mine = rows[order[starts[code] : starts[code + 1]]]
            if predicate == SAME_KEY and self.keys is not None:
                same_key[mine] = True
                if not self._indexing:
                    self._indexing = True
                    self.keys.begin_late(int(seqs[0]))
                continue
            self._ingest_predicate(
                predicate,
                (Context(int(seqs[row]), _key(keys, row), int(times[row])) for row in mine.tolist()),
                int(seqs[mine[-1]]),
            )
        special[rows] = ~same_key[rows]
        return same_key, special

    def _ingest_predicate(self, predicate: Filter, contexts: Iterable[Context], last: int) -> None:
        """Of several GC events with one predicate, which the last one's number bounds as a prefix; each hunts
        by itself."""
        bounds = [prefix_of(conjunction, Context(last)) for conjunction in predicate.conjunctions]
        self.prefix = max([self.prefix, *(bound for bound in bounds if bound is not None)])
        if None in bounds:
            for context in contexts:
                self.hunt(Hunt(predicate, context))
                if self._overflowing:
                    return

    def hunt(self, hunt: Hunt) -> None:
        if self.hunt_again_from is not None:
            return
        size = len(hunt.predicate.text)
        if len(self.hunts) >= HUNTS_MAX or (self.hunts and self._hunted_bytes + size > HUNTED_BYTES_MAX):
            self.hunt_again_from = hunt.context.seq
        else:
            self.hunts.append(hunt)
            self._hunted_bytes += size

    def hunted(self, hunt: Hunt) -> None:
        """It has looked at everything that it had to."""
        self.hunts.remove(hunt)
        self._hunted_bytes -= len(hunt.predicate.text)

    @property
    def _overflowing(self) -> bool:
        return self.hunt_again_from is not None

    @property
    def hunting(self) -> bool:
        return bool(self.hunts) or self._overflowing

    def take_up(self, batches: Iterable[Batch], start: int, after: int, next_: int) -> bool:
        """Sends out the GC events from `start` to before `after`, which had found no room; whether there is
        room for more of them.

        Those that come behind `after` up to `next_` still have none.
        """
        self.hunt_again_from = None
        for batch in batches:
            self._hunt_rows(batch, start)
            if self._overflowing:
                return False
        if after < next_:
            self.hunt_again_from = after
        return after < next_

    def _hunt_rows(self, batch: Batch, start: int) -> None:
        kinds = batch.kinds
        texts = None if kinds is None or not (kinds == Kind.GC).any() else predicates(batch)
        if kinds is None or texts is None:
            return
        seqs, times, keys = batch.seqs(), batch.times(), batch.keys()
        for row in np.flatnonzero((kinds == Kind.GC) & (seqs >= np.uint64(start))).tolist():
            text = texts[row].as_py()
            if self._overflowing:
                return
            with suppress(FilterError):
                if text is not None:
                    key = b"" if keys is None else keys[row].as_py()
                    self.hunt(
                        Hunt(known_predicates.parse(text), Context(int(seqs[row]), key, int(times[row])))
                    )

    def _mark(self, dead: Array) -> None:
        if self._age_us is not None and len(dead):
            newest = dead == np.uint64(self.newest[0])
            if newest.any():
                self._held, dead = True, dead[~newest]
        self._put(dead)

    def _put(self, dead: Array) -> None:
        if len(dead):
            self._marks.append(dead)
            self.marks_waiting += len(dead)

    def mark(self, dead: Array) -> None:
        """Takes what a hunt found."""
        self._mark(dead)

    def take_marks(self) -> Array:
        """Numbers marked since the last call, in no order, without those in the prefix."""
        marks, self._marks, self.marks_waiting = self._marks, [], 0
        if not marks:
            return np.zeros(0, np.uint64)
        joined = np.concatenate(marks)
        return joined[joined > np.uint64(self.prefix)] if self.prefix else joined

    def marks(self) -> Array:
        """Those that nobody has taken yet, in no order; they stay."""
        return np.concatenate(self._marks) if self._marks else np.zeros(0, np.uint64)

    def age_cutoff_us(self, now_us: int | None = None) -> int | None:
        """Events up to which all are older than this are dead by the age policy. An event that is dated ahead
        of the clock makes the others no older than they are: it collects them when its time has come."""
        if self._age_us is None or not self.newest[0]:
            return None
        newest_us = self.newest[1] if now_us is None else min(self.newest[1], now_us)
        return newest_us - self._age_us

    def with_policy(self, predicate: Filter) -> Filter:
        """All that a GC event of this predicate collects: under a policy every event collects by the policy,
        too."""
        policy: list[list[Term]] = []
        if self._policy.by_key:
            policy.append([Term(SameKey())])
        if self._policy.keep_last is not None:
            policy.append([Term(KeepLast(self._policy.keep_last))])
        if self._age_us is not None:
            policy.append([Term(OlderThan(self._age_us))])
        return Filter([*predicate.conjunctions, *policy]) if policy else predicate

    def may_collect(self, batch: Batch) -> Array:
        """Rows that a predicate other than `same key` or a prefix may collect without more proof."""
        kinds = batch.kinds
        allowed = np.ones(batch.count, bool) if kinds is None else kinds == Kind.DATA
        keys = batch.keys()
        if self._policy.by_key and keys is not None:
            keyed = np.asarray(pa.compute.binary_length(keys)) > 0
            allowed = allowed & ~keyed
        return allowed


def _key(keys: pa.Array | None, row: int) -> bytes:
    return b"" if keys is None else keys[row].as_py()


def prefix_of(conjunction: tuple[Term, ...], context: Context) -> int | None:
    """The number up to which a conjunction of prefix tests alone collects everything; None for any other."""
    bound = context.seq - 1
    for term in conjunction:
        match term:
            case Term(UpTo(seq), False):
                bound = min(bound, seq)
            case Term(KeepLast(count), False):
                bound = min(bound, context.seq - count)
            case _:
                return None
    return max(bound, 0)
