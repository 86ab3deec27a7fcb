"""Writers stage the same bytes for records that lie as columns as for the records themselves."""

import tempfile
from dataclasses import make_dataclass
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicycle_runtime.base.storage import LocalStorage
from bicycle_runtime.connectors.console import ConsoleWriterFactory
from bicycle_runtime.connectors.files.sink import FileWriterFactory
from bicycle_runtime.contract import WriterTask
from bicycle_runtime.frames.frame import Frame
from bicycle_runtime.frames.record_forms import RecordForm
from bicycle_runtime.frames.vectors import TupleVector, Vector
from bicycle_sdk.windows import WindowResult
from tests.examples import examples

WRITERS = {
    "jsonl": FileWriterFactory("jsonl"),
    "text": FileWriterFactory("txt"),
    "csv": FileWriterFactory("csv"),
    "csv of a type": FileWriterFactory("csv", make_dataclass("Given", [("a", int), ("b", str)])),
    "console": ConsoleWriterFactory(),
    "timed jsonl": FileWriterFactory("jsonl", None, "at"),
    "timed csv": FileWriterFactory("csv", None, "a"),
}


class Pair(NamedTuple):
    a: object
    b: object


Flat = make_dataclass("Flat", ["a", "b"])
FORMS = {
    "dict": (dict, ("a", "b")),
    "dict of places": (dict, (0, "b")),
    "tuple": (tuple, (0, 1)),
    "named tuple": (Pair, ("a", "b")),
    "result": (WindowResult, WindowResult._fields),
    "dataclass": (Flat, ("b", "a")),
    "value": (None, (None,)),
}
VALUES = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.none(),
    st.text(st.sampled_from('a",\n\rß \ud800'), max_size=4), st.just(["x", 1]), st.just({"y": 2.5}),
    st.just(object()),
)  # fmt: skip


@st.composite
def batches(draw, width):
    count = draw(st.integers(1, 5))
    drawn = st.lists(VALUES, min_size=count, max_size=count) | st.lists(
        st.integers(-5, 5), min_size=count, max_size=count
    )
    columns = [Vector(count, draw(drawn)) for _ in range(width)]
    if draw(st.booleans()):
        columns[-1] = TupleVector(count, [columns[0], Vector.constant(7, count)])
    return count, columns


def staged(factory, batches_of_records, times):
    """Return the bytes and details of what a writer stages, and why records were left out."""
    with tempfile.TemporaryDirectory() as folder:
        storage = LocalStorage(folder, is_synced=False)
        task = WriterTask(storage=storage, prefix="staged/x", epoch=0, subtask=0)
        writer, failed = factory.open(task), []
        for records in batches_of_records:
            given_times = times[: len(records)]
            try:
                prepared = writer.prepare(records, given_times)
            except Exception:  # noqa: BLE001 - as a sink does, then one by one
                prepared = []
                for record, time_ms in zip(records, given_times, strict=True):
                    try:
                        prepared.append(writer.prepare_one(record, time_ms))
                    except Exception as error:  # noqa: BLE001 - told below
                        failed.append(type(error))
            writer.write(prepared)
        return [(storage.read(file.path), file.details) for file in writer.finish()], failed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_a_writer_stages_the_same_from_columns(name, form, data):
    kind, names = FORMS[form]
    drawn = data.draw(st.lists(batches(len(names)), min_size=1, max_size=3))
    times = data.draw(st.lists(st.integers(0, 99) | st.just(5), min_size=5, max_size=5))
    if data.draw(st.booleans()):
        times[0] = None
    lying = [Frame.of(RecordForm(kind, names), c, n) for n, c in drawn]
    records = [Frame.of(RecordForm(kind, names), c, n).records for n, c in drawn]

    assert staged(WRITERS[name], lying, times) == staged(WRITERS[name], records, times)


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_makes_no_record_of_plain_dicts(name, monkeypatch):
    monkeypatch.setattr(Frame, "records", None)
    columns = [Vector(2, [1, 2]), Vector(2, ["x", None])]
    records = Frame.of(RecordForm(dict, ("a", "b")), columns, 2)

    [(data, _)], failed = staged(WRITERS[name], [records], [1, 2])

    assert failed == []
    assert data.count(b"\n") == 2 + (b"a,b" in data)
