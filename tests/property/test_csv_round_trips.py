"""Records of many types in CSV: the source reads what the sink wrote."""

import datetime
import decimal
import enum
import io
import uuid
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.connectors.files.blocks import ByteCursor, LineRange
from bicycle_runtime.connectors.files.csv_rows import CsvRows
from bicycle_runtime.formats.csv_values import column_names, csv_text, declared_names, row_of
from bicycle_runtime.formats.registry import make_codec
from tests.examples import examples

LINE = 1 << 20


class Kind(enum.Enum):
    A = "a"
    B = "b[1]"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 20


class Point(NamedTuple):
    x: int
    name: str = "p"


class Pair(msgspec.Struct, rename="camel", frozen=True):
    first_part: str
    at_time: datetime.datetime | None = None
    sizes: tuple[int | None, ...] = ()


class Circle(msgspec.Struct, tag=True):
    radius: float | None


class Square(msgspec.Struct, tag=True):
    side: int
    corner: Point | None


class Keys(TypedDict):
    a: int
    b: list[str] | None


class Model(pydantic.BaseModel):
    at: datetime.datetime
    parts: dict[str, datetime.timedelta] | None
    inner: "Model | None" = None


@dataclass
class Scalars:
    number: int
    real: float | None
    flag: bool | None
    text: str
    raw: bytes
    at: datetime.datetime
    day: datetime.date | None
    clock: datetime.time | None
    span: datetime.timedelta | None
    price: decimal.Decimal | None
    key: uuid.UUID | None
    kind: Kind | None
    size: Size
    word: Literal["x", "y"] | None
    limited: Annotated[int, msgspec.Meta(ge=0)] | None


@dataclass
class Nested:
    items: list[str] | None
    counts: dict[str, int] | None
    numbered: dict[int, str]
    fixed: tuple[int, str] | None
    unique: frozenset[int] | None
    point: Point | None
    pair: Pair | None
    shape: Circle | Square | None
    keys: Keys | None
    model: Model | None
    deep: list[dict[str, list[Point | None]]]
    text_or_list: str | None


@dataclass
class Plain:
    number: int
    items: list[int] | None
    pair: Pair | None


ZONED = st.datetimes(timezones=st.just(datetime.UTC))
SPANS = st.timedeltas(datetime.timedelta(-10_000), datetime.timedelta(10_000))
TEXTS = st.text(st.sampled_from("a,;\"'\n\r[]{}ß1 "), max_size=8)
# Encoded in UTF-8, and a nested number is one of 64 bits.
POINTS = st.builds(Point, st.integers(-(2**53), 2**53), TEXTS)
PAIRS = st.builds(
    Pair, TEXTS, st.none() | ZONED, st.lists(st.none() | st.integers(0, 9)).map(tuple)
)
KEYS = st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.none() | st.lists(TEXTS, max_size=3)})
MODELS = st.builds(
    Model,
    at=ZONED,
    parts=st.none() | st.dictionaries(TEXTS, SPANS, max_size=2),
    inner=st.none() | st.builds(Model, at=ZONED, parts=st.none(), inner=st.none()),
)
CIRCLES = st.builds(Circle, st.none() | st.floats(allow_nan=False, allow_infinity=False))
SQUARES = st.builds(Square, st.integers(0, 9), st.none() | POINTS)
SCALARS = st.builds(
    Scalars,
    number=st.integers(-(2**63), 2**63 - 1),
    real=st.none() | st.floats(allow_nan=False),
    text=TEXTS,
    raw=st.binary(max_size=4),
    at=ZONED,
    clock=st.none() | st.times(),
    span=st.none() | SPANS,
    price=st.none() | st.decimals(allow_nan=False, allow_infinity=False),
    limited=st.none() | st.integers(0, 9),
)
NESTED = st.builds(
    Nested,
    items=st.none() | st.lists(TEXTS, max_size=3),
    counts=st.none() | st.dictionaries(TEXTS, st.integers(0, 9), max_size=3),
    numbered=st.dictionaries(st.integers(0, 9), TEXTS, max_size=3),
    fixed=st.none() | st.tuples(st.integers(0, 9), TEXTS),
    point=st.none() | POINTS,
    pair=st.none() | PAIRS,
    shape=st.none() | CIRCLES | SQUARES,
    keys=st.none() | KEYS,
    model=st.none() | MODELS,
    deep=st.lists(st.dictionaries(TEXTS, st.lists(st.none() | POINTS, max_size=2), max_size=2)),
    text_or_list=TEXTS,
)
RECORDS = st.one_of(
    st.tuples(st.just(Scalars), SCALARS),
    st.tuples(st.just(Nested), NESTED),
    st.tuples(
        st.just(Plain),
        st.builds(Plain, st.integers(0, 9), st.none() | st.lists(st.integers(0, 9)), st.none()),
    ),
    st.tuples(st.just(Point), POINTS),
    st.tuples(st.just(Pair), PAIRS),
    st.tuples(st.just(Circle), CIRCLES),
    st.tuples(st.just(Circle | Square), CIRCLES | SQUARES),
    st.tuples(st.just(Keys), KEYS),
    st.tuples(st.just(Model), MODELS),
    st.tuples(
        st.just(tuple[int | None, list[int] | None, Pair]),
        st.tuples(st.none() | st.integers(0, 9), st.none() | st.lists(st.integers(0, 9)), PAIRS),
    ),
    st.tuples(
        st.just(tuple[int | None, ...]),
        st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=3).map(tuple),
    ),
    st.tuples(
        st.just(dict[str, list[int] | None]),
        st.fixed_dictionaries({"a": st.none() | st.lists(st.integers(0, 9)), "b": st.just([1])}),
    ),
)  # fmt: skip


def read(kind, data, *, gives_fields):
    rows = CsvRows(kind, is_complete=True, gives_fields=gives_fields)
    cursors = [ByteCursor("in.csv", io.BytesIO(data), 0) for _ in range(2)]
    end = len(data)
    lines = LineRange(start=0, end=end, limit=None, is_aligned=True, line_bytes_max=LINE)
    batches = [batch for batch, _ in rows.batches(*cursors, lines)]
    assert not [failure.reason for batch in batches for failure in batch.failures]
    return [value for batch in batches for value in batch.values]


@settings(max_examples=examples(300), deadline=None)
@given(RECORDS)
def test_the_source_reads_what_the_sink_wrote(found):
    kind, value = found
    names = declared_names(kind) or column_names(value)

    data = csv_text([names, row_of(value, names)]).encode()

    assert read(kind, data, gives_fields=False) == [value]
    assert read(kind, data, gives_fields=True) == [value]
    codec = make_codec("csv", kind, {"fields": names})
    assert codec.decode(codec.encode(value)) == value
