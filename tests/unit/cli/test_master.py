"""Where jobs on Spark run is one option, the same for every command that has such a job."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.servers.stream_server import ServerProcess

from qanat.cli import commands
from qanat.cli.main import main
from qanat.cli.options import add_master, spark_settings
from qanat.demonstration import run as demo
from qanat.demonstration.engine import engine, settings_of
from qanat.events.errors import LocalError
from qanat.pipeline import running, session
from qanat.pipeline.session import SparkSettings

CHECKOUT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.paper("D9")


@pytest.mark.parametrize(
    "command",
    [
        "pipeline run",
        "archive run",
        "archive ls",
        "archive show",
        "archive check",
        "archive tidy",
        "compact",
        "replay",
        "sub",
        "audit",
        "study",
        "simulate",
        "demo",
    ],
)
def test_every_command_with_a_job_takes_a_master(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--master URL" in shown
    assert "spark://host:7077" in shown


def test_no_command_opens_a_session_without_the_option() -> None:
    texts = {path: path.read_text() for path in Path(commands.__path__[0]).glob("*.py")}
    opening = {path for path, text in texts.items() if "open_session(" in text or "started(args" in text}
    assert {path.stem for path in opening} >= {
        "archive",
        "audit",
        "compact",
        "replay",
        "simulate",
        "study",
        "sub",
    }
    assert [path.stem for path in opening if "add_master(" not in path.read_text()] == []


class Opened(LocalError):
    """Spark would start now."""

    exit_code = 77


@pytest.mark.parametrize(
    "words",
    [
        "pipeline run pipeline.toml --once",
        "archive run archive --until-end --url {server}",
        "archive ls hdfs://host:9000/archive",
        "archive check hdfs://host:9000/archive",
        "archive tidy hdfs://host:9000/archive",
        "compact hdfs://host:9000/archive",
        "replay hdfs://host:9000/archive orders --into again --url {server}",
        "sub orders --archive hdfs://host:9000/archive --url {url}",
        "audit . --archive hdfs://host:9000/archive",
        "study S14 --spark --quick --out .",
        "simulate {checkout}/scenarios/push_sum_lossy.toml --seeds 1..2 --spark",
    ],
)
def test_spark_is_started_with_the_master_that_was_asked_for(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    masters: list[str] = []

    def opened(settings: SparkSettings | None = None, name: str = "") -> None:
        assert settings is not None
        masters.append(settings.master)
        raise Opened(name)

    for module in (session, running):
        monkeypatch.setattr(module, "open_session", opened)
    monkeypatch.chdir(tmp_path)
    pipeline = '[sources.log]\nlog = "file:///nowhere/*.jsonl?dataset=d"\n[[routes]]\nstream = "s"\n'
    with ExitStack() as stack:
        server = ""
        if "{server}" in words or "pipeline.toml" in words:  # which is asked first
            process = ServerProcess(tmp_path / "data")
            stack.callback(process.end)
            server = process.start().url
        (tmp_path / "pipeline.toml").write_text(f'url = "{server}"\n{pipeline}')
        given = words.format(url="qanat://127.0.0.1:1", server=server, checkout=CHECKOUT).split()
        assert main([*given, "--master", "spark://there:7077"]) == Opened.exit_code, capsys.readouterr().err
    assert masters == ["spark://there:7077"]


def test_the_demonstration_s_jobs_go_to_the_master_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("QANAT_MASTER", raising=False)
    started: list[Any] = []

    def worker(target: Any, *arguments: Any) -> None:
        started.append((target, arguments))
        raise Opened("demo")

    monkeypatch.setattr(demo, "Worker", worker)
    for words, master in ((["--master", "spark://there:7077"], "spark://there:7077"), ([], "local[4]")):
        assert main(["demo", *words]) == Opened.exit_code
        ((target, arguments),) = started
        assert target is engine and arguments[-1] == master
        assert settings_of(tmp_path, master).master == master
        assert ("at spark://there:7077" in capsys.readouterr().out) == bool(words)
        started.clear()


def test_a_master_without_a_job_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["sub", "orders", "--url", "qanat://127.0.0.1:1"], "name one with --archive"),
        (["simulate", str(CHECKOUT / "scenarios/push_sum_lossy.toml")], "--master needs --spark"),
        (["study", "S14"], "need --spark"),
    ):
        assert main([*words, "--master", "local[2]"]) == 2
        assert said in capsys.readouterr().err


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
