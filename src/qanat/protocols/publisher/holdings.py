"""What lies in the coordinator: of a copy, what it says of itself; of a part of an application, its owner and
its datamarkers, in one node."""

import zlib

import msgspec

from qanat.events.errors import RemoteError
from qanat.events.position import Position
from qanat.protocols.publisher.records import Kept, KeptFlow

NODE_BYTES = 990_000
"""The largest record; of what a node holds, 1,000,000 bytes, the rest is for its path, and for the name of
whoever takes the part over."""
CROWDED_BYTES = 800_000
"""With a larger one no more shards are taken: what is left is for datamarkers that come to lie farther
apart."""
PACKED_FROM = 1_000
"""Shards from which on a record is packed."""
_PACKED = 0x78
"""How zlib's format begins; MessagePack's maps begin otherwise."""
_UNPACKED_MAX = 256 << 20


class Registration(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a copy says of itself in its ephemeral node: who it is, and what its log has."""

    address: str
    oldest: Position
    """Everything after it."""
    newest: Position
    readable: bool = True
    """Its log can be read at all; one whose datastore is away, while it is here itself, is worth less than
    any other."""
    division: str = ""
    """How it makes shards of updates, and parts of shards; empty: it does not say."""


class Holding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of an application."""

    owner: str
    """One life of a copy, as its ephemeral node is called."""
    clean: bool
    """It was given to the owner by the one before, after all its subscribers were done. Else somebody may
    still work on what that one sent."""
    kept: Kept
    outlasts_us: int = 0
    """So long, on any clock, subscribers may still be at work after the owner has gone; on record before any
    lease that may last as long."""
    division: str = ""
    """By which shards, in which parts, its datamarkers count: to whoever divides otherwise they would say
    something else."""


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """Flows that are at one place and know the same lie together: most of many are."""

    holding: Holding
    flows: tuple[tuple[KeptFlow, tuple[str, ...]], ...]


_encode = msgspec.msgpack.Encoder().encode
encode_registration, decode_registration = _encode, msgspec.msgpack.Decoder(Registration).decode
_decode, _decode_packed = msgspec.msgpack.Decoder(Holding).decode, msgspec.msgpack.Decoder(_Packed).decode


def encode_holding(holding: Holding) -> bytes:
    kept = holding.kept
    if len(kept.flows) < PACKED_FROM:
        return _encode(holding)
    together: dict[KeptFlow, list[str]] = {}
    for shard, flow in kept.flows.items():
        together.setdefault(flow, []).append(shard)
    rest = msgspec.structs.replace(holding, kept=msgspec.structs.replace(kept, flows={}))
    flows = tuple((flow, tuple(shards)) for flow, shards in together.items())
    return zlib.compress(_encode(_Packed(rest, flows)), 1)


def decode_holding(data: bytes) -> Holding:
    if data[:1] != bytes([_PACKED]):
        return _decode(data)
    packed = _decode_packed(_unpacked(data))
    flows = {shard: flow for flow, shards in packed.flows for shard in shards}
    return msgspec.structs.replace(
        packed.holding, kept=msgspec.structs.replace(packed.holding.kept, flows=flows)
    )


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(data, _UNPACKED_MAX)
    if not unpacking.eof:
        raise RemoteError("a part's record in the coordinator is cut short, or far too large")
    return found


def divided_otherwise(application: str, part: int, recorded: str, here: str) -> str:
    """For people: why a copy does not serve a part."""
    return (
        f"part {part} of {application} is on record in the coordinator with {recorded}, and this copy has"
        f" {here}: it does not serve it. Give all copies the same log.sharding and publisher.parts; to change"
        " them, give the dataset another name (?dataset= in log.url) and each publisher another folder"
        " (node.data), where applications begin anew"
    )


def too_many(application: str, part: int, shards: int, *, written: bool) -> str:
    """For people: why a part shall have no more of them, and what can be done. `written`: its record still
    fits."""
    what = (
        "as many as its record in the coordinator has room for: new ones wait"
        if written
        else (
            "and the coordinator has no room for their record: their datamarkers are not written, so whoever"
            " takes them over sends again what came since"
        )
    )
    return (
        f"part {part} of {application} has {shards:,} shards, {what}. Let log.sharding make fewer of them, or"
        " set publisher.parts higher, in a dataset of another name (?dataset= in log.url), where"
        " applications begin anew"
    )
