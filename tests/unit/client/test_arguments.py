"""Every public call of the client and of applications refuses what it does not take, at the call, with a
sentence: nothing reaches a server."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from qanat.applications import Callbacks, Instance, InstanceSettings, run
from qanat.client import AsyncClient, BlockingSubscription, Client, ClientSettings, MeshSettings, Unavailable
from qanat.events.errors import LocalError
from qanat.events.filters import FilterError
from qanat.events.position import Position
from qanat.runtime.settings import TransportSettings

NOWHERE = "qanat://127.0.0.1:1"
WAITS_S = 1.0
"""For a call that is not refused, which waits for a server for ever."""
_NO_TEXT = [b"s", 5, None, ["s"], object(), "\ud800"]
_NO_NAME = [*_NO_TEXT, ""]
_NO_NUMBER = ["1", 1.5, True, -1, 1 << 63]
_NO_PAYLOADS = [
    5,
    "text",
    b"bytes",
    {"a": b"x"},
    [1],
    [object()],
    np.zeros(3),
    pa.array([1]),
    pa.table({"p": [b"x"]}),
]
_NO_ROWS = [
    5,
    "text",
    [5],
    [{5: "x"}],
    [{"a": object()}],
    [{"a": [1]}],
    {5: ["x"]},
    {"a": 5},
    {"a": [object()]},
    [{"a": "\ud800"}],
    [{"\ud800": 1}],
    {"\ud800": [1]},
    {"a": ["\ud800"]},
]
_NO_POSITIONS = [
    5,
    "ab",
    ([1],),
    (1, 0),
    (["a"], [0]),
    ([1.5], [0]),
    ([-1], [0]),
    ([1], [1 << 32]),
    ([1], [0, 1]),
    ([1], None),
]

WRONG: dict[str, list[Any]] = {
    "url": [b"qanat://h", 5, ["qanat://h"]],
    "name": [b"n", 5, ["n"], "\ud800", "a\x1b[2J", "a\n", "a\u202e", "é" * 128],
    "durability": [b"always", 5, None],
    "patience": ["soon", -1, True],
    "settings": [
        5,
        {"batch_bytes": 1},
        TransportSettings(),
        ClientSettings(batch_bytes="many"),  # type: ignore[arg-type]
        InstanceSettings(ahead="x"),  # type: ignore[arg-type]
    ],
    "transport": [5, ClientSettings(), TransportSettings(high_water_bytes="x")],  # type: ignore[arg-type]
    "mesh": [5, ClientSettings(), MeshSettings(port="x")],  # type: ignore[arg-type]
    "record": [5, b"folder", ["folder"]],
    "stream": _NO_NAME,
    "payload": ["text", 5, None, bytearray(b"x"), [b"x"]],
    "payloads": _NO_PAYLOADS,
    "key": ["text", 5, None],
    "keys": [5, "text", [1], [object()]],
    "attributes": _NO_ROWS,
    "attributes of publish": [
        5,
        "text",
        [{"a": 1}],
        {5: "x"},
        {"a": object()},
        {"a": [1]},
        {"\ud800": 1},
        {"a": "\ud800"},
    ],
    "collects": [b"same key", 5, None, "same"],
    "positions": _NO_POSITIONS,
    "positions of reach": [5, ["s"], {5: Position(1)}, {"s": 5}, {"s": (1, 2, 3)}, {"s": ("1", 0)}],
    "start": [b"earliest", 0, -1, True, 1.5, None, "soon", 1 << 63],
    "where": _NO_TEXT,
    "via": [b"mesh", 5, "air", ["mesh"]],
    "first": _NO_NUMBER,
    "last": _NO_NUMBER,
    "size": _NO_NUMBER,
    "what": _NO_NAME,
    "stream of ask": _NO_TEXT,
    "flights": [5, "text", b"bytes", [5], None],
    "kept": [5, "text"],
    "timeout_s": ["1", True, -1, float("nan"), [1]],
    "callbacks": [5, None, Callbacks, object()],
    "application": [b"a", 5, None, "", "a/b"],
    "publishers": [5, b"qanat://h", None, [], [5], [b"qanat://h"]],
    "publisher": _NO_NAME,
    "shards": [5, "text", b"bytes", [5], None],
    "to": _NO_TEXT,
    "kept_as": [5, None],
    "alive": [5, "yes", None],
    "mode": ["often", 5],
    "policy": [5, "by_key", {"keep": 5}, {"keep_last": 0}, {"keep_last": "5"}, {"age_ms": 1.5}],
    "retain_bytes": [5, "text", 1 << 70, b"x"],
}
RIGHT: dict[str, Any] = {
    "url": NOWHERE,
    "stream": "s",
    "payload": b"x",
    "payloads": [b"x"],
    "positions": ([1], [0]),
    "first": 1,
    "last": 2,
    "what": "streams",
    "flights": [],
    "callbacks": Callbacks(),
    "application": "cache",
    "publishers": NOWHERE,
    "publisher": "p",
    "shards": ["1"],
    "positions of reach": {"s": Position(1)},
}
CALLS: dict[str, Callable[..., Any]] = {
    f"{of.__name__}.{name}": call
    for of in (AsyncClient, Client, BlockingSubscription, Instance)
    for name, call in inspect.getmembers(of, inspect.isfunction)
    if not name.startswith("_") or name == "__init__"
} | {"run": run}
del CALLS["BlockingSubscription.__init__"]  # made by Client alone


def parameters(call: str) -> list[str]:
    named = [name for name in inspect.signature(CALLS[call]).parameters if name != "self"]
    return [*named, "mode", "policy", "retain_bytes"] if "kept_as" in named else named


def of(table: dict[str, Any], call: str, parameter: str) -> Any:
    return table.get(f"{parameter} of {call.rpartition('.')[2]}", table.get(parameter))


CASES = [(call, parameter) for call in CALLS for parameter in parameters(call)]


@pytest.fixture(autouse=True)
def without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients never begin to connect: what is not refused waits, until the test has waited long enough."""

    async def never(self: AsyncClient) -> AsyncClient:
        await asyncio.sleep(0.01)
        return self

    monkeypatch.setattr(AsyncClient, "ready", never)
    monkeypatch.delenv("QANAT_URL", raising=False)


def right(call: str, parameter: str) -> dict[str, Any]:
    """What the call takes, but for this parameter."""
    given = {
        name: of(RIGHT, call, name)
        for name, of_call in inspect.signature(CALLS[call]).parameters.items()
        if name in RIGHT and (of_call.default is inspect.Parameter.empty or name == "url")
    }
    return {name: value for name, value in given.items() if name != parameter}


async def refusal(call: str, given: dict[str, Any]) -> BaseException | None:
    """What the call raises; `Unavailable` if it goes on to talk to a server."""
    owner, _, name = call.rpartition(".")
    try:
        if owner in ("Client", "BlockingSubscription"):
            return await refusal_of_blocking(owner, name, given)
        if owner == "AsyncClient":
            done = (
                AsyncClient(**given) if name == "__init__" else getattr(AsyncClient(NOWHERE), name)(**given)
            )
            async with asyncio.timeout(WAITS_S):
                if inspect.isawaitable(done):
                    await done
        elif name == "__init__":
            Instance(**given)
        elif owner == "Instance":
            getattr(Instance(Callbacks(), "cache", [NOWHERE]), name)(**given)
        else:
            await asyncio.to_thread(lambda: run(**given))
    except BaseException as error:
        return error
    return None


async def refusal_of_blocking(owner: str, name: str, given: dict[str, Any]) -> BaseException | None:
    """The same, of a call in a thread."""
    if name == "__init__":
        await asyncio.to_thread(lambda: Client(**given).close())
        return None
    client = Client(NOWHERE)
    at = client if owner == "Client" else BlockingSubscription(client, None)  # type: ignore[arg-type]
    work = asyncio.ensure_future(asyncio.to_thread(lambda: getattr(at, name)(**given)))
    await asyncio.wait([work], timeout=WAITS_S)
    client._loop.call_soon_threadsafe(client._client._fail, Unavailable("it was not refused"))
    await asyncio.wait([work])
    client.close()
    return work.exception()


@pytest.mark.parametrize(("call", "parameter"), CASES, ids=[f"{call}-{name}" for call, name in CASES])
def test_a_wrong_argument_is_refused_at_the_call(call: str, parameter: str) -> None:
    values = of(WRONG, call, parameter)
    assert values, f"nothing here says what is wrong for {parameter} of {call}"

    async def all_of_them() -> list[tuple[Any, BaseException | None]]:
        given = right(call, parameter)
        return [(value, await refusal(call, {**given, parameter: value})) for value in values]

    for value, error in asyncio.run(all_of_them()):
        assert isinstance(error, LocalError), (value, error)
        sentence, *rest = str(error).splitlines()
        assert 15 < len(sentence) < 250, str(error)
        assert not rest or isinstance(error, FilterError), str(error)  # which points at the place


def test_what_is_right_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin of the test above: it is the wrong value that is refused, not the others."""
    monkeypatch.setattr(f"{__name__}.WAITS_S", 0.01)

    async def main() -> None:
        for call in CALLS:
            if call.startswith("AsyncClient."):
                error = await refusal(call, right(call, ""))
                assert not isinstance(error, LocalError), (call, error)

    asyncio.run(main())
