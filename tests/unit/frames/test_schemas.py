"""Schemas: one table of types, and the lists that are derived from it."""

import typing
from datetime import date, datetime, time, timedelta

import numpy
import pyarrow
import pytest

from bicycle_runtime.endpoints.values import ColumnWord, FieldType
from bicycle_runtime.expressions.sql import types as sql_types
from bicycle_runtime.frames.schemas import ARROW_KINDS, VALUE_TYPES, Field, Schema, arrow_type
from bicycle_sdk.option_values import OptionValueError, convert
from bicycle_sdk.sinks import ColumnType

VALUES = {
    bool: [True], int: [3], float: [0.5], str: ["a"], bytes: [b"a"], date: [date(2026, 3, 1)],
    time: [time(1, 2)], timedelta: [timedelta(seconds=1)],
}  # fmt: skip
ALIASES = {"date32[day]": "date32", "double": "float64", "float": "float32"}


def test_a_schema_has_the_types_of_words_and_whether_fields_may_be_null():
    schema = Schema.of_words({"price": "decimal(12,2)", "at": "timestamp?", "user": "str"})

    assert [
        Field(name="price", type=pyarrow.decimal128(12, 2), is_nullable=False),
        Field(name="at", type=pyarrow.timestamp("ms", "UTC"), is_nullable=True),
        Field(name="user", type=pyarrow.string(), is_nullable=False),
    ] == list(schema)


def test_a_field_of_an_unknown_type_is_refused_with_the_known_types():
    with pytest.raises(ValueError, match="'money' is not a type of fields; the types are string"):
        Schema.of_words({"price": "money"})


@pytest.mark.parametrize("word", [found.word for found in VALUE_TYPES if found.sql])
def test_sql_has_the_same_arrow_type_for_its_word(word):
    [found] = [each for each in VALUE_TYPES if each.word == word]

    assert sql_types.arrow_type(found.sql) == arrow_type(word)


@pytest.mark.parametrize("name", list(ARROW_KINDS))
def test_an_arrow_column_has_values_of_the_type_that_the_table_names(name):
    kind = ARROW_KINDS[name]
    column = pyarrow.array(VALUES[kind], pyarrow.type_for_alias(ALIASES.get(name, name)))

    assert name == str(column.type)
    assert [kind] == list(map(type, column.to_pylist()))


def test_an_array_is_the_column_of_its_type_without_conversion():
    found = [each for each in VALUE_TYPES if each.array]

    assert [each.word for each in found] == ["int", "float", "bool"]
    for each in found:
        assert arrow_type(each.word) == pyarrow.array(numpy.zeros(2, each.array)).type


def test_words_of_pipelines_and_sinks_are_those_of_the_table():
    fields, columns = (typing.get_args(kind)[1].extra["words"] for kind in (FieldType, ColumnWord))

    assert {found.word for found in VALUE_TYPES if found.in_columns} == set(columns)
    assert {found.word for found in VALUE_TYPES if found.in_fields} == {
        word for word in fields if not word.endswith("?")
    }


@pytest.mark.parametrize("kind", [found.python for found in VALUE_TYPES if found.python])
def test_options_of_sinks_accept_the_python_types_of_columns(kind):
    [found] = [each for each in VALUE_TYPES if each.python is kind]
    hint = dict[str, ColumnType]

    if found.in_columns:
        assert {"a": found.column_word} == convert(hint, "", {"a": kind}, is_text=False)
    else:
        with pytest.raises(OptionValueError):
            convert(hint, "", {"a": kind}, is_text=False)


def test_times_of_sinks_have_microseconds_and_times_of_events_milliseconds():
    at = datetime(2026, 3, 1, 12, 0, 0, 1_001).astimezone()

    assert at == pyarrow.array([at], arrow_type("datetime"))[0].as_py()
    assert str(arrow_type("timestamp")) == "timestamp[ms, tz=UTC]"
