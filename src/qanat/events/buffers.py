"""Memory that is used again once nobody looks at it."""


def unseen(buffer: bytearray) -> bool:
    """Whether no view of the buffer is left: CPython refuses to resize a bytearray that is exported."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True
