"""Addresses of nodes, and what is wrong with them."""

import pytest

from qanat.runtime.url import DEFAULT_PORT, BadUrl, Url, format_urls, parse_url, parse_urls


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("qanat://example.org:9000", "example.org", 9000),
        ("qanat://example.org", "example.org", DEFAULT_PORT),
        ("QANAT://example.org/", "example.org", DEFAULT_PORT),
        ("example.org:9000", "example.org", 9000),
        (" localhost ", "localhost", DEFAULT_PORT),
        ("qanat://[::1]:5", "::1", 5),
        ("[fe80::1]", "fe80::1", DEFAULT_PORT),
        ("127.0.0.1:0", "127.0.0.1", 0),
    ],
)
def test_parse(text: str, host: str, port: int) -> None:
    url = parse_url(text)
    assert url == Url(host, port)
    assert parse_url(str(url)) == url


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://host:1", "'http' is not known"),
        ("", "no host"),
        ("qanat://", "no host"),
        (":7411", "no host"),
        ("host:", "its port is not"),
        ("host:port", "'host:…': its port is not a number"),
        ("host:70000", "from 0 to 65535"),
        ("host:٣", "its port is not"),
        ("::1", "brackets"),
        ("[::1", "brackets"),
        ("[::1]9", "brackets"),
        ("[::1]:", "its port is not"),
        ("user@host", "no host"),
        ("host/path", "no host"),
    ],
)
def test_errors_say_what_to_write(text: str, words: str) -> None:
    with pytest.raises(BadUrl, match=words):
        parse_url(text)


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("qanat://a:1,b:2", [Url("a", 1), Url("b", 2)]),
        ("qanat://a:1, qanat://b , [::1]:3", [Url("a", 1), Url("b", DEFAULT_PORT), Url("::1", 3)]),
        ("a:1,a:1", [Url("a", 1)]),
        ("a", [Url("a", DEFAULT_PORT)]),
    ],
)
def test_parse_several(text: str, urls: list[Url]) -> None:
    assert parse_urls(text) == tuple(urls)
    assert parse_urls(format_urls(urls)) == tuple(urls)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a:1,,b:2", "between two commas"),
        ("a:1,", "before or after"),
        ("a:1,b:x", "'a:1,b:…': its port is not a number"),
        ("", "no host"),
        ("a:1,http://b", "'http' is not known"),
    ],
)
def test_errors_in_one_of_several(text: str, words: str) -> None:
    with pytest.raises(BadUrl, match=words):
        parse_urls(text)
