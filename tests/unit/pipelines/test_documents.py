"""Where keys and values stand, and that both notations give the same data."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.endpoints.values import duration_ms
from bicycle_runtime.pipelines.conversion import write_document
from bicycle_runtime.pipelines.documents import read_document, toml_positions
from bicycle_runtime.pipelines.errors import PIPELINE_UNREADABLE
from tests.raising import raises

TOML = '''\
a = 1
b.c = "x # no comment"   # a comment
[t."odd key"]
d = [ 1, [2,
   3], { e = 4, f = "]" } ]
g = """
[no.table]
"""
[[rows]]
n = 1
[rows.deep]
m = 1
[[rows]]
n = 2
'''


@pytest.mark.parametrize("word", [".inf", "+.Inf", "-.INF", ".nan", ".NaN", "-1.5e3"])
def test_numbers_of_yaml_are_those_of_toml(word):
    found = read_document(f"a: {word}\nb: '{word}'\nc: {word}x", file="f", notation="yaml").data
    same = read_document(f"a = {word.lower().replace('.i', 'i').replace('.n', 'n')}", file="f",
                         notation="toml").data  # fmt: skip

    assert repr(found["a"]) == repr(same["a"])
    assert (found["b"], found["c"]) == (word, f"{word}x")


def test_numbers_without_an_end_stay_in_either_notation():
    data = {"a": [math.inf, -math.inf, ".inf", ".nan", "inf", "nan"]}

    for notation in ("toml", "yaml"):
        text = write_document(data, notation)
        assert read_document(text, file="f", notation=notation).data == data


def test_places_of_toml():
    keys, values = toml_positions(TOML)

    assert keys["a",] == (1, 1)
    assert values["b", "c"] == (2, 7)
    assert keys["t", "odd key"] == (3, 1)
    assert values["t", "odd key", "d", 1, 1] == (5, 4)
    assert keys["t", "odd key", "d", 2, "f"] == (5, 17)
    assert values["t", "odd key", "g"] == (6, 5)
    assert ("no",) not in keys
    assert keys["rows", 0, "deep", "m"] == (12, 1)
    assert keys["rows", 1, "n"] == (14, 1)


def test_yaml_has_no_surprises():
    text = "on: no\ntime: 12:30\nday: 2024-01-01\noctal: 010\nempty:\nbig: 1e3\nyes: true\n"

    found = read_document(text, file="f", notation="yaml").data

    assert found == {
        "on": "no", "time": "12:30", "day": "2024-01-01", "octal": 10, "empty": None,
        "big": 1000.0, "yes": True,
    }  # fmt: skip


def test_times_of_toml_are_texts():
    found = read_document("at = 2024-01-01T00:00:00Z", file="f", notation="toml").data

    assert found == {"at": "2024-01-01T00:00:00+00:00"}


def test_durations_have_units_and_seconds_without():
    found = [duration_ms(text) for text in ("500ms", "10s", "2m", "1h", "42", "1.5s", 3, "2d")]

    assert found == [500, 10_000, 120_000, 3_600_000, 42_000, 1_500, 3_000, 172_800_000]


@pytest.mark.parametrize(
    "text",
    ["a." * 200_000 + "a = 1", "[" + "a." * 60 + "a]", "x = {" + '"a=" . ' * 60 + "a = 1}",
     "'.'." * 100_000 + "a = 1"],
    ids=["key", "header", "inline", "quoted"],
)  # fmt: skip
def test_keys_of_endless_parts_are_refused_before_they_are_read(text):
    with raises(PIPELINE_UNREADABLE, match="f:1: its values are nested too deep"):
        read_document(text, file="f", notation="toml")


@pytest.mark.parametrize(
    "text", ['"' + '\\"' * 400_000, '"""' + '\\"""' * 200_000, "'''" + "''x" * 200_000]
)
def test_a_text_in_quotes_without_an_end_is_read_once(text):
    with raises(PIPELINE_UNREADABLE, match=r"f:\d+: invalid TOML"):
        read_document(f"a = {text}", file="f", notation="toml")


def test_dots_in_values_are_no_parts_of_a_key():
    text = "\n".join(["a = [" + "1.5, " * 100 + "]", f"b = '{'.' * 100}'", f'c = "{"x." * 100}"'])

    assert len(read_document(text, file="f", notation="toml").data["a"]) == 100


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_dots_in_comments_and_in_texts_of_several_lines_are_no_parts_of_a_key(quotes):
    dots = "." * 60
    lines = [f'# {dots} "', f"a = {quotes}", f'it\'s{dots} "x" # {dots}', f"{quotes} # {dots}"]

    assert read_document("\n".join(lines), file="f", notation="toml").data == {"a": lines[2] + "\n"}
    deep = f"{lines[1]}\n{quotes}{quotes[0]}\n{'a.' * 60}a = 1"
    with raises(PIPELINE_UNREADABLE, match="f:1: its values are nested too deep"):
        read_document(deep, file="f", notation="toml")


@pytest.mark.parametrize("notation", ["toml", "yaml"])
def test_values_that_are_nested_too_deep_are_refused(notation):
    value = "[" * 3_000 + "]" * 3_000
    text = f"a = {value}" if notation == "toml" else f"a: {value}"

    with raises(PIPELINE_UNREADABLE, match="f:1: its values are nested too deep"):
        read_document(text, file="f", notation=notation)


_WORDS = st.text("abc_-1", min_size=1, max_size=5)
_VALUES = st.recursive(
    st.integers(-9, 9) | st.booleans() | st.text("ab#]}\"'\\ ,=", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_WORDS, _VALUES, max_size=5))
def test_every_value_of_toml_has_its_place(data):
    import tomlkit

    text = tomlkit.dumps(data)
    document = read_document(text, file="f", notation="toml")

    def visit(value, path):
        if path:
            assert path in document.values or path in document.keys
        if isinstance(value, dict):
            for key, item in value.items():
                visit(item, (*path, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                visit(item, (*path, index))

    visit(document.data, ())
    assert document.data == data
