"""Completion in fish."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.cli.completion.quoting import of_fish
from qanat.cli.completion.words import Option, Place, Values

_HEAD = """\
# Completion of qanat in fish:  qanat completion fish | source
function __qanat_at
    set -l place ''
    for word in (commandline -opc)[2..-1]
        if contains -- $place/$word $__qanat_places
            set place $place/$word
        end
    end
    test "$place" = "$argv[1]"
end
complete -c qanat -e
complete -c qanat -f
"""
_ACTIONS = {Values.ANY: "", Values.FILES: " -F", Values.FOLDERS: " -a '(__fish_complete_directories)'"}


def script(root: Place) -> str:
    """What fish is to read."""
    places = list(root.all())
    known = " ".join(of_fish(place.slashed) for place in places if place.path)
    lines = [line for place in places for line in _lines(place)]
    return f"{_HEAD}set -g __qanat_places {known}\n" + "\n".join(lines) + "\n"


def _lines(place: Place) -> Iterator[str]:
    here = f"complete -c qanat -n {of_fish(f'__qanat_at {of_fish(place.slashed)}')}"
    for word, about in place.words():
        yield f"{here} -a {of_fish(word)}{_about(about)}"
    if not place.words() and place.values is not Values.ANY:
        yield f"{here}{_ACTIONS[place.values]}"
    for option in place.options:
        yield f"{here}{_flags(option)}{_value(option)}{_about(option.about)}"


def _flags(option: Option) -> str:
    return "".join(
        f" -l {of_fish(flag[2:])}" if flag.startswith("--") else f" -s {of_fish(flag[1:])}"
        for flag in option.flags
    )


def _value(option: Option) -> str:
    if not option.takes_value:
        return ""
    if option.choices:
        return f" -x -a {of_fish(' '.join(option.choices))}"
    return (
        " -r" + _ACTIONS[option.values] if option.values is Values.FILES else f" -x{_ACTIONS[option.values]}"
    )


def _about(text: str) -> str:
    return f" -d {of_fish(text)}" if text else ""
