"""No error of a malformed URL shows a password, whatever is wrong with the URL, and whatever the password is
made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from qanat.capture.url import open_reader, parse_log_url
from qanat.cli.main import main
from qanat.coordinate.zookeeper import ZooKeeperAddress
from qanat.events.errors import LocalError
from qanat.events.passwords import without_password
from qanat.runtime.url import parse_urls

PARSERS: list[Callable[[str], object]] = [parse_log_url, parse_urls, ZooKeeperAddress.parse]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mariadb://me:a@b/c@host/shop", "mariadb://me:…@host/shop"),
        ("mariadb:/me:secret@host", "mariadb:…@host"),
        ("me:secret@host/shop", "me:…@host/shop"),
        ("mariadb://me:secret", "mariadb://me:…"),
        ("mariadb://host:3306/shop?a=b", "mariadb://host:3306/shop?a=b"),
        ("qanat://a:1,b:2/x", "qanat://a:1,b:2/x"),
        ("qanat://[::1]:7411", "qanat://[::1]:7411"),
        ("rocksdb:///var/a:b", "rocksdb:///var/a:b"),
        ("mariadb:/me:tulip://@host/shop", "mariadb:…@host/shop"),
        ("x://me@h/d;password=secret", "x://me@h/d;password=…"),
        ("x://h/d?user=me&Password=secret&b=1", "x://h/d?user=me&Password=…&b=1"),
    ],
)
def test_a_url_as_it_may_be_printed(text: str, shown: str) -> None:
    assert without_password(text) == shown


PARTS = ("tulip", "ferret", "90210")
"""Of passwords: none of them may be seen, alone or with others."""
passwords = st.lists(st.sampled_from([*PARTS, *"/?#@:,%[] &="]), min_size=1, max_size=6).map(
    lambda parts: "tulip" + "".join(parts)
)
schemes = st.sampled_from(
    ["mariadb://", "mariadb:/", "mariadb:", "mariadb//", "", "mari://", "qanat://", "zookeeper://", "file://"]
)
hosts = st.sampled_from(
    [
        "@host/shop",
        "@host:x/shop",
        "@host:0/s?dataset=a",
        "@/shop",
        "@[::1/s",
        "@h#x",
        "@h?a=1&a=2",
        "@h/s?slot=b",
    ]
)


@settings(max_examples=examples(300))
@given(schemes, passwords, hosts)
@example("mariadb://", "tulip][tulip", "@host/shop")
def test_no_error_shows_a_part_of_a_password(scheme: str, password: str, host: str) -> None:
    for parse in PARSERS:
        try:
            parse(f"{scheme}me:{password}{host}")
        except LocalError as error:
            assert not [part for part in PARTS if part in str(error)], error


def test_an_option_that_is_the_rest_of_a_password_is_not_named() -> None:
    with pytest.raises(LocalError) as caught:
        open_reader("rocksdb://me:12?ferret@host/shop")
    assert "ferret" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["publisher", "mariadb://me:tulip@host/shop"],
        ["changes", "mariadb", "://me:tulip@host/shop"],
        ["stream", "me:tulip@host/shop"],
        ["pub", "s", "--key", "k", "mariadb://me:ferret/ tulip@host/shop"],
    ],
)
def test_words_in_the_wrong_place_are_quoted_without_one(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert ":…@host" in said
    assert not [part for part in PARTS if part in said]
