"""Every type of message that can come from outside, found by reflection, and what its fields may be."""

import enum
import importlib
import pkgutil
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

import qanat.coordinate
import qanat.protocols
from qanat.events.batch import Batch
from qanat.kernel import Message
from qanat.runtime import datagram
from qanat.wire import control, placed, streams


def all_messages() -> list[type[msgspec.Struct]]:
    """Of machines: every subclass of `Message` there is, but for what the simulator's own tests say; of
    services: every struct of a module that says what is in frames."""
    for package in (qanat.protocols, qanat.coordinate):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if "zookeeper" not in found.name:
                importlib.import_module(found.name)
    of_machines = [
        each
        for each in _below(Message)
        if each.__module__.startswith("qanat.") and not each.__module__.startswith("qanat.sim.")
    ]
    of_services = [
        each
        for module in (control, streams, placed, datagram)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == module.__name__
    ]
    return sorted({*of_machines, *of_services}, key=lambda each: (each.__module__, each.__qualname__))


def _below(cls: type) -> Iterator[type[msgspec.Struct]]:
    for each in typing.cast(list[Any], cls.__subclasses__()):
        yield each
        yield from _below(each)


def fields_of(struct: type) -> dict[str, Any]:
    return typing.get_type_hints(struct, include_extras=True)


def parts(kind: Any) -> tuple[Any, list[msgspec.Meta]]:
    """A type without its annotations, and these."""
    metas: list[msgspec.Meta] = []
    while typing.get_origin(kind) is Annotated or hasattr(kind, "__supertype__"):
        if hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        else:
            kind, *more = typing.get_args(kind)
            metas += [meta for meta in more if isinstance(meta, msgspec.Meta)]
    return kind, metas


def unbounded(kind: Any, where: str) -> Iterator[str]:
    """The parts of a field's type that have no range."""
    kind, metas = parts(kind)
    origin = typing.get_origin(kind)
    if kind in (int, float):
        low = any(m.ge is not None or m.gt is not None for m in metas)
        high = any(m.le is not None or m.lt is not None or (m.extra or {}).get("le") for m in metas)
        if not (low and high):
            yield f"{where}: {kind.__name__} without a range"
    elif kind in (str, bytes):
        if not any(m.max_length is not None for m in metas):
            yield f"{where}: {kind.__name__} without a greatest length"
    elif origin in (typing.Union, types.UnionType) or (
        origin is tuple and typing.get_args(kind)[-1] is not ...
    ):
        for each in typing.get_args(kind):
            yield from unbounded(each, where)
    elif origin in (tuple, list, dict, set, frozenset):
        if not any(m.max_length is not None for m in metas):
            yield f"{where}: {origin.__name__} without a greatest length"
        for each in typing.get_args(kind):
            if each is not ...:
                yield from unbounded(each, where)
    elif origin is typing.Literal or kind in (bool, type(None), Batch, msgspec.Raw, Ellipsis):
        return
    elif isinstance(kind, type) and issubclass(kind, enum.Enum | msgspec.Struct):
        return  # a struct's own fields are looked at by themselves
    elif isinstance(kind, type) and issubclass(kind, tuple):
        for name, each in fields_of(kind).items():
            yield from unbounded(each, f"{where}.{name}")
    else:
        yield f"{where}: {kind!r} is not known to be bounded"
