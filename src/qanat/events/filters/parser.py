"""From text to a filter: a recursive descent over the tokens, then the unfolding to an OR of ANDs.

The grammar is in docs/filters.md. A mistake raises `FilterError`, which points at the column.
"""

import re
from collections.abc import Callable
from typing import NoReturn, TypeAlias, TypeVar

from qanat.events.filters import normal, numerals
from qanat.events.filters.errors import FilterError
from qanat.events.filters.lexer import Token, tokens
from qanat.events.filters.model import (
    Among,
    Exists,
    Filter,
    KeepLast,
    Literal,
    Number,
    OlderThan,
    Regex,
    SameKey,
    Test,
    Text,
    Truth,
    UpTo,
    between,
)
from qanat.events.filters.words import MAX_DEPTH, MAX_TEXT_BYTES, RESERVED, UNITS_US

_COUNT = re.compile(r"[0-9]{1,20}")
_AGE = re.compile(rf"([0-9]{{1,20}})({'|'.join(UNITS_US)})", re.IGNORECASE)

_T = TypeVar("_T")
Node: TypeAlias = normal.Node


def parse(text: str) -> Filter:
    """The filter that the text describes; raises `FilterError` with the column of the mistake."""
    if len(text) > MAX_TEXT_BYTES or len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
        raise FilterError(f"a filter has at most {MAX_TEXT_BYTES} bytes, and this one has more")
    return _Parser(text).filter()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.next, self.depth = text, tokens(text), 0, 0

    # --- the grammar, one method per rule -----------------------------------------------------------

    def filter(self) -> Filter:
        if self.peek().kind == "end":
            self.fail("the filter is empty; 'all' matches every event")
        node = self.either()
        if self.peek().kind != "end":
            self.fail(f"expected 'and', 'or' or the end, not {self.peek().shown}")
        return self.place(lambda: normal.unfold(node), self.tokens[0])

    def either(self) -> Node:
        parts = [self.both()]
        while self.word("or"):
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else normal.Group("or", tuple(parts))

    def both(self) -> Node:
        parts = [self.unary()]
        while self.word("and"):
            parts.append(self.unary())
        return parts[0] if len(parts) == 1 else normal.Group("and", tuple(parts))

    def unary(self) -> Node:
        negated = False
        while self.word("not"):
            negated = not negated
        if self.mark("("):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                self.fail(f"parentheses are nested more than {MAX_DEPTH} deep", self.tokens[self.next - 1])
            node = self.either()
            self.expect(")")
            self.depth -= 1
        elif self.word("all"):
            node = normal.Group("and", ())
        else:
            node = self.basic()
        return normal.Negation(node) if negated else node

    def basic(self) -> Node:
        start = self.peek()
        if self.word("exists"):
            name = self.name()
            return self.place(lambda: Exists(name), start)
        if self.word("upto"):
            seq = self.count("a sequence number", "upto")
            return self.place(lambda: UpTo(seq), start)
        if self.word("same"):
            self.expect_word("key", "same")
            return SameKey()
        if self.word("keep"):
            self.expect_word("last", "keep")
            count = self.count("a number of events", "keep last")
            return self.place(lambda: KeepLast(count), start)
        if self.word("older"):
            self.expect_word("than", "older")
            return self.age()
        name = self.name()
        return self.compare(name, start)

    def compare(self, name: str, start: Token) -> Node:
        if self.mark("="):
            value = self.value("'='")
            return self.place(lambda: Among(name, (value,)), start)
        if self.mark("!="):
            value = self.value("'!='")
            return normal.Negation(self.place(lambda: Among(name, (value,)), start))
        if self.mark("~"):
            token = self.take()
            if token.kind != "text":
                self.fail("expected a pattern in single quotes after '~'", token)
            self.place(lambda: Exists(name), start)
            return self.place(lambda: Regex(name, token.value), token)
        negated = self.word("not")
        if self.word("in"):
            test = self.members(name, start)
            return normal.Negation(test) if negated else test
        return self.fail(f"expected =, !=, ~ or 'in' after the name, not {self.peek().shown}")

    def members(self, name: str, start: Token) -> Test:
        if self.mark("("):
            values = [self.value("'('")]
            while self.mark(","):
                values.append(self.value("','"))
            self.expect(")")
            return self.place(lambda: Among(name, tuple(values)), start)
        first = self.peek()
        low = None if first.kind == "range" else self.end("a number or a list in parentheses", "'in'")
        if self.take_if("range") is None:
            self.fail(f"expected '..' to make an interval, not {self.peek().shown}; a list needs parentheses")
        ends = self.peek().kind == "word" and self.peek().value.lower() not in RESERVED
        high = self.end("a number", "'..'") if ends else None
        return self.place(lambda: between(name, low, high), first)

    # --- words and values ---------------------------------------------------------------------------

    def name(self) -> str:
        token = self.take()
        if token.kind == "name":
            return token.value
        if token.kind != "word":
            self.fail(f"expected an attribute's name, not {token.shown}", token)
        if token.value.lower() in RESERVED:
            self.fail(f'{token.value!r} is a word of the language; as a name write "{token.value}"', token)
        if numerals.is_numeral(token.value):
            self.fail(f'expected an attribute\'s name; as a name write "{token.value}"', token)
        return token.value

    def value(self, after: str) -> Literal:
        token = self.take()
        if token.kind == "text":
            return self.place(lambda: Text(token.value), token)
        if token.kind == "name":
            self.fail("a value stands in single quotes, a name in double quotes", token)
        if token.kind != "word":
            self.fail(f"expected a value after {after}", token)
        word = token.value
        if word.lower() in ("true", "false"):
            return Truth(word.lower() == "true")
        if word.lower() in RESERVED:
            self.fail(f"expected a value after {after}; as a value write '{word}'", token)
        if self.peek().kind == "range":
            self.fail(f"expected a value after {after}; an interval follows 'in'", token)
        if numerals.is_numeral(word):
            return Number(self.number(token))
        return self.place(lambda: Text(word), token)

    def end(self, what: str, after: str) -> int | float:
        token = self.take()
        if token.kind != "word" or not numerals.is_numeral(token.value):
            self.fail(f"expected {what} after {after}", token)
        return self.number(token)

    def number(self, token: Token) -> int | float:
        value = numerals.read(token.value)
        if value is None:
            self.fail("the number is too large", token)
        return value

    def count(self, what: str, after: str) -> int:
        token = self.take()
        if token.kind != "word" or not _COUNT.fullmatch(token.value):
            self.fail(f"expected {what} after '{after}'", token)
        return int(token.value)

    def age(self) -> Test:
        token = self.take()
        found = _AGE.fullmatch(token.value) if token.kind == "word" else None
        if found is None:
            self.fail("expected an age like 10m after 'older than' (units us, ms, s, m, h, d)", token)
        return self.place(lambda: OlderThan(int(found[1]) * UNITS_US[found[2].lower()]), token)

    # --- tokens -------------------------------------------------------------------------------------

    def peek(self) -> Token:
        return self.tokens[self.next]

    def take(self) -> Token:
        token = self.tokens[self.next]
        if token.kind != "end":
            self.next += 1
        return token

    def take_if(self, kind: str) -> Token | None:
        return self.take() if self.peek().kind == kind else None

    def word(self, word: str) -> bool:
        token = self.peek()
        if token.kind == "word" and token.value.lower() == word:
            self.next += 1
            return True
        return False

    def mark(self, mark: str) -> bool:
        token = self.peek()
        if token.kind == "mark" and token.value == mark:
            self.next += 1
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.mark(mark):
            self.fail(f"expected {mark!r}, not {self.peek().shown}")

    def expect_word(self, word: str, after: str) -> None:
        if not self.word(word):
            self.fail(f"expected '{word}' after '{after}'")

    def fail(self, reason: str, token: Token | None = None) -> NoReturn:
        raise FilterError(reason, self.text, (token or self.peek()).at)

    def place(self, make: Callable[[], _T], token: Token) -> _T:
        """What `make` makes; where it refuses, the error gets the token's place."""
        try:
            return make()
        except FilterError as error:
            raise FilterError(error.reason, self.text, token.at) from None
