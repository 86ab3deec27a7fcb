"""SQL expressions: what is allowed, its type and value, and records without a value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.expressions.sql.compiling import compile_expressions
from bicycle_runtime.expressions.sql.steps import (
    ComputedFields,
    ExpressionFailedError,
    ExpressionInvalidError,
)
from bicycle_runtime.expressions.sql.tree import to_text

FIELDS = {
    "x": "float", "n": "int", "name": "string", "p": "json", "at": "timestamp", "ok": "bool",
}  # fmt: skip
ADA = {
    "x": 1.5, "n": 4, "name": "Ada", "ok": True, "at": "2026-01-01T01:00:00+01:00",
    "p": {"user": {"id": 7, "tags": ["a", "b"]}, "a b": True},
}  # fmt: skip
NOBODY = {"n": None}
INT_MAX, INT_MIN = 2**63 - 1, -(2**63)


def value(text, *records):
    """Return type and values of an expression."""
    compiled = compile_expressions({"it": text}, FIELDS)
    found = ComputedFields(compiled).results(list(records))
    return compiled.types[0], [each if isinstance(each, Exception) else each[0] for each in found]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("x * 1.8 + 32", "float", 34.7),
        ("lower(name)", "string", "ada"),
        ("CASE WHEN n > 3 THEN 'many' ELSE 'few' END", "string", "many"),
        ("CASE n WHEN 4 THEN 1 END", "int", 1),
        ("n / 3", "int", 1),
        ("n % 3", "int", 1),
        ("-n", "int", -4),
        ("abs(-n)", "int", 4),
        ("round(x + 0.04, 1)", "float", 1.5),
        ("floor(x)", "float", 1.0),
        ("ceil(x)", "float", 2.0),
        ("n BETWEEN 1 AND 5 AND ok", "bool", True),
        ("name IN ('Ada', 'Bob')", "bool", True),
        ("name LIKE 'A%' OR name ILIKE '%x%'", "bool", True),
        ("NOT ok", "bool", False),
        ("name IS NULL", "bool", False),
        ("name || '!' ", "string", "Ada!"),
        ("concat(name, '-', name)", "string", "Ada-Ada"),
        ("coalesce(name, 'nobody')", "string", "Ada"),
        ("nullif(n, 4)", "int", None),
        ("length(trim(name))", "int", 3),
        ("substring(name, 2, 1)", "string", "d"),
        ("left(name, 1) || right(name, 1)", "string", "Aa"),
        ("replace(name, 'A', 'B')", "string", "Bda"),
        ("upper(name)", "string", "ADA"),
        ("starts_with(name, 'A')", "bool", True),
        ("position('d' in name)", "int", 2),
        ("cast('12' AS int) + n", "int", 16),
        ("try_cast(name AS double)", "float", None),
        ("cast(n AS varchar)", "string", "4"),
        ("p->>'$.user.id'", "string", "7"),
        ("p->'user'->'tags'->>1", "string", "b"),
        ("p->'$.user.tags'", "string", '["a","b"]'),
        ("p->>'$.user.none.deeper'", "string", None),
        ("cast(p->>'$.user.id' AS int) * 2", "int", 14),
        ("p", "string", '{"user":{"id":7,"tags":["a","b"]},"a b":true}'),
        ("at", "timestamp", "2026-01-01T00:00:00Z"),
        ("at < '2026-06-01'", "bool", True),
        ("5", "int", 5),
        ("NULL IS NULL", "bool", True),
    ],
)
def test_an_expression_has_a_type_and_a_value(text, kind, expected):
    assert value(text, ADA) == (kind, [expected])


def test_a_field_that_a_record_lacks_is_null():
    assert value("x + n", NOBODY, {}) == ("float", [None, None])
    assert value("coalesce(name, '?')", NOBODY) == ("string", ["?"])
    assert value("name = 'x'", NOBODY) == ("bool", [None])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("now()", "not a supported function"),
        ("random()", "not a supported function"),
        ("xyz(n)", "not a supported function; functions may depend only on the record"),
        (
            "lenght(name)",
            "(line 1, column 1): it is not a supported function; did you mean 'length'?",
        ),
        ("sum(n)", "an expression sees a single record"),
        ("SELECT 1", "not an expression of a single record"),
        ("n IN (SELECT 1)", "not an expression of a single record"),
        ("row_number() OVER ()", "is not allowed"),
        ("nmae", "there is no field 'nmae'; the record has at, n, name, ok, p, x"),
        ("t.n", "fields have no table"),
        (
            "n + name",
            "n + name (line 1, column 1) computes with BIGINT and VARCHAR; cast to a number",
        ),
        ("name = 1", "compares VARCHAR with BIGINT; cast one of them"),
        ("name > ok", "compares VARCHAR with BOOLEAN"),
        ("x +", "invalid SQL"),
        ("1; 2", "it must be a single expression"),
        ("", "it must be a single expression"),
        ("cast(n AS date)", "a cast of BIGINT to DATE is not supported"),
        ("name->>'$.a'", "a path must begin with a field of the type json"),
        ("p->>'$.a[*]'", "only keys and numbers (line 1, column 1)"),
        (
            "n > 1 AND p->>'/a/b' = '1'",
            "the path /a/b begins with a slash; write a path such as $.key (line 1, column 11)",
        ),
        ("p->>'$a'", "the path $a may contain only keys and numbers"),
        ("p->>1.5", "the path 1.5 may contain only keys and numbers"),
        ("$1", "is not allowed"),
        ("[n]", "it returns BIGINT[], which is not a type of fields; cast it"),
    ],
)
def test_what_is_no_function_of_one_record_is_refused(text, problem):
    with pytest.raises(ExpressionInvalidError) as found:
        compile_expressions({"good": "n", "bad": text}, FIELDS)

    assert found.value.name == "bad"
    assert problem in str(found.value)


@given(
    st.integers(INT_MIN, INT_MAX), st.integers(INT_MIN, INT_MAX), st.sampled_from(["+", "-", "*"])
)
def test_whole_numbers_never_overflow_in_silence(a, b, sign):
    compiled = compile_expressions({"it": f"a {sign} b"}, {"a": "int", "b": "int"})
    wanted = {"+": a + b, "-": a - b, "*": a * b}[sign]

    (found,) = ComputedFields(compiled).results([{"a": a, "b": b}])

    if INT_MIN <= wanted <= INT_MAX:
        assert found == (wanted,)
    else:
        assert isinstance(found, ExpressionFailedError)


def test_bad_records_are_found_and_their_neighbours_kept():
    records = [{"n": n % 50} for n in range(400)]

    _, found = value("100 / n", *records)

    bad = [index for index, each in enumerate(found) if isinstance(each, Exception)]
    assert bad == [0, 50, 100, 150, 200, 250, 300, 350]
    assert found[1] == 100
    assert str(found[0]) == "divide by zero error"


def test_values_of_another_type_are_bad_records():
    _, found = value("n + 1", {"n": "many"}, {"n": 1.5}, {"n": 2})

    assert [isinstance(each, ExpressionFailedError) for each in found] == [True, True, False]


def test_a_compiled_expression_is_plain_data():
    compiled = compile_expressions({"a": "x + n", "b": "n"}, FIELDS)

    assert compiled.types == ("float", "int")
    n = '{"sql.column":["BIGINT",{"field_or":["n",{"literal":[null]}]}]}'
    assert to_text(compiled.trees[1]) == n
