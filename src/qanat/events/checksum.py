"""CRC32C (Castagnoli) over any contiguous buffer, in hardware where there is any: the one checksum of the
house."""

from crc32c import crc32c

__all__ = ["crc32c"]
