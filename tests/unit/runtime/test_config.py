"""Where settings come from, which wins, and what a mistake is told."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from qanat.runtime.config import BadConfiguration, load, reload
from qanat.runtime.fields import fields_of
from qanat.runtime.settings import setting
from qanat.serving.settings import StreamServerSettings
from qanat_workshop.config_page import page

KINDS = (
    "qanat.serving.settings:StreamServerSettings",
    "qanat.replica.settings:ProxySettings",
    "qanat.replica.settings:CoordinatorSettings",
    "qanat.publisher.settings:PublisherSettings",
    "qanat.operate.links:LinksSettings",
    "qanat.pipeline.session:JobSettings",
    "qanat.pipeline.archive.settings:ArchiveJobSettings",
    "qanat.pipeline.replay.settings:ReplayJobSettings",
    "qanat.pipeline.pipeline_file:Pipeline",
)


class Inner(msgspec.Struct, frozen=True):
    depth: int = 1


class Part(msgspec.Struct, frozen=True):
    wait_ms: Annotated[int, setting("Wait.", unit="ms", why="because", reload=True, ge=1)] = 100
    names: tuple[str, ...] = ("a",)
    on: bool = False
    mode: Literal["fast", "slow"] = "fast"
    ratio: float = 0.5
    maybe: int | None = None
    inner: Inner = Inner()


class Root(msgspec.Struct, frozen=True):
    part: Part = Part()


def test_defaults() -> None:
    assert load(Root) == (Root(), {})


def test_the_later_wins(tmp_path: Path) -> None:
    file = tmp_path / "q.toml"
    file.write_text('[part]\nwait_ms = 5\nnames = ["x", "y"]\nmode = "slow"\n[part.inner]\ndepth = 4\n')
    environment = {"QANAT_PART__WAIT_MS": "6", "QANAT_PART__ON": "true", "QANAT_CONFIG": "x", "HOME": "/"}
    settings, origins = load(
        Root, file=file, environment=environment, flags=["part.wait_ms=7", "part.ratio=0.25"]
    )
    assert settings == Root(Part(7, ("x", "y"), True, "slow", 0.25, None, Inner(4)))
    assert origins == {
        "part.wait_ms": "flag part.wait_ms",
        "part.names": f"file {file}",
        "part.mode": f"file {file}",
        "part.inner.depth": f"file {file}",
        "part.on": "environment QANAT_PART__ON",
        "part.ratio": "flag part.ratio",
    }


def test_lists_and_nothing_from_text() -> None:
    environment = {"QANAT_PART__NAMES": "x, y,,z", "QANAT_PART__MAYBE": "9", "QANAT_PART__INNER__DEPTH": "3"}
    part = load(Root, environment=environment).settings.part
    assert part.names == ("x", "y", "z")
    assert part.maybe == 9
    assert part.inner.depth == 3
    assert load(Root, flags={"part.names": ["k"], "part.wait_ms": 9}).settings.part.wait_ms == 9


@pytest.mark.parametrize(
    ("environment", "flags", "words"),
    [
        (
            {"QANAT_PART__WAIT_M": "6"},
            [],
            r"`part.wait_m` \(environment QANAT_PART__WAIT_M\).*did you mean `part.wait_ms`",
        ),
        ({"QANAT_OTHER__KEY": "6"}, [], "there are the sections part"),
        ({}, ["part.zebra=1"], "there are part.wait_ms, part.names"),
        ({}, ["part=1"], "it is a section; set one of part.wait_ms"),
        ({}, ["part.wait_ms"], "write key=value"),
        (
            {},
            ["part.wait_ms=soon"],
            r"`part.wait_ms` \(flag part.wait_ms\) cannot be 'soon'.*default 100 \(unit: ms\)",
        ),
        ({}, ["part.wait_ms=0"], ">= 1"),
        ({"QANAT_PART__MODE": "medium"}, [], "cannot be 'medium': expected one of 'fast', 'slow'; default"),
        ({}, {"part.wait_ms": "x"}, "cannot be 'x'"),
    ],
)
def test_mistakes(environment: dict[str, str], flags: list[str], words: str) -> None:
    with pytest.raises(BadConfiguration, match=words):
        load(Root, environment=environment, flags=flags)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[part]\nwait_ms = '5'\n", "`part.wait_ms`.*q.toml.*cannot be '5'"),
        ("[part]\nwiat_ms = 5\n", "did you mean `part.wait_ms`"),
        ("[prat]\nwait_ms = 5\n", "did you mean `part`"),
        ("part = 5\n", "it is a section"),
        ("[part\n", "not TOML"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "q.toml"
    file.write_text(text)
    with pytest.raises(BadConfiguration, match=words):
        load(Root, file=file)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="No such file"):
        load(Root, file=tmp_path / "none.toml")


def test_reload_takes_what_it_can() -> None:
    old = load(Root, flags=["part.mode=slow"]).settings
    new = load(Root, flags=["part.wait_ms=7", "part.on=true"]).settings
    result = reload(old, new)
    assert result.applied == ["part.wait_ms"]
    assert result.need_restart == ["part.on", "part.mode"]
    assert result.settings == Root(Part(wait_ms=7, mode="slow"))


def test_every_setting_of_a_server_is_explained() -> None:
    for key, field in fields_of(StreamServerSettings).items():
        assert field.what, key
    assert load(StreamServerSettings).settings == StreamServerSettings()


def test_the_reference_page_is_up_to_date() -> None:
    written = Path(__file__).parents[3] / "docs" / "configuration.md"
    assert written.read_text() == page(*KINDS), "see its first lines for the command that writes it"
