"""The words of the command line as a tree: commands, their actions, options and what may follow each."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

_FILES = {"FILE", "JOURNAL"}
_FOLDERS = {"FOLDER", "DIR", "PATH"}


class Values(Enum):
    """What a value may be, besides words that are known."""

    ANY = "any"
    FILES = "files"
    FOLDERS = "folders"


@dataclass(frozen=True, slots=True)
class Option:
    flags: tuple[str, ...]
    about: str
    takes_value: bool = False
    choices: tuple[str, ...] = ()
    values: Values = Values.ANY


@dataclass(frozen=True, slots=True)
class Place:
    """What may be typed after the words of `path`, such as `("stream", "create")`."""

    path: tuple[str, ...]
    about: str
    options: list[Option] = field(default_factory=list)
    children: list[Place] = field(default_factory=list)
    choices: tuple[str, ...] = ()
    """Words that are arguments, in whichever order."""
    values: Values = Values.ANY

    @property
    def slashed(self) -> str:
        """The path as one word; empty before the command."""
        return "".join(f"/{word}" for word in self.path)

    def all(self) -> Iterator[Place]:
        yield self
        for child in self.children:
            yield from child.all()

    def words(self) -> list[tuple[str, str]]:
        """What is no option, each with what it does."""
        own = [(child.path[-1], child.about) for child in self.children]
        return own + [(choice, "") for choice in self.choices]

    def flags(self) -> list[str]:
        return [flag for option in self.options for flag in option.flags]


def place_of(parser: argparse.ArgumentParser, path: tuple[str, ...], about: str) -> Place:
    """What this parser takes."""
    place = Place(path, about)
    choices: list[str] = []
    values = Values.ANY
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):
            abouts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, parser_of_action in action.choices.items():
                place.children.append(place_of(parser_of_action, (*path, name), _plain(abouts.get(name, ""))))
        elif action.option_strings:
            place.options.append(_option(action))
        else:
            choices += _choices(action)
            values = _values(action) if values is Values.ANY else values
    return Place(path, about, place.options, place.children, tuple(choices), values)


def _option(action: argparse.Action) -> Option:
    about = _plain(action.help or "")
    return Option(tuple(action.option_strings), about, action.nargs != 0, _choices(action), _values(action))


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(str(choice) for choice in action.choices or ())


def _values(action: argparse.Action) -> Values:
    name = str(action.metavar or action.dest).upper()
    return Values.FILES if name in _FILES else Values.FOLDERS if name in _FOLDERS else Values.ANY


def _plain(text: str) -> str:
    """On one line; argparse's own `%%` is a percent sign."""
    return " ".join(text.replace("%%", "%").split())
