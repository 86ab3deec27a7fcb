"""Event times from a field of files: RFC 3339 or ms since 1970, and nothing made up."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicycle_runtime.connectors.errors import CONNECTOR_OPTION_WRONG
from bicycle_runtime.connectors.registry import create_source
from bicycle_runtime.connectors.typed_rows import with_event_times
from bicycle_runtime.contract import Budget, ConnectorSpec, SourceBatch
from bicycle_runtime.engine.options import EngineOptions
from bicycle_runtime.testing import Harness
from bicycle_runtime.testing.connectors.running import SourceRun, services_in
from bicycle_sdk import ProcessFunction
from tests.raising import raises


def read_all(tmp_path, word, data, *, record_type=None, field="at"):
    path = tmp_path / "input"
    path.write_text(data, encoding="utf-8")
    spec = ConnectorSpec(
        vertex_id="v",
        connector_type=word,
        properties={"path": str(path), "timestamp_field": field},
        record_type=record_type,
    )
    run = SourceRun(spec, services_in(tmp_path)).start()
    epochs = run.drain(Budget(record_count=1_000, byte_count=1 << 20, parallelism=1))
    run.stop()
    batches = [batch for epoch in epochs for part in epoch.batches for batch in part]
    times = [time for batch in batches for time in batch.timestamps or ()]
    return times, [(bad.offset, bad.raw) for batch in batches for bad in batch.failures]


def test_times_are_ms_or_rfc_3339(tmp_path):
    lines = [
        '{"at": 1500}',
        '{"at": "1970-01-01T00:00:02Z"}',
        '{"at": "1970-01-01T01:00:03.250+01:00"}',
        '{"at": "4000"}',
        '{"at": -5}',
        '{"at": 6000.0}',
    ]

    assert read_all(tmp_path, "jsonl", "\n".join(lines)) == ([1500, 2000, 3250, 4000, -5, 6000], [])


@pytest.mark.parametrize(
    "bad", ["{}", '{"at": null}', '{"at": ""}', '{"at": "yesterday"}', '{"at": true}',
            '{"at": "2026-01-01T00:00:00"}', '{"at": [1]}', '{"at": 1e300}'],
)  # fmt: skip
def test_a_record_without_a_time_is_a_bad_record_with_its_bytes(tmp_path, bad):
    first = '{"at": 1}\n'
    times, failures = read_all(tmp_path, "jsonl", f'{first}{bad}\n{{"at": 2}}\n')

    assert times == [1, 2]
    assert failures == [(len(first), bad.encode())]


def test_csv_fields_give_times_too(tmp_path):
    text = 'name,at\na,1000\n"b\nb",1970-01-01T00:00:02Z\n"c\nc",soon\nd,4000\n'

    times, failures = read_all(tmp_path, "csv", text)

    assert times == [1000, 2000, 4000]
    assert failures == [(text.index('"c'), b'"c\nc",soon')]


@dataclass
class Click:
    user: str
    at: datetime


def test_a_field_that_is_a_datetime_gives_the_time(tmp_path):
    times, failures = read_all(
        tmp_path,
        "jsonl",
        '{"user": "a", "at": "1970-01-01T00:00:01Z"}\n{"user": "b", "at": "1970-01-01T00:00:01"}\n',
        record_type=Click,
    )

    assert times == [1000]
    assert len(failures) == 1


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=30))])))
def test_every_time_with_a_zone_is_read_to_the_millisecond(moment):
    batch = SourceBatch(values=[{"at": moment.isoformat()}], offsets=[0], next_offset=2)
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)

    assert with_event_times(batch, b"x\n", "at").timestamps == [expected]


def test_a_line_of_text_has_no_field():
    with raises(CONNECTOR_OPTION_WRONG) as caught:
        create_source(
            ConnectorSpec(
                vertex_id="v", connector_type="text",
                properties={"path": "x", "timestamp_field": "at"},
            )
        )  # fmt: skip
    assert caught.value.facts["name"] == "timestamp_field"


class Stamps(ProcessFunction[dict, tuple]):
    def process_element(self, value, ctx):
        return [(value["n"], ctx.timestamp, ctx.current_watermark())]


def test_unread_files_hold_the_watermark_back_and_read_ones_do_not(tmp_path):
    for name, first in (("a", 100_000), ("b", 50_000)):
        lines = [f'{{"n": "{name}{i}", "at": {first + i * 1_000}}}' for i in range(3)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")

    def job(env):
        clicks = env.read_jsonl(f"{tmp_path}/*.jsonl", timestamp_field="at").uid("clicks")
        clicks.key_by(lambda v: v["n"]).process_fn(Stamps()).uid("stamps").collect("out")

    with Harness(job, engine=EngineOptions(max_records_per_epoch=2)) as harness:
        marks = []
        while (stats := harness.run_epoch()) is not None:
            marks.append(stats.watermark_ms)

        stamps = {name: time for name, time, _ in harness.results("out")}
        assert stamps["b2"] == 52_000
        # a a | b b | a: then b alone counts, and it is at 52 s; the default allows 5 s of disorder
        assert marks[0] is None
        assert marks == sorted(marks, key=lambda mark: mark or 0)
        assert marks[-1] == 46_999
