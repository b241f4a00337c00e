"""Regular expressions of filters: RE2, which never backtracks, so that no pattern can hang a server."""

import functools

import pyarrow as pa
import pyarrow.compute as pc

# Arrow compiles a pattern only when there is a value to search. From a list it would first import pandas, if
# that is installed.
_ONE = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])


@functools.lru_cache(maxsize=4096)
def refusal(pattern: str) -> str | None:
    """Why RE2 refuses the pattern, or None when it is good."""
    try:
        pc.match_substring_regex(_ONE, pattern)
    except pa.ArrowInvalid as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return None


def search(values: pa.Array, pattern: str) -> pa.BooleanArray:
    """Whether the pattern is found anywhere in each text; null stays null."""
    return pc.match_substring_regex(values, pattern)


def found(text: str, pattern: str) -> bool:
    """`search` for one text."""
    return bool(search(pa.array([text], pa.string()), pattern)[0].as_py())
