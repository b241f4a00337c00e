"""The frame that mutates logs: the same inputs for the same seed, and what breaks a decoder is found."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from qanat.capture.errors import MalformedLog
from qanat_workshop import fuzz
from qanat_workshop.samples.events import corpus, decode_file


def test_inputs_follow_from_seed_and_number() -> None:
    logs = [bytes(range(200)), b"x" * 50, b""]
    first = [fuzz.mutated(logs, 1, number) for number in range(500)]
    assert first == [fuzz.mutated(logs, 1, number) for number in range(500)]
    assert first != [fuzz.mutated(logs, 2, number) for number in range(500)]
    assert first[64] in logs
    assert len(set(first)) > 400


def test_what_breaks_a_decoder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("brittle")

    def decode(data: bytes) -> int:
        if len(data) < 8:
            raise MalformedLog("too short")
        if data[0] != 1:
            raise KeyError("a fault")
        return len(data)

    module.corpus = lambda: [b"\x01" + bytes(9)]  # type: ignore[attr-defined]
    module.decode_file = decode  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "brittle", module)
    monkeypatch.setitem(fuzz.MODULES, "events", "brittle")
    monkeypatch.setattr(fuzz, "_confine", lambda _limit: None)
    report = fuzz.run("events", 1, 0, 500, 1 << 20)
    assert report.refused
    assert {one.error.splitlines()[-1] for one in report.found} == {"KeyError: 'a fault'"}
    worst = report.found[0]
    assert fuzz.mutated(module.corpus(), 1, worst.number) == worst.data
    with pytest.raises(KeyError):
        fuzz.main(["events", "--only", str(worst.number)])


def test_events_withstand_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [len(decode_file(data)) for data in corpus()] == [1, 1, 1]
    assert fuzz.main(["events", "--inputs", "2000", "--seed", "3", "--save", str(tmp_path)]) == 0
    assert "2,000 inputs with seed 3" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [1743, 6931, 13438, 35884])
def test_zones_that_are_not_there_are_refused(number: int) -> None:
    with pytest.raises(MalformedLog, match="is no type of a column"):
        decode_file(fuzz.mutated(corpus(), 5, number))
