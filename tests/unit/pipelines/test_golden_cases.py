"""The golden cases of the other system's pipelines, and its tests, with the results that are right.

Where that system has a bug, ours is the intended result: sliding windows are all that hold a time,
sessions merge, late records are counted. Its tests of validation are in ``test_problems``, those of
time suffixes and places in ``test_documents``, those of operators in ``test_operators``; its state
and watermark clock are those of ``bicycle_sdk``, whose tests are ``tests/conformance``.
"""

import json
from datetime import UTC, datetime

import pytest
from pyarrow import parquet

from bicycle_runtime.connectors.kafka.reader import place_of
from bicycle_runtime.pipelines.record_functions import PayloadSchema, TimeOf
from bicycle_runtime.testing import Harness
from bicycle_sdk import KeyedProcessFunction, MapStateDescriptor
from tests.unit.pipelines.pipeline_runs import built, lines

EVENTS = [
    {"event_time": "2023-11-14T22:13:00Z", "word": "a", "x": 1, "user": "u1"},
    {"event_time": "2023-11-14T22:13:20Z", "word": "a", "x": 2, "user": "u1"},
    {"event_time": "2023-11-14T22:13:40Z", "word": "b", "x": 3, "user": "u2"},
]
START = 1_700_000_000_000 - 20_000  # 22:13:00
TUMBLING = 'type = "tumbling"\nsize = "60s"'
PIPELINE = """
    [source]
    kind = "file"
    path = "{path}"
    time_field = "event_time"
    format = "{notation}"

    [time]
    allowed_lateness = "{lateness}"

    [window]
    {window}

    [ops]
    count_by = "word"
    {ops}

    [sink]
    {sink}
"""


def pipeline(path, *, window=TUMBLING, ops="", sink="", lateness="10s", notation="jsonl"):
    sink = sink or f'kind = "file"\n    out_dir = "{path.parent}/out"'
    return PIPELINE.format(
        path=path, window=window, ops=ops, sink=sink, lateness=lateness, notation=notation
    )


def written(tmp_path, events=EVENTS, **changes):
    """Run a pipeline over events and return the lines of its files, in order."""
    text = pipeline(lines(tmp_path, *events), **changes)
    with Harness(built(text), real_sinks=["sink"]) as harness:
        harness.run()
    files = sorted((tmp_path / "out").glob("*.jsonl"))
    return [line for file in files for line in file.read_text().splitlines()]


def rows(tmp_path, *fields, **changes):
    found = [json.loads(line) for line in written(tmp_path, **changes)]
    return sorted(tuple(row[field] for field in fields) for row in found)


def test_a_tumbling_window_gives_two_rows(tmp_path):
    found = rows(tmp_path, "window_start_ms", "window_end_ms", "key", "count")

    assert found == [(START, START + 60_000, "a", 2), (START, START + 60_000, "b", 1)]


def test_a_session_gives_two_rows(tmp_path):
    found = rows(tmp_path, "window_start_ms", "window_end_ms", "key", "count",
                 window='type = "session"\ngap = "30s"')  # fmt: skip

    assert found == [
        (START, START + 50_000, "a", 2), (START + 40_000, START + 70_000, "b", 1),
    ]  # fmt: skip


def test_sliding_windows_give_nine_rows(tmp_path):
    found = rows(tmp_path, "key", "window_start_ms", "count",
                 window='type = "sliding"\nsize = "60s"\nslide = "15s"')  # fmt: skip

    assert [(key, (start - START) // 1_000, count) for key, start, count in found] == [
        ("a", -45, 1), ("a", -30, 2), ("a", -15, 2), ("a", 0, 2), ("a", 15, 1),
        ("b", -15, 1), ("b", 0, 1), ("b", 15, 1), ("b", 30, 1),
    ]  # fmt: skip


def test_a_slide_that_does_not_divide_the_size_misses_no_window(tmp_path):
    event = {**EVENTS[0], "event_time": 100_000}
    found = rows(tmp_path, "window_start_ms", events=[event],
                 window='type = "sliding"\nsize = "60s"\nslide = "25s"')  # fmt: skip

    assert found == [(50_000,), (75_000,), (100_000,)]


def test_a_session_merges_what_comes_out_of_order(tmp_path):
    events = [{**EVENTS[0], "event_time": s * 1_000} for s in (0, 25, 10, 45)]
    found = rows(tmp_path, "window_start_ms", "window_end_ms", "count", events=events,
                 window='type = "session"\ngap = "30s"', lateness="1m")  # fmt: skip

    assert found == [(0, 75_000, 4)]


def test_a_time_before_1970_is_in_the_window_that_holds_it(tmp_path):
    found = rows(tmp_path, "window_start_ms", events=[{**EVENTS[0], "event_time": -1_000}])

    assert found == [(-60_000,)]


@pytest.mark.parametrize(
    ("ops", "name", "expected"),
    [
        ('agg = "sum"\nagg_field = "x"', "sum", [("a", 3), ("b", 3)]),
        ('agg = "distinct"\nagg_field = "user"', "distinct_count", [("a", 1), ("b", 1)]),
        ('agg = "avg"\nagg_field = "x"', "avg", [("a", 1.5), ("b", 3.0)]),
    ],
)
def test_aggregates_give_what_their_words_say(tmp_path, ops, name, expected):
    assert rows(tmp_path, "key", name, ops=ops) == expected


def test_csv_counts_as_lines_of_json_do(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("event_time,word\n0,a\n20000,a\n40000,b\n")
    with Harness(built(pipeline(path, notation="csv", sink='kind = "console"'))) as harness:
        harness.run()
        found = sorted((row["key"], row["count"]) for row in harness.results("sink"))

    assert found == [("a", 2), ("b", 1)]


def test_an_empty_file_gives_nothing_and_ends_well(tmp_path):
    assert written(tmp_path, events=[]) == []


def test_a_second_run_gives_the_same_bytes(tmp_path):
    events = [{**EVENTS[n % 3], "x": n / 7, "event_time": n * 700} for n in range(2_000)]
    first, second = (tmp_path / name for name in ("first", "second"))
    found = []
    for folder in (first, second):
        folder.mkdir()
        found.append(written(folder, events=events, ops='agg = "avg"\nagg_field = "x"'))

    assert found[0] == found[1]
    assert len(found[0]) == 24 * 2  # Each line is one object, whole.
    assert all(json.loads(line)["key"] in "ab" for line in found[0])


def test_lateness_holds_a_window_back_until_the_watermark_is_past_its_end(tmp_path):
    text = pipeline(lines(tmp_path), lateness="30s", sink='kind = "console"')
    with Harness(built(text), scripted=["source"]) as harness:
        harness.push([{"word": "a", "event_time": 0}, {"word": "a", "event_time": 89_999}])
        harness.run_epoch()
        assert harness.results("sink") == []
        harness.push([{"word": "a", "event_time": 90_000}])
        harness.run_epoch()
        harness.run_epoch()

        assert [row["window_start_ms"] for row in harness.results("sink")] == [0]
        before = harness.watermark("window")
        harness.push([{"word": "a", "event_time": 70_000}])  # It does not go back.
        harness.run_epoch()
        assert harness.watermark("window") == before == 60_000 - 1


def test_three_rows_of_parquet_are_read_again(tmp_path):
    sink = f'kind = "parquet"\n    out_dir = "{tmp_path}/out"'
    events = [*EVENTS, {**EVENTS[0], "event_time": "2023-11-15T01:00:00Z"}]
    text = pipeline(lines(tmp_path, *events), sink=sink)
    with Harness(built(text), real_sinks=["sink"]) as harness:
        harness.run()

    table = parquet.read_table(tmp_path / "out").to_pylist()
    assert {path.name for path in (tmp_path / "out").glob("dt=*")} == {
        "dt=2023-11-14", "dt=2023-11-15",
    }  # fmt: skip
    assert sorted(json.loads(row["payload"])["count"] for row in table) == [1, 1, 2]
    ends = {row["event_time"] for row in table}  # Of the data, and not of the day of the run.
    assert datetime(2023, 11, 14, 22, 13, 59, 999_000, UTC) in ends


def test_payloads_are_objects_texts_or_base64():
    decode = PayloadSchema().decode

    assert decode(b'{"a": 1}') == {"a": 1}
    assert decode(b"plain") == decode(b'{"bytes": "plain"}') == {"bytes": "plain"}
    assert decode(b"\xff\x00") == {"bytes_b64": "/wA="}


def test_times_are_numbers_or_rfc_3339():
    time = TimeOf("at")

    assert time({"at": 1_700_000_000_000}) == 1_700_000_000_000
    assert time({"at": "2023-11-14T22:13:20Z"}) == 1_700_000_000_000
    assert time({"at": "2023-11-14T23:13:20+01:00"}) == 1_700_000_000_000
    for wrong in ({}, {"at": "soon"}, {"at": None}, {"at": "2023-11-14T22:13:20"}):
        with pytest.raises(ValueError, match=r"time|isoformat"):
            time(wrong)


def test_offsets_of_kafka_are_kept_by_topic_and_partition():
    assert place_of("words/3") == ("words", 3)


class Keeps(KeyedProcessFunction):
    """Puts, gets, deletes and lists entries as records say."""

    entries = MapStateDescriptor("entries", str, int)

    def process_element(self, value, ctx):
        state = ctx.get_map_state(self.entries)
        match value["do"]:
            case "put":
                state.put(value["name"], value["x"])
            case "delete":
                state.remove(value["name"])
        return [list(state.prefix("p:"))]


def test_state_is_put_deleted_listed_and_restored():
    def job(env):
        steps = env.from_collection([]).uid("steps").key_by(lambda _: 1).uid("key")
        steps.process_fn(Keeps()).uid("keeps").collect("out")

    with Harness(job, scripted=["steps"]) as harness:
        harness.push([{"do": "put", "name": "p:1", "x": 1}, {"do": "put", "name": "q", "x": 2}])
        harness.run_epoch()
        kept = harness.snapshot()
        harness.push([{"do": "delete", "name": "p:1"}])
        harness.run_epoch()
        assert harness.results("out")[-1] == []
        harness.restore(kept)

        assert harness.value("keeps", key=1, name="entries") == {"p:1": 1, "q": 2}
