"""Asking servers, and ordering of them: making, changing, removing and describing streams."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import UNSET, Meta, UnsetType

from qanat.client.errors import OrderRefused, RequestRefused, Unavailable, request_refused
from qanat.events import arguments
from qanat.events.errors import WrongArgument

if TYPE_CHECKING:
    from qanat.client.client import AsyncClient

_WRONG_WORDS = frozenset(("bad_settings", "bad_request"))
"""Codes that say that the order itself cannot be; all others are about what is there."""
_SOON_S, _TIMES = 0.05, 40
"""How often a description is asked for again, of a server that has just given another one."""


class KeptAs(TypedDict, total=False):
    """How a stream is kept, as in `[log]` of a server's file. None is the default."""

    mode: Literal["always", "interval", "memory"] | None
    """Its durability."""
    interval_ms: int | None
    policy: Mapping[str, Any] | msgspec.Struct | None
    """What it collects by itself: of a mapping (`{"keep_last": 1000}`) what is not named stays."""
    indexed: tuple[str, ...] | list[str] | None
    """Said when a stream is made."""
    retain_bytes: int | None
    retain_age_ms: int | None
    rewrite_dead_fraction: float | None


_Positive = Annotated[int, Meta(ge=1, le=1 << 60)] | UnsetType | None


class _Policy(msgspec.Struct, forbid_unknown_fields=True):
    by_key: bool | UnsetType | None = UNSET
    keep_last: _Positive = UNSET
    age_ms: _Positive = UNSET


class _KeptAs(msgspec.Struct, forbid_unknown_fields=True):
    """The same, checked at the call; the server knows narrower limits."""

    mode: Literal["always", "interval", "memory"] | UnsetType | None = UNSET
    interval_ms: _Positive = UNSET
    policy: _Policy | UnsetType | None = UNSET
    indexed: tuple[str, ...] | UnsetType | None = UNSET
    retain_bytes: Annotated[int, Meta(ge=65_536, le=1 << 60)] | UnsetType | None = UNSET
    retain_age_ms: _Positive = UNSET
    rewrite_dead_fraction: Annotated[float, Meta(ge=0.01, le=1)] | UnsetType | None = UNSET


async def asked(client: "AsyncClient", what: str, stream: str) -> Any:
    """Asking again changes nothing at a server, so a broken connection is none of the caller's business."""
    arguments.name("what", what)
    arguments.text("stream", stream)
    while True:
        try:
            return await _told(client, what, stream)
        except Unavailable:
            if client.error is not None:
                raise


async def ordered(
    client: "AsyncClient", what: str, stream: str, kept_as: Mapping[str, Any]
) -> dict[str, Any]:
    """An order is given once: if the connection breaks before its answer (`Unavailable`), nobody knows
    whether it was carried out."""
    arguments.name("stream", stream)
    try:
        settings = msgspec.json.encode(msgspec.convert(msgspec.to_builtins(kept_as), _KeptAs))
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
        raise WrongArgument(f"how {stream!r} is to be kept: {error}") from error
    try:
        return dict(await _told(client, what, stream, settings=settings if kept_as else b""))
    except RequestRefused as error:
        if error.code in _WRONG_WORDS:
            raise
        raise OrderRefused(error.code, str(error)) from None


async def described(client: "AsyncClient", stream: str, start: int) -> dict[str, Any]:
    arguments.name("stream", stream)
    arguments.whole("start", start, 1)
    for _ in range(_TIMES):
        try:
            return dict(await _told(client, "describe", stream, start))
        except RequestRefused as error:
            if error.code != "too_soon":
                raise
        await asyncio.sleep(_SOON_S)
    return dict(await _told(client, "describe", stream, start))


async def _told(client: "AsyncClient", what: str, stream: str, start: int = 1, settings: bytes = b"") -> Any:
    """Asked once."""
    link = await client.any_link()
    try:
        return msgspec.json.decode(await link.ask(what, stream, start, settings))
    except RequestRefused as error:
        raise request_refused(error.code, str(error), stream) from None
