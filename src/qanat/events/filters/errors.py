"""The errors of the predicate language: a filter that cannot be read, and one that cannot be evaluated
here."""

import unicodedata

from qanat.events.errors import LocalError

_WINDOW = 72  # characters of a long filter shown around the mistake


class FilterError(LocalError):
    """A filter that cannot be parsed, or that breaks a limit; where there is a text it points at the column.

    `reason` is the sentence alone; `column` counts characters from 1, or is None when no text is at fault.
    """

    def __init__(self, reason: str, text: str | None = None, at: int | None = None) -> None:
        reason = self.reason = _printable(reason)
        self.text = text
        self.column = None if at is None else at + 1
        if text is None or at is None:
            super().__init__(f"filter error: {reason}")
        else:
            super().__init__(f"filter error at column {at + 1}: {reason}\n{_excerpt(text, at)}")

    def __reduce__(self) -> tuple[object, ...]:
        # The default would hand the whole message back as the reason.
        at = None if self.column is None else self.column - 1
        return type(self), (self.reason, self.text, at)


class ContextError(FilterError):
    """A filter that speaks of its garbage collection event, used where there is none."""


def _excerpt(text: str, at: int) -> str:
    start = max(0, min(at - _WINDOW // 2, len(text) - _WINDOW))
    stop = start + _WINDOW
    # One character of text is one character of the line, so that the caret stands where the column says.
    shown = _printable(text[start:stop])
    before, after = ("…" if start else ""), ("…" if stop < len(text) else "")
    indent = _width(before) + _width(shown[: at - start])
    return f"  {before}{shown}{after}\n  {' ' * indent}^"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _width(text: str) -> int:
    """Columns of a terminal that the text takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )
