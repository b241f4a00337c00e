"""Binary columns as text, a whole column at a time: one call encodes the bytes of all rows, and what it lacks
is then put between them."""

import binascii

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qanat.capture.base64_bytes import encode

_Offsets = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]
_PADDING = ord("=")
_PADS = pa.array([b"", b"\0", b"\0\0"], pa.binary())


def hexadecimal(values: pa.Array) -> pa.Array:
    """Two digits for each byte; null stays null."""
    offsets, data = _parts(values)
    return _strings(values, offsets * 2, binascii.hexlify(data.data))


def quoted_base64(values: pa.Array) -> pa.Array:
    """Base64 in double quotes, as JSON has it; null stays null."""
    digits = base64(values)
    quote, nothing = pa.scalar('"', digits.type), pa.scalar("", digits.type)
    return pc.binary_join_element_wise(quote, digits, quote, nothing)


def base64(values: pa.Array) -> pa.Array:
    """The digits alone; null stays null."""
    offsets, data = _parts(values)
    sizes = np.diff(offsets)
    padding = -sizes % 3
    ends = np.concatenate(([0], np.cumsum(sizes + padding)))
    if padding.any():  # each value by itself fills whole groups of three bytes
        data = _padded(offsets, data, sizes, padding)
    encoded = encode(data)
    written = ends // 3 * 4
    last = written[1:] - 1
    encoded[last[padding > 0]] = _PADDING
    encoded[last[padding > 1] - 1] = _PADDING
    return _strings(values, written, encoded)


def _padded(offsets: _Offsets, data: _Bytes, sizes: _Offsets, padding: _Offsets) -> _Bytes:
    """The same values with as many zeros behind each one."""
    count, width = len(sizes), int(sizes[0])
    if (sizes == width).all():
        whole = np.zeros((count, width + int(padding[0])), np.uint8)
        whole[:, :width] = data.reshape(count, width)
        return whole.reshape(-1)
    parts = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    values = pa.Array.from_buffers(pa.large_binary(), count, parts)
    pads = _PADS.take(pa.array(padding)).cast(pa.large_binary())
    joined = pc.binary_join_element_wise(values, pads, pa.scalar(b"", pa.large_binary()))
    return np.frombuffer(joined.buffers()[2], np.uint8)[: int((sizes + padding).sum())]


def _parts(values: pa.Array) -> tuple[_Offsets, _Bytes]:
    """Where each value begins and ends in the bytes, which have nothing else; a null has none."""
    if values.null_count:
        values = (
            values.cast(pa.binary()) if pa.types.is_fixed_size_binary(values.type) else values
        ).fill_null(b"")
    if not len(values):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    kind = values.type
    if pa.types.is_fixed_size_binary(kind):
        offsets = (np.arange(len(values) + 1) + values.offset) * kind.byte_width
        data = values.buffers()[1]
    else:
        width = np.int64 if pa.types.is_large_binary(kind) else np.int32
        offsets = np.frombuffer(values.buffers()[1], width)[values.offset : values.offset + len(values) + 1]
        data = values.buffers()[2]
    low, high = int(offsets[0]), int(offsets[-1])
    raw = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[low:high]
    return offsets.astype(np.int64) - low, raw


def _strings(like: pa.Array, offsets: _Offsets, data: bytes | _Bytes) -> pa.Array:
    validity = None
    if like.null_count:
        validity = pa.py_buffer(np.packbits(np.asarray(like.is_valid()), bitorder="little"))
    large = int(offsets[-1]) >= 1 << 31
    places = pa.py_buffer(offsets if large else offsets.astype(np.int32))
    kind = pa.large_string() if large else pa.string()
    return pa.Array.from_buffers(kind, len(like), [validity, places, pa.py_buffer(data)])
