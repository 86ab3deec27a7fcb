"""Record types of sources: models of Pydantic decode, and classes without fields are refused."""

import dataclasses
import datetime
import json
import threading
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pydantic
import pytest

from bicycle_runtime.connectors.errors import CONNECTOR_PAYLOAD_WRONG
from bicycle_runtime.formats.registry import make_codec
from bicycle_runtime.formats.typed_values import json_decoder
from bicycle_runtime.testing import Harness
from bicycle_sdk import file_sink
from tests.raising import raises


class Item(pydantic.BaseModel):
    name: str
    price: float | None = None


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)

    id: int = pydantic.Field(gt=0)
    at: datetime.datetime = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    items: tuple[Item, ...] = ()


@pydantic.dataclasses.dataclass
class Small:
    a: int = pydantic.Field(lt=10)


@dataclasses.dataclass
class Around:
    order: Order
    more: list[Item] = dataclasses.field(default_factory=list)


class Plain:
    a: int


@dataclasses.dataclass
class NeedsPlain:
    part: Plain


@dataclasses.dataclass
class MayHavePlain:
    a: int
    part: Plain | None = None
    parts: list[Plain] = dataclasses.field(default_factory=list)
    lock: Any = None


def read(tmp_path, record_type, lines, suffix="jsonl"):
    (tmp_path / f"in.{suffix}").write_text("".join(f"{line}\n" for line in lines))

    def job(env):
        call = {"jsonl": env.read_jsonl, "csv": env.read_csv}[suffix]
        source = call(f"{tmp_path}/in.{suffix}", type=record_type).uid("orders")
        source.on_error("dead_letter").collect("out")

    with Harness(job) as harness:
        harness.run()
        return harness.results("out"), [letter["message"] for letter in harness.dead_letters]


def test_lines_are_decoded_as_models_and_bad_ones_name_the_field(tmp_path):
    records, problems = read(
        tmp_path,
        Order,
        ['{"id": 1, "items": [{"name": "pen"}]}', '{"id": 0}', '{"id": 2, "at": "x"}', "{}", "{"],
    )

    assert records == [Order(id=1, items=(Item(name="pen"),))]
    assert problems[0] == "id: Input should be greater than 0"
    assert problems[1].startswith("at: Input should be a valid datetime")
    assert problems[2] == "id: Field required"
    assert problems[3].startswith("Invalid JSON")


@pytest.mark.parametrize(
    ("record_type", "good", "bad"),
    [
        (Around, '{"order": {"id": 1}, "more": [{"name": "a"}]}', '{"order": {"id": 0}}'),
        (list[Order], '[{"id": 1}]', '[{"id": 0}]'),
        (Order | None, '{"id": 1}', '{"id": 0}'),
        (Small, '{"a": 9}', '{"a": 10}'),
    ],
)
def test_a_model_within_another_type_is_checked_too(tmp_path, record_type, good, bad):
    records, problems = read(tmp_path, record_type, [good, bad])

    assert len(records) == len(problems) == 1
    assert "Input should be" in problems[0]


def test_rows_of_csv_are_decoded_as_models(tmp_path):
    records, problems = read(tmp_path, Item, ["name,price", "pen,1.5", "ink,", "cup,x"], "csv")

    assert records == [Item(name="pen", price=1.5), Item(name="ink")]
    assert problems == ["price: Input should be a valid number, unable to parse string as a number"]


def test_rows_of_parquet_are_decoded_as_models(tmp_path):
    table = pyarrow.table({"name": ["pen", "ink"], "price": [1.5, None]})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")

    def job(env):
        env.read_parquet(f"{tmp_path}/in.parquet", type=Item).collect("out")

    with Harness(job) as harness:
        harness.run()
        assert harness.results("out") == [Item(name="pen", price=1.5), Item(name="ink")]


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_models_go_through_keys_and_are_written(tmp_path, suffix):
    (tmp_path / "in.jsonl").write_text('{"name": "pen", "price": 1.5}\n{"name": "ink"}\n')

    def job(env):
        items = env.read_jsonl(f"{tmp_path}/in.jsonl", type=Item).key_by(lambda item: item.name)
        kept = items.reduce(lambda _, newest: newest)
        kept.sink_to(file_sink(f"{tmp_path}/out", format=suffix)).uid("out")

    with Harness(job, real_sinks=["out"]) as harness:
        harness.run()
    written = "".join(
        path.read_text() for path in sorted(Path(tmp_path / "out").rglob(f"*.{suffix}"))
    )
    if suffix == "jsonl":
        found = sorted((json.loads(line) for line in written.splitlines()), key=str)
        assert found == [{"name": "ink", "price": None}, {"name": "pen", "price": 1.5}]
    else:
        assert sorted(set(written.split())) == ["ink,", "name,price", "pen,1.5"]


@pytest.mark.parametrize("record_type", [Plain, NeedsPlain, tuple[int, Plain], threading.Thread])
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_class_without_fields_is_refused_before_anything_is_read(tmp_path, record_type, suffix):
    def job(env):
        call = {"jsonl": env.read_jsonl, "csv": env.read_csv, "parquet": env.read_parquet}[suffix]
        call(f"{tmp_path}/none.{suffix}", type=record_type).uid("orders").collect("out")

    with raises(CONNECTOR_PAYLOAD_WRONG) as caught, Harness(job):
        pass

    assert caught.value.facts["vertex"] == "orders"
    assert "data cannot be decoded as" in caught.value.facts["found"]


def test_a_class_that_data_need_not_hold_is_accepted():
    decoder = json_decoder(MayHavePlain)

    assert decoder.decode(b'{"a": 1}') == MayHavePlain(1)


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_codecs_of_streams_take_models_and_refuse_plain_classes(name):
    codec = make_codec(name, Order, {})
    order = Order(id=1, items=(Item(name="pen"),))

    assert codec.decode(codec.encode(order)) == order
    with pytest.raises(Exception, match="data cannot be decoded as Plain"):
        make_codec(name, Plain, {})
