"""Completion in bash, from version 3.2 on, which macOS has."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.cli.completion.quoting import pattern, single
from qanat.cli.completion.words import Place, Values

_HEAD = """\
# Completion of qanat in bash:  source <(qanat completion bash)
_qanat() {
    local IFS=$' \\t\\n' path='' words='' values='any' at word
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    COMPREPLY=()
    for ((at = 1; at < COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
        case "$path/$word" in
"""
_VALUES = """\
        esac
    done
    if [[ $current == '=' ]]; then
        current=''
    elif [[ $previous == '=' && $COMP_CWORD -ge 2 ]]; then
        previous=${COMP_WORDS[COMP_CWORD-2]}
    fi
    case "$path $previous" in
"""
_WORDS = """\
        *)
            case "$path" in
"""
_TAIL = """\
            esac
            ;;
    esac
    if [[ -n $words ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$current"))
    elif [[ $values == folders ]]; then
        compopt -o dirnames +o default 2>/dev/null
    elif [[ $values == any ]]; then
        compopt +o default 2>/dev/null
    fi
}
complete -o default -F _qanat qanat ./qanat
"""


def script(root: Place) -> str:
    """What bash is to read."""
    places = list(root.all())
    known = pattern(place.slashed for place in places if place.path)
    lines = [f"            {known}) path=$path/$word ;;"]
    return (
        _HEAD
        + "\n".join(lines)
        + "\n"
        + _VALUES
        + "".join(_of_options(places))
        + _WORDS
        + "".join(_of_places(places))
        + _TAIL
    )


def _of_options(places: list[Place]) -> Iterator[str]:
    for place in places:
        for option in place.options:
            if option.takes_value:
                flags = pattern(f"{place.slashed} {flag}" for flag in option.flags)
                words = single(" ".join(option.choices))
                yield f"        {flags}) words={words} values={option.values.value} ;;\n"


def _of_places(places: list[Place]) -> Iterator[str]:
    for place in places:
        words = " ".join(word for word, _ in place.words())
        yield f"                {single(place.slashed)})\n"
        yield f"                    words={single(words)} values={_values(place).value}\n"
        yield f"                    [[ $current == -* ]] && words={single(' '.join(place.flags()))}\n"
        yield "                    ;;\n"


def _values(place: Place) -> Values:
    return Values.ANY if place.words() else place.values
