"""Binary columns as text, a whole column at a time: one call encodes the bytes of all rows, and what it lacks is then put between them."""

import binascii

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Offsets = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]
_QUOTE, _PADDING = ord('"'), ord("=")


def hexadecimal(values: pa.Array) -> pa.Array:
    """Two digits for each byte; null stays null."""
    offsets, data = _parts(values)
    return _strings(values, offsets * 2, binascii.hexlify(data.data))


def quoted_base64(values: pa.Array) -> pa.Array:
    """Base64 in double quotes, as JSON has it; null stays null."""
    offsets, data = _parts(values)
    sizes = np.diff(offsets)
    padding = -sizes % 3
    ends = np.concatenate(([0], np.cumsum(sizes + padding)))
    if padding.any():  # each value by itself fills whole groups of three bytes
        source, data = data, np.zeros(int(ends[-1]), np.uint8)
        _put(data, ends, 0, sizes, source)
    encoded = np.frombuffer(binascii.b2a_base64(data.data, newline=False), np.uint8)
    written = ends // 3 * 4
    bounds = written + 2 * np.arange(len(written))
    text = np.full(int(bounds[-1]), _QUOTE, np.uint8)
    _put(text, bounds, 1, np.diff(written), encoded)
    last = bounds[1:] - 2
    text[last[padding > 0]] = _PADDING
    text[last[padding > 1] - 1] = _PADDING
    return _strings(values, bounds, text)


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


def _put(target: _Bytes, bounds: _Offsets, lead: int, sizes: _Offsets, source: _Bytes) -> None:
    """Puts the bytes of all values where they go: each one `lead` bytes behind the beginning of its own bounds."""
    width = int(sizes[0]) if len(sizes) else 0
    if width and (sizes == width).all() and int(bounds[-1]) == len(sizes) * int(bounds[1]):
        target.reshape(len(sizes), -1)[:, lead : lead + width] = source.reshape(len(sizes), width)
        return
    shifts = bounds[:-1] + lead - (np.cumsum(sizes) - sizes)
    target[np.arange(len(source)) + np.repeat(shifts, sizes)] = source


def _strings(like: pa.Array, offsets: _Offsets, data: bytes | _Bytes) -> pa.Array:
    validity = None
    if like.null_count:
        validity = pa.py_buffer(np.packbits(np.asarray(like.is_valid()), bitorder="little"))
    large = int(offsets[-1]) >= 1 << 31
    places = pa.py_buffer(offsets if large else offsets.astype(np.int32))
    kind = pa.large_string() if large else pa.string()
    return pa.Array.from_buffers(kind, len(like), [validity, places, pa.py_buffer(data)])
