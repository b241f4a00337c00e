"""Ctrl-C of `qanat up` at any moment: what continues to start is found by the other commands."""

from pathlib import Path

import pytest

from qanat.cli.main import main
from qanat.operate import operations as operate
from qanat.operate.home import Home


@pytest.mark.parametrize("began", [True, False])
def test_a_deployment_elsewhere_leaves_its_note_though_up_was_interrupted_at_once(
    began: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(operate, "start", interrupted)
    monkeypatch.setattr(Home, "is_held", lambda _: began)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "elsewhere"
    assert main(["up", "--data", str(folder)]) == 130
    notes = [path.read_text() for path in (tmp_path / "state").rglob("elsewhere-*.txt")]
    assert notes == [str(folder)] * began
    assert ("continues to start" in capsys.readouterr().err) == began
