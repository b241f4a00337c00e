"""Columns in, one batch's bytes out: the writing half of `layout`."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qanat.events import attributes as attribute_section
from qanat.events import layout
from qanat.events.attributes import Value
from qanat.events.checksum import crc32c
from qanat.events.errors import MalformedBatch
from qanat.events.layout import (
    CELLS_PER_BYTE,
    FRAME_LIMIT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    NAMES_LIMIT,
    NUMBERS_END,
    ROWS_LIMIT,
    VERSION,
    padded,
)

_TEXTS = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
    pa.types.is_binary_view,
    pa.types.is_string_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_null,
)
Array = npt.NDArray[Any]
Blobs = Any
"""A column of byte strings: list of bytes, Arrow binary (any width) or string array, or 2-D uint8 ndarray."""


_FEW = 16
_ONE_SOURCE_BYTES = 260
"""A source section of one name is shorter than this."""
_FEW_ROWS = 256
"""So few may leave out all that they like: a batch has 80 bytes at least, and a column of attributes 33."""
_APART = 32 * 1024
"""Payload bytes from which they stay where they are, beside the encoded rest, instead of being copied behind
it."""


class Strings(NamedTuple):
    """A column of byte strings, as it will be laid out: one width, or offsets."""

    width: int | None
    offsets: Array | None
    data: Any
    count: int  # type: ignore[assignment]  # shadows tuple.count

    @property
    def bytes(self) -> int:
        return len(self.data)


def strings(values: Blobs, what: str) -> Strings:
    """Any of the accepted forms, without a copy of the bytes where Arrow or NumPy has them in one piece."""
    if isinstance(values, np.ndarray):
        check_strings(values, what)
        flat = np.ascontiguousarray(values).reshape(-1)
        return Strings(values.shape[1], None, memoryview(flat.data), len(values))
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, list) and len(values) <= _FEW:
        return _few(values, what)
    if not isinstance(values, pa.Array):
        try:
            values = pa.array(values, pa.binary())
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            raise MalformedBatch(f"{what} must be bytes: {error}") from error
    if pa.types.is_fixed_size_binary(values.type) and not values.null_count:
        width = values.type.byte_width
        data = memoryview(values.buffers()[1])[values.offset * width : (values.offset + len(values)) * width]
        return Strings(width, None, data, len(values))
    if values.type not in (pa.binary(), pa.string()):
        try:
            values = values.cast(pa.binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise MalformedBatch(f"{what} must be bytes or text, not {values.type}") from error
    if values.null_count:
        values = values.fill_null(b"" if values.type == pa.binary() else "")
    return _packed(values)


def check_strings(values: Any, what: str) -> None:
    """Refuses an array of another type than `strings` takes."""
    if isinstance(values, np.ndarray):
        if values.dtype != np.uint8 or values.ndim != 2:
            raise MalformedBatch(
                f"{what} as an array must be uint8 with 2 dimensions, not {values.dtype} {values.shape}"
            )
        return
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if not any(of(kind) for of in _TEXTS):
        raise MalformedBatch(f"{what} must be bytes or text, not {values.type}")


def _few(values: list[Any], what: str) -> Strings:
    """A handful of bytes objects: Arrow's own conversion costs more to start than this costs in all."""
    try:
        data = values[0] if len(values) == 1 and isinstance(values[0], bytes) else b"".join(values)
        sizes = list(map(len, values))
    except TypeError:
        try:
            return _packed(pa.array(values, pa.binary()).fill_null(b""))
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            raise MalformedBatch(f"{what} must be bytes: {error}") from error
    if not sizes:
        return Strings(0, None, b"", 0)
    if sizes.count(sizes[0]) == len(sizes):
        return Strings(sizes[0], None, data, len(sizes))
    return Strings(None, np.cumsum([0, *sizes], dtype="<u4"), data, len(sizes))


def _packed(values: pa.Array) -> Strings:
    count = len(values)
    if not count:
        return Strings(0, None, b"", 0)
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[values.offset : values.offset + count + 1]
    low, high = int(offsets[0]), int(offsets[-1])
    data = memoryview(data_buffer)[low:high] if data_buffer is not None else memoryview(b"")
    width, rest = divmod(high - low, count)
    if not rest and (np.diff(offsets) == width).all():
        return Strings(width, None, data, count)
    return Strings(None, (offsets - low).astype("<u4"), data, count)


def uniform(width: int, count: int) -> Strings:
    """A column of `count` byte strings of one width whose bytes are not there: a ghost's payloads."""
    return Strings(width, None, b"", count)


class Draft(NamedTuple):
    """Everything a batch is made of; columns that are None are left out."""

    stream: int
    payloads: Strings
    first: int = 0
    span: int | None = None
    time_us: int = 0
    times: Array | None = None
    kinds: Array | None = None
    seqs: Array | None = None
    ranges: Array | None = None
    keys: Strings | None = None
    attributes: Mapping[str, list[pa.Array]] | None = None
    sources: Sequence[str] = ()
    source_codes: Array | None = None
    position: int | None = None
    positions: tuple[Array, Array] | None = None
    ghost: bool = False


def prepare(
    stream: int,
    payloads: Blobs,
    *,
    first: int = 0,
    keys: Blobs | None = None,
    time_us: int = 0,
    times: Any = None,
    kinds: Any = None,
    attributes: Sequence[Mapping[str, Value] | None] | Mapping[str, Any] | None = None,
    seqs: Any = None,
    ranges: Any = None,
    span: int | None = None,
    source: str | None = None,
    position: int | None = None,
    positions: tuple[Any, Any] | None = None,
    ghost: bool = False,
) -> Draft:
    """Columns in any of the forms that are accepted, made ready to be laid out.

    `payloads` and `keys`: list of bytes, Arrow binary array, or 2-D uint8 array. `attributes`: a dict per
    event, or a dict of Arrow arrays. `source` names the one ordered writer of these rows; `position` is the
    sequence of row 0 where its numbering is dense, `positions` are (sequences, indexes) where it is not.
    `seqs` (with `span` if rows are missing at the end) for a batch that has fewer rows than sequence numbers.
    For a `ghost`, `payloads` is (count, width): sizes without bytes.
    """
    column = uniform(payloads[1], payloads[0]) if ghost else strings(payloads, "payloads")
    named: Mapping[str, Any] | None = None
    if attributes:
        named = attributes if isinstance(attributes, Mapping) else attribute_section.from_rows(attributes)
    kind_column = None if kinds is None else np.asarray(kinds, np.uint8)
    seq_column = None if seqs is None else np.asarray(seqs, np.uint64)
    if seq_column is not None and span is None:
        span = int(seq_column[-1]) - first + 1 if len(seq_column) else 0
    return Draft(
        stream=stream,
        payloads=column,
        first=first,
        span=span,
        time_us=time_us,
        times=None if times is None else np.asarray(times, np.int64),
        kinds=kind_column if kind_column is not None and kind_column.any() else None,
        seqs=None if seq_column is not None and span == len(seq_column) == column.count else seq_column,
        ranges=None if ranges is None else np.asarray(ranges, np.uint64),
        keys=None if keys is None else strings(keys, "keys"),
        attributes={k: v if isinstance(v, list) else [v] for k, v in named.items()} if named else None,
        sources=() if source is None else (source,),
        position=position,
        positions=positions,
        ghost=ghost,
    )


def encode(draft: Draft) -> bytearray:
    """The bytes; refuses columns of different lengths and batches over the limits."""
    head, *rest = encode_parts(draft, apart=FRAME_LIMIT + 1)
    assert not rest
    return head


def encode_parts(draft: Draft, apart: int = _APART) -> tuple[bytearray, *tuple[memoryview, ...]]:
    """The bytes in pieces that follow each other: header and columns, then large payloads as they lie, not
    copied.

    The caller sends them before anyone changes the payloads' own memory.
    """
    draft = _with_used_sources(draft)
    payloads, keys = draft.payloads, draft.keys
    n = payloads.count
    span = n if draft.span is None else draft.span
    if n > ROWS_LIMIT:
        raise MalformedBatch(f"{n} events in one batch; at most {ROWS_LIMIT}: publish them in parts")
    if n > span:
        raise MalformedBatch(f"{n} rows cannot cover {span} sequence numbers")
    flags = 0
    outside = memoryview(b"")
    row = "<u8" if layout.row_width(span) == 8 else "<u4"
    parts: list[Any] = []

    def column(flag: int, values: Array | None, dtype: str, what: str) -> None:
        nonlocal flags
        if values is not None:
            if len(values) != n:
                raise MalformedBatch(f"{len(values)} {what} for {n} events")
            flags |= flag
            parts.append(np.ascontiguousarray(values, dtype=dtype))

    column(layout.KINDS, draft.kinds, "u1", "kinds")
    column(
        layout.SEQS,
        None if draft.seqs is None else draft.seqs - np.uint64(draft.first),
        row,
        "sequence numbers",
    )
    column(layout.RANGES, draft.ranges, row, "ranges")
    column(layout.TIMES, draft.times, "<i8", "times")
    if keys is not None and keys.bytes:
        if keys.count != n:
            raise MalformedBatch(f"{keys.count} keys for {n} events")
        flags |= layout.KEYS | (layout.KEYS_FIXED if keys.offsets is None else 0)
        parts += [keys.data] if keys.offsets is None else [keys.offsets, keys.data]
    source_section = _source_section(draft.sources)
    if source_section:
        parts.append(source_section)
    column(layout.SOURCE_CODES, draft.source_codes, "<u2", "source codes")
    if draft.positions is not None:
        column(layout.POSITIONS, draft.positions[0], "<u8", "positions")
        column(layout.POSITIONS, draft.positions[1], "<u4", "positions")
    elif draft.position is not None:
        if not 0 <= draft.position <= NUMBERS_END - n:
            raise MalformedBatch(f"dense positions are 0 to 2^63, not {draft.position} and {n} from there")
        flags |= layout.POSITIONS_DENSE
    section = attribute_section.encode(draft.attributes, n) if draft.attributes else b""
    if n > _FEW_ROWS and not draft.ghost:
        payloads, section = _in_proportion(draft, payloads, section, sum(map(_size, parts)))
    if section:
        parts.append(section)
    if payloads.offsets is None:
        flags |= layout.PAYLOADS_FIXED
    else:
        parts.append(payloads.offsets)
    payload_bytes = (payloads.width or 0) * n if payloads.offsets is None else int(payloads.offsets[-1])
    if draft.ghost:
        flags |= layout.GHOST
    elif len(payloads.data) < apart:
        parts.append(payloads.data)
    else:
        outside = memoryview(payloads.data).cast("B")

    inside = HEADER_BYTES + sum(map(_size, parts))
    size = inside + padded(len(outside))
    if size > FRAME_LIMIT:
        raise MalformedBatch(
            f"a batch of {size} bytes is over the limit of {FRAME_LIMIT}: publish it in parts"
        )
    data = bytearray(inside)
    view = memoryview(data)
    at = HEADER_BYTES
    for part in parts:
        flat = memoryview(part).cast("B") if memoryview(part).nbytes else memoryview(b"")
        view[at : at + len(flat)] = flat
        at += padded(len(flat))
    rest = (outside, memoryview(bytes(padded(len(outside)) - len(outside)))) if len(outside) else ()
    body_crc = crc32c(view[HEADER_BYTES:])
    for part in rest:
        body_crc = crc32c(part, body_crc)
    HEADER.pack_into(
        data, 0, MAGIC, 0, VERSION, flags, size, draft.stream, draft.first, span, n, body_crc, draft.time_us,
        payload_bytes, keys.bytes if keys is not None else 0, len(source_section), len(section),
        draft.position or 0,
    )  # fmt: skip
    layout.seal_header(data)
    return (data, *(part for part in rest if len(part)))


def _size(part: Any) -> int:
    return padded(memoryview(part).nbytes)


def _in_proportion(draft: Draft, payloads: Strings, section: bytes, size: int) -> tuple[Strings, bytes]:
    """Payloads and attributes, written out where they would leave out more cells than the batch has bytes
    for."""
    n = payloads.count
    constants = attribute_section.constants(memoryview(section)) if section else 0
    empty = payloads.offsets is None and not payloads.width
    size += HEADER_BYTES + len(section) + padded(payloads.bytes)
    if n * (constants + empty) <= CELLS_PER_BYTE * size:
        return payloads, section
    if empty:
        payloads = Strings(None, np.zeros(n + 1, "<u4"), b"", n)
    if constants * n > FRAME_LIMIT:
        raise MalformedBatch(
            f"{constants} attributes that are the same in all of {n} events are over the limit of a batch:"
            " publish it in parts"
        )
    if constants and draft.attributes:
        section = attribute_section.encode(draft.attributes, n, written_out=True)
    return payloads, section


def _with_used_sources(draft: Draft) -> Draft:
    """Few rows of a batch with many sources bring along those alone that they are of."""
    if draft.source_codes is None or len(draft.sources) <= draft.payloads.count:
        return draft
    used, codes = np.unique(draft.source_codes, return_inverse=True)
    names = [draft.sources[code] for code in used.tolist()]
    return draft._replace(sources=names, source_codes=codes if len(names) > 1 else None)


def _source_section(names: Sequence[str]) -> bytes:
    if not names:
        return b""
    encoded = [name.encode() for name in names]
    if len(encoded) > 0xFFFF or any(not 0 < len(name) <= 255 for name in encoded):
        raise MalformedBatch("a source's name has 1 to 255 bytes, and a batch at most 65,535 sources")
    body = b"".join([len(name).to_bytes(2, "little") + name for name in encoded])
    if len(body) + 2 > NAMES_LIMIT:
        raise MalformedBatch(
            f"the names of {len(names)} sources take {len(body)} bytes; at most {NAMES_LIMIT}"
        )
    return len(encoded).to_bytes(2, "little") + body


def decode_sources(section: memoryview) -> list[str]:
    """The names of a source section, checked to fill it exactly."""
    if len(section) < _ONE_SOURCE_BYTES:
        one = _one_source(bytes(section))
        if one is not None:
            return [one]
    names, at = [], 2
    if not 2 <= len(section) <= NAMES_LIMIT:
        raise MalformedBatch(f"a source section of {len(section)} bytes is outside 2..{NAMES_LIMIT}")
    for _ in range(int.from_bytes(section[:2], "little")):
        size = int.from_bytes(section[at : at + 2], "little")
        name = section[at + 2 : at + 2 + size]
        if len(name) != size or not 0 < size <= 255:
            raise MalformedBatch("the source section is cut short")
        names.append(_source_name(name))
        at += 2 + size
    if at != len(section) or not names or len(set(names)) != len(names):
        raise MalformedBatch("the source section has bytes left over, no name, or one twice")
    return names


@lru_cache(1024)
def _one_source(section: bytes) -> str | None:
    """The name in a section of one, as nearly all are: the same few again and again."""
    one = section[:2] == b"\1\0" and len(section) > 4 and section[2] == len(section) - 4 and not section[3]
    return _source_name(section[4:]) if one else None


def _source_name(name: memoryview | bytes) -> str:
    try:
        return str(name, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBatch("a source's name is not UTF-8") from error
