"""Filters that were parsed and are likely to come again, as many as fit into a number of bytes."""

import threading
from collections import OrderedDict

from qanat.events.filters.model import Filter
from qanat.events.filters.parser import parse

PARSED_PER_BYTE = 26
"""Memory that a parsed filter takes for each byte of its text, as measured with many alternatives."""


class KnownFilters:
    """Parses a text once, while it is remembered; the texts of all that are remembered have at most
    `limit_bytes`. For any thread."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._known: OrderedDict[str, Filter] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str) -> Filter | None:
        with self._lock:
            found = self._known.get(text)
            if found is not None:
                self._known.move_to_end(text)
            return found

    def parse(self, text: str) -> Filter:
        """Raises `FilterError`."""
        found = self.get(text)
        if found is None:
            found = parse(text)
            self.put(text, found)
        return found

    def put(self, text: str, parsed: Filter) -> None:
        size = len(text) + len(parsed.text)
        with self._lock:
            if size > self.limit_bytes or text in self._known:
                return
            self._known[text] = parsed
            self.bytes += size
            while self.bytes > self.limit_bytes:
                old, gone = self._known.popitem(last=False)
                self.bytes -= len(old) + len(gone.text)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()
            self.bytes = 0
