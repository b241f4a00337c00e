"""The protocol of Redis: what is sent, and what is made of answers that come in pieces."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from qanat.bench.resp import Redis, RedisRefused, Value, decode, encode

PAYLOADS = [b"0123456789", b"\r\n*2\r\n$1\r\n", b"-ERR 56789"]
ENTRIES = b"*1\r\n*2\r\n$1\r\ns\r\n*3\r\n" + b"".join(
    b"*2\r\n$%d\r\n%b\r\n*2\r\n$1\r\nf\r\n$10\r\n%b\r\n" % (len(name), name, payload)
    for name, payload in zip([b"9-0", b"10-0", b"10-17"], PAYLOADS, strict=True)
)


def test_a_command_is_its_words_with_their_lengths() -> None:
    assert encode(b"XADD", b"s", b"\r\n") == b"*3\r\n$4\r\nXADD\r\n$1\r\ns\r\n$2\r\n\r\n\r\n"
    assert encode(b"") == b"*1\r\n$0\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"+PONG\r\n", b"PONG"),
        (b":-3\r\n", -3),
        (b"$4\r\na\r\nb\r\n", b"a\r\nb"),
        (b"$0\r\n\r\n", b""),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
        (b"*0\r\n", []),
        (b"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", [1, [b"x"]]),
        (encode(b"a", b"bc"), [b"a", b"bc"]),
    ],
)
def test_a_value_is_read_once_all_of_it_is_there(data: bytes, value: Value) -> None:
    assert [decode(data[:size]) for size in range(len(data))] == [None] * len(data)
    assert decode(data) == (value, len(data))
    assert decode(b"xx" + data + b"+more", 2) == (value, 2 + len(data))


@pytest.mark.parametrize("data", [b"-ERR no such thing\r\n", b"*1\r\n-ERR no such thing\r\n"])
def test_an_error_is_raised_in_its_own_words(data: bytes) -> None:
    with pytest.raises(RedisRefused, match="no such thing"):
        decode(data)


def test_what_is_no_answer_of_redis_is_said() -> None:
    with pytest.raises(RedisRefused, match="begins with b'H'"):
        decode(b"HTTP/1.1 400\r\n")


@contextmanager
def answering(*parts: bytes) -> Iterator[Redis]:
    """A connection on which these come, each by itself."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with far, Redis(near) as redis:
        for part in parts:
            far.send(part)
        far.shutdown(socket.SHUT_WR)
        yield redis


def test_answers_are_taken_one_after_the_other() -> None:
    with answering(b"$3\r\nab", b"c\r\n+OK\r\n:", b"7\r\n") as redis:
        assert [redis.answer(), redis.answer(), redis.answer()] == [b"abc", b"OK", 7]
        with pytest.raises(ConnectionResetError):
            redis.answer()


@pytest.mark.parametrize("cut", range(1, len(ENTRIES)))
def test_entries_are_counted_however_they_are_cut(cut: int) -> None:
    """Also where a payload looks like what lies between entries."""
    with answering(ENTRIES[:cut], ENTRIES[cut:], b"+OK\r\n") as redis:
        assert redis.entries(b"f", 10) == (3, b"10-17")
        assert redis.answer() == b"OK"


def test_an_error_in_place_of_entries_is_raised() -> None:
    with answering(b"-WRONGTYPE no stream\r\n") as redis, pytest.raises(RedisRefused, match="no stream"):
        redis.entries(b"f", 10)


def test_acknowledgements_are_counted_also_those_that_come_early() -> None:
    ids = b"".join(b"$%d\r\n17-%d\r\n" % (3 + len(str(number)), number) for number in range(20))
    with answering(ids[:50], ids[50:]) as redis:
        redis.skip_ids(3)
        redis.skip_ids(17)
        with pytest.raises(ConnectionResetError):
            redis.skip_ids(1)
    with (
        answering(b"$4\r\n17-1\r\n-OOM no memory\r\n") as redis,
        pytest.raises(RedisRefused, match="no memory"),
    ):
        redis.skip_ids(2)
