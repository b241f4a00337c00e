"""A shortened journal says what the long one said."""

import random

from qanat.protocols.chain.eras import Eras
from qanat.protocols.chain.messages import Era
from qanat.protocols.chain.records import Forgot, Joined, Learned, Record, Reigned, compact, decode, encode


def meaning(saved: list[bytes]) -> tuple[bool, tuple[Era, ...], dict[int, Learned]]:
    """What a replica takes from its journal."""
    eras, learned = Eras(10), {}
    for each in saved:
        match decode(each):
            case Reigned(known):
                eras.adopt(known)
            case Learned() as record:
                learned[record.stream] = record
            case Forgot(stream):
                learned.pop(stream, None)
    return bool(saved), eras.all, learned


def test_compacting_keeps_the_meaning_and_little_else() -> None:
    rng = random.Random(1)
    saved: list[bytes] = []
    for epoch in range(1, 200):
        records: list[Record] = [
            Joined(epoch),
            Reigned(tuple(Era(e, "a", ((1, e),)) for e in range(max(1, epoch - 9), epoch + 1))),
            Learned(rng.randrange(4), epoch, epoch, {"s": (epoch, 0)}),
            Forgot(rng.randrange(4)),
        ]
        saved.append(encode(rng.choice(records)))
        shorter = compact(saved)
        assert meaning(shorter) == meaning(saved)
        assert len(shorter) <= 6 and compact(shorter) == shorter
    assert compact([]) == []
