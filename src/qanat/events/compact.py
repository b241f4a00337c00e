"""Batches that are kept for long, and the memory they hold."""

from qanat.events.batch import Batch


def compact(batch: Batch) -> Batch:
    """The same batch, copied if it is a small part of a larger buffer, which it would otherwise keep in
    memory.

    So batches kept for later take at most twice the bytes that they count.
    """
    if not batch.is_whole:
        return Batch.decode(batch.encode(), verify=False)
    data = batch.encode()
    held = data.obj
    if isinstance(held, (bytes, bytearray, memoryview)) and 2 * data.nbytes < len(held):
        return Batch.decode(bytes(data), verify=False)
    return batch
