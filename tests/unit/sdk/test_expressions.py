"""Expressions: what they give for a record, how they read, and what is refused at once."""

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import pytest

from bicycle_sdk import StreamDefinitionError, StreamEnvironment, col, lit
from bicycle_sdk.expressions import together
from bicycle_sdk.windows import Average, Sum

HERE = Path(__file__).name


@dataclass
class Sale:
    shop: str
    cents: int
    share: float
    note: str | None = None

    @property
    def euros(self) -> float:
        return self.cents / 100


class Document(TypedDict):
    shop: str
    cents: int


SALE = Sale("Ulm", 250, 0.125)


@pytest.mark.parametrize(
    ("expression", "value", "text"),
    [
        (col("cents") * 2 > 400, True, "(col('cents') * 2) > 400"),
        (1 + col("cents") - 1, 250, "(1 + col('cents')) - 1"),
        (100 / col("cents") // 1 % 3, 0.0, "((100 / col('cents')) // 1) % 3"),
        (10**20 * col("cents"), 25 * 10**21, "100000000000000000000 * col('cents')"),
        (-col("cents"), -250, "-col('cents')"),
        (abs(-col("share")), 0.125, "abs(-col('share'))"),
        (col("share").round(2), 0.12, "col('share').round(2)"),
        (col("share").round(), 0, "col('share').round()"),
        (col("note").is_null() & ~(col("shop") == "Bonn"), True,
         "col('note').is_null() & ~(col('shop') == 'Bonn')"),
        (col("shop").lower().is_in(["ulm"]) | (col("cents") <= 0), True,
         "col('shop').lower().is_in(('ulm',)) | (col('cents') <= 0)"),
        ("<" + col("shop").upper() + "-" + col("cents").text() + ">", "<ULM-250>", None),
        (together(col("shop"), 7), ("Ulm", 7), "(col('shop'), 7)"),
        (lit(3) != col("cents"), True, "3 != col('cents')"),
        (col("euros"), 2.5, "col('euros')"),
    ],
)  # fmt: skip
def test_an_expression_is_a_function_of_a_record_and_shows_how_it_was_written(
    expression, value, text
):
    assert expression(SALE) == value
    assert text is None or repr(expression) == text
    again = pickle.loads(pickle.dumps(expression))
    assert (again(SALE), repr(again)) == (value, repr(expression))


def test_fields_of_dicts_are_looked_up_by_name():
    assert (col("a b") + 1)({"a b": 2}) == 3


def test_a_pickle_is_small():
    assert len(pickle.dumps((col("price") * col("quantity") > 10) & ~col("note").is_null())) < 300


@pytest.mark.parametrize("values", [(1, True), (True, 1), (None, True)])
def test_and_and_or_take_conditions_only(values):
    for expression in (col("a") & col("b"), col("a") | col("b")):
        with pytest.raises(TypeError, match="not a condition"):
            expression(dict(zip("ab", values, strict=True)))


@pytest.mark.parametrize(
    "ask",
    [
        lambda e: e and e,
        lambda e: e or e,
        lambda e: not e,
        lambda e: 1 < e < 3,
        lambda e: "a" in e,
        list,
    ],
)
def test_what_asks_for_one_answer_is_refused_with_words(ask):
    with pytest.raises(StreamDefinitionError) as caught:
        ask(col("price") > 1)

    assert "a value for each record" in caught.value.facts["problem"]
    assert HERE in caught.value.facts["location"]


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_column_has_a_name(name):
    with pytest.raises(StreamDefinitionError):
        col(name)


def sales(record_type=Sale):
    return StreamEnvironment().read_jsonl("/nowhere", type=record_type)


def windows(**settings):
    return sales(**settings).key_by(col("shop")).tumbling_window(10)


@pytest.mark.parametrize("record_type", [Sale, Document])
@pytest.mark.parametrize(
    "build",
    [
        lambda made: made.filter(col("sents") > 1),
        lambda made: made.map(col("sents")),
        lambda made: made.map(shop=col("shop"), sents=col("sents")),
        lambda made: made.key_by(col("sents")),
        lambda made: made.key_by(col("shop"), col("sents")),
        lambda made: made.assign_timestamps(col("sents")),
        lambda made: made.key_by(col("shop")).tumbling_window(9).sum(col("sents")),
        lambda made: made.key_by(col("shop")).tumbling_window(9).aggregate(Average(col("sents"))),
    ],
)
def test_a_name_that_records_do_not_have_is_refused_at_the_users_line(build, record_type):
    with pytest.raises(StreamDefinitionError) as caught:
        build(sales(record_type))

    assert "have no field 'sents'" in caught.value.facts["problem"]
    assert "col('cents')" in str(caught.value)
    assert HERE in caught.value.facts["location"]


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        (col("shop") + 1, "adds a number to a text"),
        (col("shop") - 1, "computes with a text"),
        (col("shop") * 1.5, "computes with a text"),
        (-(col("shop") + "x"), "computes with a text"),
        (col("shop") < col("cents"), "compares a text with a number"),
        ((col("cents") > 1) & col("share"), "not conditions"),
        (~col("cents"), "not conditions"),
        (col("cents").lower(), "applies a text function to a number"),
        ((col("cents") * 1.0).upper(), "applies a text function to a number"),
    ],
)
def test_what_no_record_can_compute_is_refused(expression, word):
    with pytest.raises(StreamDefinitionError) as caught:
        sales().map(expression)

    assert word in caught.value.facts["problem"]
    assert repr(expression) in caught.value.facts["problem"]


@pytest.mark.parametrize(
    "expression",
    [col("euros"), col("note") + 1, col("shop") * 3, col("shop") == 3, col("cents") + True,
     col("note").lower(), (col("cents") > 1) | col("note").is_null()],
)  # fmt: skip
def test_what_might_be_right_is_taken(expression):
    assert sales().map(expression) is not None
    assert sales(record_type=None).map(expression) is not None


def test_a_record_without_fields_has_no_columns():
    with pytest.raises(StreamDefinitionError, match="no field"):
        StreamEnvironment().from_collection(["a"]).filter(col("name") == "a")


def test_a_map_takes_a_function_or_columns():
    for wrong in ({}, {"function": str, "more": col("shop")}):
        with pytest.raises(StreamDefinitionError):
            sales().map(**wrong)


def test_several_keys_are_expressions():
    with pytest.raises(StreamDefinitionError, match="not an expression"):
        sales().key_by(col("shop"), lambda sale: sale.cents)


def test_the_graph_shows_what_was_written():
    env = StreamEnvironment()
    made = env.from_collection([{"a": 1}]).filter(col("a") > 1).map(b=col("a") * 2)
    made.key_by(col("b"), col("b") + 1).tumbling_window(5).sum(col("b")).print()
    vertices = {vertex.kind.value: vertex for vertex in env.execute("demo").vertices}

    assert vertices["Filter"].plugin_function == "col('a') > 1"
    assert vertices["Map"].plugin_function == "b=col('a') * 2"
    assert vertices["KeyBy"].details["key_selector"] == "(col('b'), col('b') + 1)"


def test_aggregates_take_expressions():
    assert Sum(col("cents")).add_all(Sum(col("cents")).create_accumulator(), [1, 2]) == (3, ())


def test_an_unknown_method_is_an_error_with_the_nearest_name():
    assert not hasattr(col("name"), "uper")
    with pytest.raises(AttributeError, match="no method 'uper'; did you mean 'upper'"):
        col("name").uper()
