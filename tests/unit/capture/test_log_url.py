"""URLs of logs: their parts, and sentences in which no password stands."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from qanat.capture import url as urls
from qanat.capture.errors import BadLogUrl
from qanat.capture.url import LogUrl, check, open_chunks, open_reader, parse_log_url
from qanat.events.passwords import without_password


def test_the_parts_are_decoded() -> None:
    url = parse_log_url("mariadb://ann%40x:p%2Fw@db.example:3307/shop?dataset=goods")
    assert url == LogUrl(
        "mariadb", "db.example", 3307, "/shop", "ann@x", "p/w", {"dataset": "goods"}, "db.example:3307"
    )
    assert url.name == "shop"


@pytest.mark.parametrize(
    ("text", "host", "port", "path"),
    [
        ("postgresql://[::1]:5433/shop", "::1", 5433, "/shop"),
        ("rocksdb:///var/lib/x", "", None, "/var/lib/x"),
        ("file:///logs/part-*.json", "", None, "/logs/part-*.json"),
        ("HDFS://name:8020/logs", "name", 8020, "/logs"),
        ("qanat://a:1,b:2/prices", "a", 1, "/prices"),
    ],
)
def test_each_kind_has_its_shape(text: str, host: str, port: int | None, path: str) -> None:
    url = parse_log_url(text)
    assert (url.host, url.port, url.path) == (host, port, path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("shop", "is no URL of a log"),
        ("oracle://u:secret@h/x", "no log is read by the scheme 'oracle'; there are"),
        ("mariadbb://u:secret@h/x", "did you mean mariadb://"),
        ("mariadb://u:secret@:3306/x", "there is no host"),
        ("mariadb://u:secret@h:port/x", "h:port/x': its port is not a number"),
        ("mariadb://u:secret@h:0/x", "its port is not"),
        ("mariadb://u:secret@[::1/x", "cannot be read|in brackets"),
        ("mariadb://u:secret@h/x#y", "write %23"),
        ("mariadb://u:secret@h/x?a=1&a=2", "twice"),
        ("rocksdb://folder/x", "three slashes"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(text: str, reason: str) -> None:
    with pytest.raises(BadLogUrl, match=reason) as raised:
        parse_log_url(text)
    assert "secret" not in str(raised.value)


def test_a_url_is_printed_without_its_password() -> None:
    text = "mariadb://ann:se:c@ret@h:1/x"
    assert without_password(text) == "mariadb://ann:…@h:1/x"
    assert without_password("file:///a@b") == "file:///a@b"
    url = parse_log_url(text)
    assert url.password == "se:c@ret"
    assert str(url) == "mariadb://ann@h:1/x"
    assert "ret" not in repr(url)


def test_readers_are_found_by_scheme_and_told_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("some_log")

    def opened(url: LogUrl, options: Mapping[str, Any]) -> Any:
        return url, options

    module.open = module.check = opened  # type: ignore[attr-defined]
    module.OPTIONS = {"dataset": "its name", "tables": "which"}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_log", module)
    monkeypatch.setitem(urls._MODULES, "rocksdb", ("some_log", "some_log"))
    calls: list[Any] = [open_reader, check]
    for call in calls:
        url, options = call("rocksdb:///x?dataset=a", dataset="b", tables="t")
        assert url.path == "/x"
        assert options == {"dataset": "b", "tables": "t"}
        with pytest.raises(BadLogUrl, match="no option 'datset'; there are dataset, tables"):
            call("rocksdb:///x?datset=a")


def test_a_snapshot_is_of_tables() -> None:
    with pytest.raises(BadLogUrl, match="a log alone"):
        open_chunks("qanat://h:1/s")
