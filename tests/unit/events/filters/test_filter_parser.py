"""Reading filters: what each form means, how it is printed, and how mistakes are shown."""

import pickle

import pytest

from qanat.events.errors import LocalError
from qanat.events.filters import ContextError, Filter, FilterError, parse
from qanat.events.filters.model import (
    Among,
    Between,
    Exists,
    Number,
    OlderThan,
    Regex,
    Term,
    Text,
    Truth,
    between,
)
from qanat.events.filters.words import MAX_CONJUNCTIONS, MAX_DEPTH, MAX_PATTERN_BYTES, MAX_TEXT_BYTES


def one(text: str) -> Term:
    ((term,),) = parse(text).conjunctions
    return term


@pytest.mark.paper("W8")
@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("exists k", Term(Exists("k"))),
        ("k = v", Term(Among("k", (Text("v"),)))),
        ("k = 'v'", Term(Among("k", (Text("v"),)))),
        ("k = ''", Term(Among("k", (Text(""),)))),
        ("k='it''s'", Term(Among("k", (Text("it's"),)))),
        ("k = 5", Term(Among("k", (Number(5),)))),
        ("k = -5.50", Term(Among("k", (Number(-5.5),)))),
        ("k = '5'", Term(Among("k", (Text("5"),)))),
        ("k = 10.0.0.1", Term(Among("k", (Text("10.0.0.1"),)))),
        ("k = 2026-01-02T03:04", Term(Among("k", (Text("2026-01-02T03:04"),)))),
        ("k = TRUE", Term(Among("k", (Truth(True),)))),
        ("k in (b, a, b)", Term(Among("k", (Text("a"), Text("b"))))),
        ("k in (a)", Term(Among("k", (Text("a"),)))),
        ("k in 1..5000", Term(Between("k", 1, 5000))),
        ("k in 1 .. 5000", Term(Between("k", 1, 5000))),
        ("k in ..5", Term(Between("k", None, 5))),
        ("k in 5..", Term(Between("k", 5, None))),
        ("k in -2.5..-1e-3", Term(Between("k", -2.5, -0.001))),
        ("k in 5..5.0", Term(Among("k", (Number(5),)))),
        ("k ~ '^a''b'", Term(Regex("k", "^a'b"))),
        ("not exists k", Term(Exists("k"), True)),
        ("not k = 5", Term(Among("k", (Number(5),)), True)),
        ("k != 5", Term(Among("k", (Number(5),)), True)),
        ("k not in 1..2", Term(Between("k", 1, 2), True)),
        ("not not exists k", Term(Exists("k"))),
        ("NOT (Exists k)", Term(Exists("k"), True)),
        ('"and" = 1', Term(Among("and", (Number(1),)))),
        ('"say ""hi""" = 1', Term(Among('say "hi"', (Number(1),)))),
        ("#S = 1", Term(Among("#S", (Number(1),)))),
        ("a/b:c.d-e_f = 1", Term(Among("a/b:c.d-e_f", (Number(1),)))),
        ("older than 90s", Term(OlderThan(90_000_000))),
    ],
)
def test_basic_tests(text: str, term: Term) -> None:
    assert one(text) == term


@pytest.mark.paper("W8")
def test_the_filters_of_the_wormhole_paper() -> None:
    cache = parse("topic = aq or exists mcd_key")
    index = parse("tableName in (t1, t2) or (associationType = a1 and shard in 1..5000)")
    assert str(cache) == "exists mcd_key or topic = 'aq'"
    assert str(index) == "associationType = 'a1' and shard in 1..5000 or tableName in ('t1', 't2')"
    assert index.names == {"tableName", "associationType", "shard"}


@pytest.mark.paper("S3")
@pytest.mark.parametrize(
    ("text", "printed", "contextual"),
    [
        ("upto 17", "upto 17", False),
        ("same key", "same key", True),
        ("KEEP LAST 100", "keep last 100", True),
        ("older than 600s", "older than 10m", True),
        ("older than 1500us", "older than 1500us", True),
        ("older than 48h", "older than 2d", True),
        ("older than 0s", "older than 0d", True),
        ("not same key and upto 5", "not same key and upto 5", True),
        ("@seq in ..5", "@seq in ..5", False),
    ],
)
def test_the_predicates_of_sprinkler(text: str, printed: str, contextual: bool) -> None:
    f = parse(text)
    assert str(f) == printed
    assert f.contextual is contextual


def test_order_and_repetition_do_not_matter() -> None:
    f = parse("b = 2 and a = 1 or c in (3, 2, 2) or a = 1 and b = 2 and a = 1")
    assert f == parse("c in (2, 3) or (a = 1) and b = 2")
    assert hash(f) == hash(parse("c in (2, 3) or a = 1 and b = 2"))
    assert f != parse("a = 1")
    assert f != "a = 1"
    assert len({f, parse(str(f))}) == 1
    assert pickle.loads(pickle.dumps(f)) == f


def test_all_and_nothing() -> None:
    assert parse("all") == parse("all and all or k = 1") == Filter([[]])
    assert parse("not all") == parse("k = 1 and not k = 1") == Filter([])
    assert str(Filter([])) == "not all"
    assert parse("all and k = 1") == parse("k = 1 or not all")


def test_not_of_a_group() -> None:
    assert parse("not (a = 1 or b = 2)") == parse("a != 1 and b != 2")
    assert parse("not (a = 1 and b = 2)") == parse("a != 1 or b != 2")
    assert parse("not (a = 1 and not (b = 2 or c = 3))") == parse("a != 1 or b = 2 or c = 3")
    assert parse("(a = 1 or b = 2) and c = 3") == parse("a = 1 and c = 3 or b = 2 and c = 3")


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 1, "the filter is empty; 'all' matches every event"),
        ("   ", 1, "the filter is empty; 'all' matches every event"),
        ("k = and x", 5, "expected a value after '='; as a value write 'and'"),
        ("k = ", 4, "expected a value after '='"),
        ("k", 2, "expected =, !=, ~ or 'in' after the name, not the end"),
        ("k 5", 3, "expected =, !=, ~ or 'in' after the name, not '5'"),
        ("= 5", 1, "expected an attribute's name, not '='"),
        ("5 = 5", 1, 'expected an attribute\'s name; as a name write "5"'),
        ("keep = 5", 6, "expected 'last' after 'keep'"),
        ("all = 5", 5, "expected 'and', 'or' or the end, not '='"),
        ("a = 1 and in = 5", 11, "'in' is a word of the language; as a name write \"in\""),
        ("a = 1 b = 2", 7, "expected 'and', 'or' or the end, not 'b'"),
        ("(a = 1", 7, "expected ')', not the end"),
        ("a = 1)", 6, "expected 'and', 'or' or the end, not ')'"),
        ("a in ()", 7, "expected a value after '('"),
        ("a in (1 2)", 9, "expected ')', not '2'"),
        ("a in 5", 7, "expected '..' to make an interval, not the end; a list needs parentheses"),
        ("a in x", 6, "expected a number or a list in parentheses after 'in'"),
        ("a in 1..x", 9, "expected a number after '..'"),
        ("a in ..", 6, "an interval has at least one end"),
        ("a in 5..1", 6, "the interval 5..1 is empty"),
        ("a = 1..5", 5, "expected a value after '='; an interval follows 'in'"),
        ("a ~ b", 5, "expected a pattern in single quotes after '~'"),
        ("a ~ '(x'", 5, "the pattern is not a regular expression: missing ): (x"),
        ("a ~ '(?=x)'", 5, "the pattern is not a regular expression: invalid perl operator: (?="),
        ("a ~ '(\n'", 5, "the pattern is not a regular expression: missing ): ( "),
        ("a = 'x", 5, "the quote is never closed"),
        ('a = "x"', 5, "a value stands in single quotes, a name in double quotes"),
        ("a < 5", 3, "there is no '<'; write an interval: k in ..5"),
        ("a = 1 && b = 1", 7, "write 'and'"),
        ("a = 1 ; b", 7, "';' has no meaning here"),
        (
            "@foo = 1",
            1,
            "there is no @foo; the columns of an event are @key, @kind, @seq, @size, @source, @time",
        ),
        ('"" = 1', 1, "an attribute's name is not empty"),
        ("a = 1e999", 5, "the number is too large"),
        ("upto x", 6, "expected a sequence number after 'upto'"),
        ("upto 99999999999999999999", 1, "99999999999999999999 is not between 0 and 18446744073709551615"),
        ("same", 5, "expected 'key' after 'same'"),
        ("keep last", 10, "expected a number of events after 'keep last'"),
        ("older than 10", 12, "expected an age like 10m after 'older than' (units us, ms, s, m, h, d)"),
        ("a = \ud800", 5, "'\\ud800' has no meaning here"),
        ("a = '\ud800'", 5, "text has no lone surrogates: it must be valid Unicode"),
    ],
)
def test_mistakes(text: str, column: int, reason: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert (caught.value.column, caught.value.reason) == (column, reason)
    assert isinstance(caught.value, LocalError)
    assert caught.value.definite


def test_the_caret_stands_under_the_mistake() -> None:
    with pytest.raises(FilterError) as caught:
        parse("k = and x")
    assert str(caught.value) == (
        "filter error at column 5: expected a value after '='; as a value write 'and'\n  k = and x\n      ^"
    )
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.column) == (str(caught.value), 5)


def test_the_caret_counts_wide_characters_and_shows_a_window_of_long_texts() -> None:
    with pytest.raises(FilterError) as caught:
        parse("漢字 = 1 and\n漢 < 5")
    assert str(caught.value).split("\n")[1:] == ["  漢字 = 1 and 漢 < 5", "  " + " " * 16 + "^"]
    long = " or ".join(f"name{i} = {i}" for i in range(100))
    with pytest.raises(FilterError) as caught:
        parse(long + " or <")
    _, shown, caret = str(caught.value).split("\n")
    assert len(shown) < 80
    assert shown[2] == "…"
    assert shown[caret.index("^")] == "<"


def test_limits() -> None:
    with pytest.raises(FilterError, match=f"at most {MAX_TEXT_BYTES} bytes"):
        parse("k = '" + "x" * MAX_TEXT_BYTES + "'")
    with pytest.raises(FilterError, match="nested more than"):
        parse("(" * (MAX_DEPTH + 1) + "k = 1" + ")" * (MAX_DEPTH + 1))
    assert parse("(" * MAX_DEPTH + "k = 1" + ")" * MAX_DEPTH) == parse("k = 1")
    with pytest.raises(FilterError, match="at most 1024 bytes"):
        parse("k ~ '" + "x" * (MAX_PATTERN_BYTES + 1) + "'")
    with pytest.raises(FilterError, match="alternatives"):
        parse(" and ".join(f"(a{i} = 1 or b{i} = 1)" for i in range(11)))
    assert len(parse(" and ".join(f"(a{i} = 1 or b{i} = 1)" for i in range(8))).conjunctions) == 256
    assert (
        len(parse(" or ".join(f"a = {i}" for i in range(MAX_CONJUNCTIONS))).conjunctions) == MAX_CONJUNCTIONS
    )
    with pytest.raises(FilterError, match="alternatives"):
        parse(" or ".join(f"a = {i}" for i in range(MAX_CONJUNCTIONS + 1)))
    word = "x" * 1000
    with pytest.raises(FilterError, match="normal form is longer"):
        parse(" and ".join(f"(a{i} = {word} or b{i} = {word})" for i in range(6)))


def test_numbers_have_one_form() -> None:
    assert parse("k = 5.0") == parse("k = 5") == parse("k = 05") == parse("k = 5e0")
    assert parse("k = -0.0") == parse("k = 0")
    assert parse("k = 9007199254740993") != parse("k = 9007199254740992")
    assert str(parse("k = 18446744073709551615")) == "k = 18446744073709551615"
    assert str(parse("k = 18446744073709551616")) == "k = 1.8446744073709552e+19"
    assert str(parse("k = " + "0" * 5000 + "7")) == "k = 7"


def test_a_filter_made_by_hand_is_held_to_the_same_rules() -> None:
    for make in (
        lambda: Exists(""),
        lambda: Exists("@nope"),
        lambda: Text("\ud800"),
        lambda: Among("k", ()),
        lambda: Between("k", 5, 5),
        lambda: Between("k", None, None),
        lambda: between("k", 2, 1),
        lambda: Number(float("nan")),
        lambda: Number(10**400),
        lambda: Regex("k", "("),
        lambda: OlderThan(-1),
    ):
        with pytest.raises(FilterError):
            make()


def test_context_errors_are_filter_errors() -> None:
    assert issubclass(ContextError, FilterError)
