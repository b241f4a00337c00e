"""Where jobs on Spark run is one option, the same for every command that has such a job."""

from __future__ import annotations

import argparse

import pytest

from qanat.cli.main import main
from qanat.cli.options import add_master, spark_settings
from qanat.pipeline.session import SparkSettings

pytestmark = pytest.mark.paper("D9")


@pytest.mark.parametrize(
    "command",
    ["pipeline run", "archive run", "archive tidy", "compact", "audit", "study", "simulate"],
)
def test_every_command_with_a_job_takes_a_master(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--master URL" in shown
    assert "spark://host:7077" in shown


@pytest.mark.parametrize(
    ("words", "variable", "file", "master"),
    [
        ([], None, None, "local[*]"),
        ([], None, "yarn", "yarn"),
        ([], "spark://a:7077", "yarn", "spark://a:7077"),
        (["--master", "local[2]"], "spark://a:7077", "yarn", "local[2]"),
    ],
)
def test_the_option_goes_before_the_variable_and_that_before_the_settings(
    words: list[str],
    variable: str | None,
    file: str | None,
    master: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("QANAT_MASTER", raising=False)
    if variable is not None:
        monkeypatch.setenv("QANAT_MASTER", variable)
    parser = argparse.ArgumentParser()
    add_master(parser)
    settings = None if file is None else SparkSettings(master=file, memory="3g")
    found = spark_settings(parser.parse_args(words), settings)
    assert found.master == master
    assert found.memory == ("2g" if file is None else "3g")
