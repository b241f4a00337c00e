"""What strangers wrote is printed as what it is: it moves no cursor, turns no line and begins none."""

import json
import logging

import pytest

from qanat.cli.commands.sub import _as_json, _as_text
from qanat.cli.main import main
from qanat.cli.tables import table
from qanat.events.event import Event
from qanat.events.layout import Kind
from qanat.events.ranges import printable
from qanat.runtime.logs import JsonFormatter, TextFormatter

EVIL = "a\x1b[2J\r\n\u202eb\u2028"
SHOWN = r"a\u001b[2J\u000d\u000a\u202eb\u2028"


def event() -> Event:
    return Event(
        seq=7,
        kind=Kind.DATA,
        key=EVIL.encode(),
        payload=EVIL.encode(),
        attributes={EVIL: EVIL},
        time_us=1,
        range=1,
    )


def test_what_does_not_print_is_written_out() -> None:
    assert printable("größe 😀\u00a0") == "größe 😀\u00a0"
    assert printable(EVIL) == SHOWN
    assert printable("one\n\ttwo\x07", keep="\n\t") == "one\n\ttwo\\u0007"


def test_events_are_one_line_each() -> None:
    text = _as_text(event())
    assert text.startswith(f"7\t{SHOWN}\t{SHOWN}\t{SHOWN}=")
    line = _as_json(event())
    assert json.loads(line)["attributes"] == {EVIL: EVIL}
    for printed in (text.replace("\t", ""), line, *table(["name"], [[EVIL]]).splitlines()):
        assert printable(printed) == printed


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_line_of_the_log_is_one_line(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("qanat", logging.INFO, "", 1, "connection closed", (), None)
    record.peer = EVIL
    line = formatter.format(record)
    assert printable(line) == line


def test_an_error_may_have_lines_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sub", f"x{EVIL}", "--url", f"qanat://h\x1b[2J:{EVIL}"])
    said = capsys.readouterr().err
    assert printable(said, keep="\n") == said
