"""Which of very many intervals hold a point, for many points at once.

A segment tree laid out in flat arrays. Each interval is cut into at most 2·log2(n) nodes of the tree, each
node standing for a block of 2^level neighbouring places; a point lies in one node per level, and the
intervals filed there are those that hold it. So a batch of points costs one array operation per level, plus
its answers: nothing is compared that does not match, and memory is O(n log n) whatever the intervals' widths.
"""

import numpy as np

from qanat.events.filters import numbers
from qanat.events.filters.numbers import Array, Numbers


class SegmentTree:
    """Intervals [low, high) of places 0..places-1, each with an item; `items` holds them grouped by node."""

    def __init__(self, low: Array, high: Array, items: Array, places: int) -> None:
        self.leaves = 1 << max(0, (places - 1).bit_length())
        nodes, owners, self.levels, level = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [], 0
        # From the leaves up: an end that its parent would overshoot is filed by itself, the rest moves up.
        left, right, who = low + self.leaves, high + self.leaves, np.arange(len(items))
        while len(who):
            left_alone, right_alone = (left & 1).astype(bool), (right & 1).astype(bool)
            nodes += [left[left_alone], right[right_alone] - 1]
            owners += [who[left_alone], who[right_alone]]
            if left_alone.any() or right_alone.any():
                self.levels.append(level)
            left, right, level = (left + left_alone) >> 1, (right - right_alone) >> 1, level + 1
            more = left < right
            left, right, who = left[more], right[more], who[more]
        node = np.concatenate(nodes)
        order = np.argsort(node, kind="stable")
        self.items = items[np.concatenate(owners)[order]]
        self.bounds = np.searchsorted(node[order], np.arange(2 * self.leaves + 1))

    def ranges(self, places: Array) -> tuple[Array, Array, Array]:
        """(point, start, stop): `items[start:stop]` are intervals that hold `places[point]`. A point may have
        many."""
        points, starts, stops = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for level in self.levels:
            node = (places + self.leaves) >> level
            start, stop = self.bounds[node], self.bounds[node + 1]
            hit = np.flatnonzero(start < stop)
            points.append(hit)
            starts.append(start[hit])
            stops.append(stop[hit])
        return np.concatenate(points), np.concatenate(starts), np.concatenate(stops)


class Stabbing:
    """Intervals of numbers, each in a group: which intervals of its group hold a number?

    The m ends of the intervals cut the numbers into 2m + 1 elementary places: before, at and after each end.
    Group and place together are one coordinate, so one tree serves all groups.
    """

    def __init__(self, groups: Array, low: Numbers, high: Numbers, items: Array) -> None:
        ends, lo = numbers.join([low, high])
        finite = np.isfinite(ends)
        keys = numbers.sortable(Numbers(ends[finite], None if lo is None else lo[finite]))[0]
        self._ends = np.unique(keys)
        self._width = 2 * len(self._ends) + 1
        low_at = groups * self._width + np.where(np.isinf(low.hi), 0, self._place(low))
        high_at = groups * self._width + np.where(np.isinf(high.hi), self._width, self._place(high) + 1)
        self._cuts = np.unique(np.concatenate([low_at, high_at]))
        first, last = np.searchsorted(self._cuts, low_at), np.searchsorted(self._cuts, high_at)
        self.tree = SegmentTree(first, last, items, len(self._cuts))

    def ranges(self, groups: Array, points: Numbers) -> tuple[Array, Array, Array]:
        """As `SegmentTree.ranges`; no point may be NaN."""
        coordinate = groups * self._width + self._place(points)
        place = np.searchsorted(self._cuts, coordinate, side="right") - 1
        # What lies before the first cut is in no interval, and neither is what lies after the last one.
        inside = np.flatnonzero((place >= 0) & (place < len(self._cuts) - 1))
        point, start, stop = self.tree.ranges(place[inside])
        return inside[point], start, stop

    def _place(self, points: Numbers) -> Array:
        (keys,) = numbers.sortable(points)
        ends = self._ends
        if keys.dtype != ends.dtype:  # one side needs the exact form: lift the other
            keys, ends = keys.astype(np.complex128), ends.astype(np.complex128)
        at = np.searchsorted(ends, keys)
        exact = np.zeros(len(keys), bool)
        known = at < len(ends)
        exact[known] = ends[at[known]] == keys[known]
        return 2 * at + exact
