"""Decimals with digits in pipelines: read from text and files, summed, and written exactly."""

from datetime import UTC, date, datetime
from decimal import Decimal, localcontext

import deltalake
import duckdb
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from bicycle_runtime.endpoints.field_functions import FieldText
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.formats.registry import make_codec
from bicycle_runtime.pipelines.builtin_functions import Keep
from bicycle_runtime.pipelines.record_functions import TypedRecord
from bicycle_sdk.windows import Sum
from tests.unit.pipelines.pipeline_runs import finish, ran, run
from tests.unit.pipelines.test_problems import problems

CENTS = [Decimal("12.30"), Decimal("0.07"), None, Decimal("9999999999.99")]
TYPE = pyarrow.decimal128(12, 2)
SOURCE = """
[source]
kind = "file"
path = "{path}"
format = "{format}"
fields = {{ id = "int", cents = "decimal(12,2)?" }}
"""
COLUMNS = 'columns = { id = "int", cents = "decimal(12, 2)" }'


def jsonl(path):
    # A number, and texts, which keep all digits.
    values = ["12.3", '"0.07"', "null", '"9999999999.99"']
    path.write_text("".join(f'{{"id":{i},"cents":{v}}}\n' for i, v in enumerate(values)))


def csv(path):
    path.write_text("id,cents\n0,12.30\n1,0.07\n2,\n3,9999999999.99\n")


def parquet(path):
    columns = {"id": range(4), "cents": pyarrow.array(CENTS, pyarrow.decimal128(20, 4))}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def rows_of(table):
    assert table.schema.field("cents").type == TYPE
    return [row["cents"] for row in table.sort_by("id").to_pylist()]


def delta_rows(folder):
    return rows_of(pyarrow.table(deltalake.DeltaTable(folder / "out").to_pyarrow_table()))


def iceberg_rows(folder):
    catalog = SqlCatalog(
        "bicycle", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/out"
    )
    return rows_of(catalog.load_table("shop.sales").scan().to_arrow())


def duckdb_rows(folder):
    with duckdb.connect(str(folder / "out.duckdb"), read_only=True) as connection:
        return rows_of(connection.sql("SELECT id, cents FROM sales").to_arrow_table())


SINKS = {
    "parquet": (
        'kind = "parquet"\npath = "{folder}/out"',
        lambda folder: rows_of(pyarrow.dataset.dataset(folder / "out").to_table()),
    ),
    "delta": ('kind = "delta"\npath = "{folder}/out"', delta_rows),
    "iceberg": (
        'kind = "iceberg"\ncatalog = "sqlite:///{folder}/c.db"\nwarehouse = "file://{folder}/out"\n'
        'table = "shop.sales"',
        iceberg_rows,
    ),
    "duckdb": ('kind = "duckdb"\npath = "{folder}/out.duckdb"\ntable = "sales"', duckdb_rows),
}


@pytest.mark.parametrize("make", [jsonl, csv, parquet])
def test_decimals_are_read_with_the_declared_digits(tmp_path, make):
    path = tmp_path / "in"
    make(path)
    source = SOURCE.format(path=path, format=make.__name__)

    found = [row["cents"] for row in run(f'{source}\n[sink]\nkind = "console"\n')]

    assert found == CENTS
    assert [str(each) for each in found if each is not None] == ["12.30", "0.07", "9999999999.99"]


@pytest.mark.parametrize("name", sorted(SINKS))
def test_decimals_are_written_exactly(tmp_path, name):
    sink, rows_written = SINKS[name]
    jsonl(tmp_path / "in")
    source = SOURCE.format(path=tmp_path / "in", format="jsonl")

    finish(f"{source}\n[sink]\n{sink.format(folder=tmp_path)}\n{COLUMNS}\n")

    assert rows_written(tmp_path) == CENTS


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("make", [jsonl, parquet])
def test_sums_of_decimals_are_exact_past_a_crash(tmp_path, make, backend):
    make(tmp_path / "in")
    source = SOURCE.format(path=tmp_path / "in", format=make.__name__)
    names = ("sum", "min", "max", "avg", "distinct")
    each = ", ".join(f'{{ name = "{n}", agg = "{n}", field = "cents" }}' for n in names)
    ops = f'[ops]\ncount_by = "all"\naggregates = [{each}]\n'
    steps = '[[steps]]\noperator = "map"\nset = { all = "1" }\n'
    text = f'{source}{steps}{ops}[sink]\nkind = "console"\n'

    engine = EngineOptions(max_records_per_epoch=1, state_backend=backend)
    with ran(text, faults=["before_seal"], engine=engine) as harness:
        found = harness.results("sink")[-1]
        assert len(harness.epochs) > 1

    known = [each for each in CENTS if each is not None]
    assert found == {
        "all": 1, "sum": sum(known), "min": min(known), "max": max(known),
        "avg": pytest.approx(float(sum(known)) / 3), "distinct": 3,
    }  # fmt: skip


@pytest.mark.parametrize("make", [jsonl, csv, parquet])
def test_a_decimal_is_a_text_without_quotes(tmp_path, make):
    make(tmp_path / "in")
    towns = [{"cents": Decimal("12.30"), "town": "Ulm"}, {"cents": Decimal("0.50"), "town": "Aue"}]
    table = pyarrow.Table.from_pylist(towns, pyarrow.schema({"cents": TYPE, "town": "string"}))
    pyarrow.parquet.write_table(table, tmp_path / "towns.parquet")
    source = SOURCE.format(path=tmp_path / "in", format=make.__name__)
    step = (
        '[[steps]]\noperator = "filter"\nfield = "cents"\npredicate = "equals"\nvalue = "12.30"\n'
    )
    step += f'[[steps]]\noperator = "enrich"\npath = "{tmp_path}/towns.parquet"\nkey = "cents"\n'

    found = run(f'{source}\n{step}\n[sink]\nkind = "console"\n')

    assert found == [{"id": 0, "cents": Decimal("12.30"), "town": "Ulm"}]


def test_a_time_is_a_text_without_quotes():
    record = {"at": datetime(2026, 1, 1, tzinfo=UTC), "day": date(2026, 1, 1)}

    assert FieldText("at")(record) == "2026-01-01T00:00:00Z"
    assert Keep("starts_with", "2026-", "day")(record)


def test_sums_of_decimals_keep_more_digits_than_a_context_of_python():
    large, small = Decimal("9" * 38), Decimal("0.000000001")
    totals = Sum(Decimal)
    with localcontext(prec=60):
        total = large + small + small

    left = totals.add_all(totals.create_accumulator(), [large, small])
    right = totals.add_all(totals.create_accumulator(), [small])

    assert totals.get_result(totals.merge(left, right)) == total


def test_decimals_are_fields_of_avro():
    cents = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
    fields = [{"name": "id", "type": "int"}, {"name": "cents", "type": ["null", cents]}]
    codec = make_codec("avro", dict, {"schema": {"type": "record", "name": "R", "fields": fields}})
    typed = TypedRecord({"id": "int", "cents": "decimal(12,2)?"})

    records = [typed({"id": 1, "cents": value}) for value in (*CENTS, "-1.5", 3)]

    assert [typed(codec.decode(codec.encode(record))) for record in records] == records


@pytest.mark.parametrize(
    "value", ["1.234", 12345678901, "NaN", "Infinity", "word", True, [1], None]
)
def test_a_value_with_other_digits_is_no_decimal(value):
    with pytest.raises((TypeError, ValueError), match=r"decimal\(12,2\)"):
        TypedRecord({"cents": "decimal(12,2)"})({"cents": value})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ('cents = "decimal(12;2)"', "unsupported source.fields.cents: decimal(12;2); did you mean"),
        ('cents = "decimal(2,3)"', "unsupported source.fields.cents: decimal(2,3)"),
        ('cents = "decimal(39,2)"', "unsupported source.fields.cents: decimal(39,2)"),
        ("cents = 12", "unsupported source.fields.cents: 12; known: string, int"),
    ],
)
def test_other_digits_are_refused_where_they_are_written(fields, message):
    source = SOURCE.format(path="in", format="jsonl").replace('cents = "decimal(12,2)?"', fields)
    [found] = problems(f'{source}[sink]\nkind = "console"\n')

    assert found.startswith("6:")
    assert message in found


def test_columns_cannot_be_optional():
    sink = '[sink]\nkind = "parquet"\npath = "o"\ncolumns = { cents = "decimal(12,2)?" }\n'
    [found] = problems(SOURCE.format(path="in", format="jsonl") + sink)

    assert "unsupported sink.columns.cents: decimal(12,2)?; did you mean 'decimal(12,2)'" in found


def test_expressions_do_not_compute_with_decimals():
    steps = '[[steps]]\noperator = "map"\nset = { all = "cents + 1" }\n'
    text = SOURCE.format(path="in", format="jsonl") + steps + '[sink]\nkind = "console"\n'
    [found] = problems(text)

    assert "steps[0].set.all: field 'cents' is a decimal, which is not supported" in found
