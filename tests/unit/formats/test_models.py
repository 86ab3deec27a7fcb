"""Models of Pydantic in all formats: they are written, and a number for a time is in ms."""

import datetime
from dataclasses import dataclass
from decimal import Decimal

import pydantic
import pytest

from bicycle_runtime.connectors.typed_rows import records_of
from bicycle_runtime.formats.registry import make_codec

AT = datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=datetime.UTC)
SPAN = datetime.timedelta(seconds=1.5)


class Visit(pydantic.BaseModel):
    number: datetime.datetime
    text: datetime.timedelta
    nested: list["Visit"] = []


class Named(pydantic.BaseModel):
    at: datetime.datetime = pydantic.Field(alias="time")
    size: int | datetime.datetime = 0
    price: Decimal = Decimal(0)


@dataclass
class Around:
    nested: list[Visit]


FIELDS = [
    {"name": "number", "type": "long", "default": 0},
    {"name": "text", "type": "string", "default": ""},
    {"name": "nested", "type": {"type": "array", "items": "Plain"}, "default": []},
]
VISIT = Visit(number=AT, text=SPAN, nested=[Visit(number=AT, text=SPAN)])


@pytest.fixture(params=["avro", "protobuf", "json", "msgpack"])
def format_options(request, plain_message):
    schema = {"type": "record", "name": "Plain", "fields": FIELDS}
    options = {"avro": {"schema": schema}, "protobuf": {"message": plain_message}}
    return request.param, options.get(request.param, {})


def test_a_model_is_read_as_it_was_written(format_options):
    name, options = format_options
    codec, around = make_codec(name, Visit, options), make_codec(name, Around, options)

    assert codec.decode(codec.encode(VISIT)) == VISIT
    assert around.decode(around.encode(Around([VISIT]))) == Around([VISIT])


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_a_number_for_a_time_of_a_model_is_in_ms(name):
    plain = {"time": 1_500, "size": 1_500, "price": "1.10"}
    data = make_codec(name).encode(plain)

    found = make_codec(name, Named).decode(data)

    assert (found.at, found.size, found.price) == (AT, 1_500, Decimal("1.10"))
    assert make_codec(name, list[Named]).decode(make_codec(name).encode([plain])) == [found]


def test_digits_of_a_document_with_a_number_for_a_time_are_kept():
    found = make_codec("json", Named).decode(b'{"time": 1500, "size": 1180591620717411303424}')

    assert (found.at, found.size) == (AT, 2**70)


def test_rows_of_tables_have_times_of_models_in_ms():
    rows = [{"number": 1_500, "text": 1_500, "nested": []}]

    assert records_of(rows, Visit, [0], 1).values == [Visit(number=AT, text=SPAN)]
