"""A mistake in a file is told with its line."""

from pathlib import Path

import msgspec
import pytest

from qanat.runtime.config import BadConfiguration, load
from qanat.runtime.fitting import Misfit, fit
from qanat.runtime.toml_lines import line_of

TEXT = '''\
name = "x"   # 1
long = """
[not.a.table]
key = 1
"""
many = [
  1,
  2, ] # 8
[regions.eu]
replicas = 2
[regions."us/1"]
"replicas" = 3
a.b = 4
[[links]]
between = ["a", "b"]
[[links]]
between = ["a", "c"]
[links.inner]
x = { y = 1 }
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (["name"], 1),
        (["long"], 2),
        (["many"], 6),
        (["many", 1], 6),
        (["regions"], 9),
        (["regions", "eu"], 9),
        (["regions", "eu", "replicas"], 10),
        (["regions", "eu", "missing"], 9),
        (["regions", "us/1"], 11),
        (["regions", "us/1", "replicas"], 12),
        (["regions", "us/1", "a", "b"], 13),
        (["links", 0, "between"], 15),
        (["links", 1], 16),
        (["links", 1, "between"], 17),
        (["links", 1, "inner", "x", "y"], 19),
        (["nowhere"], 1),
    ],
)
def test_the_line_of_a_key(path: list[str | int], line: int) -> None:
    assert line_of(TEXT, path) == line


class Leaf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: int
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.size == 13:
            raise ValueError("13 brings no luck")


class Tree(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    leaves: dict[str, Leaf] = {}
    row: tuple[Leaf, ...] = ()
    best: Leaf = Leaf(1)


@pytest.mark.parametrize(
    ("value", "path", "what"),
    [
        (
            {"leaves": {"a": {"size": "x"}}},
            ("leaves", "a", "size"),
            "cannot be 'x': expected `int`, got `str`",
        ),
        ({"leaves": {"a": {}}}, ("leaves", "a"), "needs `size`"),
        ({"leaves": {"a": 3}}, ("leaves", "a"), "cannot be 3: expected a table"),
        ({"leaves": {"a": {"sice": 3}}}, ("leaves", "a", "sice"), "is not known: did you mean `size`?"),
        ({"leaves": {"a": {"q": 3}}}, ("leaves", "a", "q"), "is not known: there are size, words"),
        ({"row": [{"size": 1}, {"size": 13}]}, ("row", 1), "does not fit together: 13 brings no luck"),
        ({"row": 4}, ("row",), "cannot be 4: expected `array`, got `int`"),
        ({"leaves": 4}, ("leaves",), "cannot be 4: expected `object`, got `int`"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(
    value: object, path: tuple[str | int, ...], what: str
) -> None:
    with pytest.raises(Misfit) as caught:
        fit(value, Tree)
    assert (caught.value.path, caught.value.what) == (path, what)


def test_what_fits_is_what_msgspec_makes_of_it() -> None:
    value = {"leaves": {"a": {"size": 2, "words": ["x"]}}, "row": [{"size": 3}], "best": {"size": 4}}
    assert (
        fit(value, Tree) == msgspec.convert(value, Tree) == Tree({"a": Leaf(2, ("x",))}, (Leaf(3),), Leaf(4))
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n[leaves.a]\nsize = 'x'\n", "`leaves.a.size` (file {file}, line 3) cannot be 'x'"),
        ('[leaves."a/b"]\n', '`leaves."a/b"` (file {file}, line 1) needs `size`'),
        (
            "\n\n[best]\nseize = 1",
            "`best.seize` (file {file}, line 4) is not a setting: did you mean `best.size`?",
        ),
        ("\n[best]\nsize = 13", "`best` (file {file}, line 2) does not fit together: 13 brings no luck"),
    ],
)
def test_a_file_with_a_mistake(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "t.toml"
    file.write_text(text)
    with pytest.raises(BadConfiguration) as caught:
        load(Tree, file=file)
    assert str(caught.value).startswith(message.format(file=file))
