"""`qanat changes --check`: what is promised to stand below stands there."""

from __future__ import annotations

import pytest

from qanat.capture import url
from qanat.capture.url import Finding
from qanat.cli.main import main


@pytest.mark.parametrize(
    ("found", "last"),
    [
        ([Finding(True, "a")], "the set-up is sound"),
        ([Finding(True, "a"), Finding(False, "b", "SET c")], "1 to change: what to do stands below each"),
        ([Finding(False, "the password is wrong")], "1 to change"),
    ],
)
def test_what_to_do_is_promised_only_where_it_stands(
    found: list[Finding], last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(url, "check", lambda _: found)
    code = main(["changes", "mariadb://me@nowhere/shop", "--check"])
    assert (capsys.readouterr().out.splitlines()[-1], code) == (last, int(not found[-1].ok))
