"""Completion in zsh, to be sourced or as a file `_qanat` in a folder of `fpath`."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.cli.completion.quoting import pattern, single
from qanat.cli.completion.words import Option, Place, Values

_HEAD = """\
#compdef qanat
# Completion of qanat in zsh:  source <(qanat completion zsh)
_qanat() {
    local place='' word current=${words[CURRENT]} previous=${words[CURRENT-1]}
    local -a found
    for word in ${words[2,CURRENT-1]}; do
        case "$place/$word" in
"""
_VALUES = """\
        esac
    done
    if [[ $current == --*=* ]]; then
        previous=${current%%=*}
        compset -P '*='
    fi
    case "$place $previous" in
"""
_TAIL = """\
    esac
}
if [[ ${funcstack[1]} == _qanat ]]; then
    _qanat "$@"
elif (( $+functions[compdef] )); then
    compdef _qanat qanat
fi
"""
_ACTIONS = {Values.ANY: "_message value", Values.FILES: "_files", Values.FOLDERS: "_files -/"}


def script(root: Place) -> str:
    """What zsh is to read."""
    places = list(root.all())
    known = pattern(place.slashed for place in places if place.path)
    return (
        f"{_HEAD}            {known}) place=$place/$word ;;\n{_VALUES}{''.join(_of_options(places))}"
        f'        *)\n            case "$place" in\n{"".join(_of_places(places))}'
        f"            esac\n            ;;\n{_TAIL}"
    )


def _of_options(places: list[Place]) -> Iterator[str]:
    for place in places:
        for option in place.options:
            if option.takes_value:
                flags = pattern(f"{place.slashed} {flag}" for flag in option.flags)
                yield f"        {flags}) {_value(option)} ;;\n"


def _value(option: Option) -> str:
    if option.choices:
        return f"compadd -- {' '.join(map(single, option.choices))}"
    return _ACTIONS[option.values]


def _of_places(places: list[Place]) -> Iterator[str]:
    for place in places:
        yield f"                {single(place.slashed)})\n"
        flags = [_described(flag, option.about) for option in place.options for flag in option.flags]
        yield "                    if [[ $current == -* ]]; then\n"
        yield f"                        found=({' '.join(flags)})\n"
        yield "                        _describe -o option found\n"
        yield "                    else\n"
        if words := place.words():
            yield f"                        found=({' '.join(_described(*word) for word in words)})\n"
            yield "                        _describe word found\n"
        else:
            yield f"                        {_ACTIONS[place.values]}\n"
        yield "                    fi\n                    ;;\n"


def _described(word: str, about: str) -> str:
    name = word.replace(":", "\\:")
    return single(f"{name}:{about}" if about else name)
