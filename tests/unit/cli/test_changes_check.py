"""`qanat changes --check`: what is promised to stand below stands there."""

from __future__ import annotations

import pytest

from qanat.capture import url
from qanat.capture.url import Finding
from qanat.cli.main import main

SOUND, MISSING = Finding(True, "a"), Finding(False, "b", "SET c")
ADVICE = Finding(False, "d", "SET e", needed=False)


@pytest.mark.parametrize(
    ("found", "last"),
    [
        ([SOUND], "the set-up is sound"),
        ([SOUND, MISSING], "the log cannot be read yet: 1 to change; each has its fix below it"),
        ([Finding(False, "the password is wrong")], "the log cannot be read yet: 1 to change"),
        ([SOUND, ADVICE], "the set-up is sound; 1 advised; each has its fix below it"),
        (
            [ADVICE, MISSING],
            "the log cannot be read yet: 1 to change, 1 advised; each has its fix below it",
        ),
    ],
)
def test_what_to_do_is_promised_only_where_it_stands(
    found: list[Finding], last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(url, "check", lambda _: found)
    code = main(["changes", "mariadb://me@nowhere/shop", "--check"])
    out = capsys.readouterr().out
    assert (out.splitlines()[-1], code) == (last, int(any(finding.wrong for finding in found)))
    assert ("NEEDED   b\n           SET c\n" in out) == (MISSING in found)
    assert ("advised  d\n           SET e\n" in out) == (ADVICE in found)
