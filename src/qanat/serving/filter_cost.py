"""What filters cost at worst, before they are asked: so that what takes long is done beside the event loop,
and nobody else waits for it.

RE2 never goes back, but a pattern whose states are too many to be remembered is followed instruction by
instruction: 0.2 ns for each of them and each byte. Small patterns have few states, and cost as much as ten
instructions.
"""

from collections.abc import Iterable

from qanat.events.batch import Batch
from qanat.events.filters import Filter

LONG_TEXT = 2_048
"""Characters of filters that are parsed at once: some 5 ms."""
_GROUPS = 6
"""So many parentheses unfold to few alternatives; ten of two each to a thousand, which take 35 ms however
short the text is."""
AT_ONCE = 50_000_000
"""Instructions: 10 ms."""
_FEW_STATES, _SMALL = 200, 10
_ROW = 250
"""Of a row that passes: it is copied."""
_ALTERNATIVE, _ALTERNATIVE_ROW = 50_000, 25
"""Of an alternative of a filter that is asked alone, for each batch and each of its rows."""
_ALTERNATIVES = 256
"""More are not put into an index with others': it would take long to plan."""


def is_long(texts: Iterable[str]) -> bool:
    """Whether parsing all of them takes too long to be done at once."""
    size = groups = 0
    for text in texts:
        size += len(text) + 64
        groups = max(groups, text.count("("))
    return size > LONG_TEXT + 64 or groups > _GROUPS


def per_byte(where: Filter) -> int:
    """Instructions for each byte of text that its patterns search."""
    if not where.patterns_size:
        return 0
    return _SMALL if where.patterns_size <= _FEW_STATES else where.patterns_size


def is_heavy(where: Filter) -> bool:
    """Whether it is asked by itself always, and never with others'."""
    return (
        per_byte(where) > _SMALL or len(where.conjunctions) > _ALTERNATIVES or len(where.text) > 4 * LONG_TEXT
    )


def searched_bytes(batches: Iterable[Batch]) -> int:
    """What patterns may search in them."""
    return sum(_text_bytes(batch) for batch in batches)


def cost(where: Filter, batches: list[Batch]) -> int:
    """Instructions that it takes at worst to ask it about these, alone."""
    rows = sum(batch.count for batch in batches)
    alternatives = max(1, len(where.conjunctions))
    return (
        per_byte(where) * searched_bytes(batches)
        + alternatives * (_ALTERNATIVE * len(batches) + _ALTERNATIVE_ROW * rows)
        + _ROW * rows
    )


def _text_bytes(batch: Batch) -> int:
    header = batch.header
    return header.attribute_bytes + header.key_bytes + header.source_bytes
