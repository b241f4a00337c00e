"""Framing and codec: bytes in, typed values out, no I/O."""
