"""The golden cases of the other system's pipelines, and its tests, with the results that are right.

``CASES`` lists all 38, one by one; the numbers are ours, 1 to 7 are its golden cases. Where that
system has a bug, ours is the intended result, and a test of its own says so: sliding windows are
all that hold a time, sessions merge, late records are counted.
"""

import json
import urllib.request
from datetime import UTC, datetime

import pytest
from pyarrow import parquet

from bicycle_runtime.connectors.kafka.reader import partition_of
from bicycle_runtime.endpoints.field_functions import PayloadSchema
from bicycle_runtime.endpoints.values import duration_ms
from bicycle_runtime.pipelines.record_functions import TimeOf
from bicycle_runtime.service.metrics.endpoint import serving_metrics
from bicycle_runtime.testing import Harness
from bicycle_sdk import KeyedProcessFunction, MapStateDescriptor
from bicycle_sdk.clock import SystemClock
from tests.unit.cli.conftest import Shell
from tests.unit.pipelines.pipeline_runs import built, finish, graph, lines, run
from tests.unit.pipelines.test_problems import GOOD, KAFKA, changed, problems

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
    finish(text)
    files = sorted((tmp_path / "out").glob("*.jsonl"))
    return [line for file in files for line in file.read_text().splitlines()]


def rows(tmp_path, *fields, **changes):
    found = [json.loads(line) for line in written(tmp_path, **changes)]
    return sorted(tuple(row[field] for field in fields) for row in found)


def a_tumbling_window_gives_two_rows(tmp_path):
    found = rows(tmp_path, "window_start_ms", "window_end_ms", "key", "count")

    assert found == [(START, START + 60_000, "a", 2), (START, START + 60_000, "b", 1)]


def a_session_gives_two_rows(tmp_path):
    found = rows(tmp_path, "window_start_ms", "window_end_ms", "key", "count",
                 window='type = "session"\ngap = "30s"')  # fmt: skip

    assert found == [
        (START, START + 50_000, "a", 2), (START + 40_000, START + 70_000, "b", 1),
    ]  # fmt: skip


def sliding_windows_give_nine_rows(tmp_path):
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


def aggregated(agg, field, name, *expected):
    """Return the check of one aggregate over a field."""

    def check(tmp_path):
        ops = f'agg = "{agg}"\nagg_field = "{field}"'
        assert rows(tmp_path, "key", name, ops=ops) == list(expected)

    return check


def csv_counts_as_lines_of_json_do(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("event_time,word\n0,a\n20000,a\n40000,b\n")
    rows = run(pipeline(path, notation="csv", sink='kind = "console"'))
    found = sorted((row["key"], row["count"]) for row in rows)

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


def lateness_holds_a_window_back_until_the_watermark_is_past_its_end(tmp_path):
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


def three_rows_of_parquet_are_read_again(tmp_path):
    sink = f'kind = "parquet"\n    out_dir = "{tmp_path}/out"'
    events = [*EVENTS, {**EVENTS[0], "event_time": "2023-11-15T01:00:00Z"}]
    text = pipeline(lines(tmp_path, *events), sink=sink)
    finish(text)

    table = parquet.read_table(tmp_path / "out").to_pylist()
    assert {path.name for path in (tmp_path / "out").glob("dt=*")} == {
        "dt=2023-11-14", "dt=2023-11-15",
    }  # fmt: skip
    assert sorted(json.loads(row["payload"])["count"] for row in table) == [1, 1, 2]
    ends = {row["event_time"] for row in table}  # Of the data, and not of the day of the run.
    assert datetime(2023, 11, 14, 22, 13, 59, 999_000, UTC) in ends


def payload(data, record):
    """Return the check of one message of Kafka."""

    def check(_tmp_path):
        assert PayloadSchema().decode(data) == record

    return check


def time_of(value):
    """Return the check of one way to write a time."""

    def check(_tmp_path):
        assert TimeOf("at")({"at": value}) == 1_700_000_000_000

    return check


@pytest.mark.parametrize("wrong", [{}, {"at": "soon"}, {"at": None}, {"at": "2023-11-14T22:13:20"}])
def test_what_is_no_time_is_refused(wrong):
    with pytest.raises(ValueError, match=r"time|isoformat"):
        TimeOf("at")(wrong)


def offsets_of_kafka_are_kept_by_topic_and_partition(_tmp_path):
    assert partition_of("words/3") == ("words", 3)


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


def kept(*steps, listed, entries):
    """Return the check of what a state lists and holds after some steps."""

    def check(_tmp_path):
        with keeping() as harness:
            for step in steps:
                harness.push([step])
                harness.run_epoch()
            assert harness.results("out")[-1] == listed
            assert harness.value("keeps", key=1, name="entries") == entries

    return check


PUT, PUT_Q = {"do": "put", "name": "p:1", "x": 1}, {"do": "put", "name": "q", "x": 2}
DELETE = {"do": "delete", "name": "p:1"}


def keeping():
    def job(env):
        steps = env.from_collection([]).uid("steps").key_by(lambda _: 1).uid("key")
        steps.process_fn(Keeps()).uid("keeps").collect("out")

    return Harness(job, scripted=["steps"])


def a_snapshot_holds_the_state_of_its_epoch(_tmp_path):
    with keeping() as harness:
        harness.push([PUT])
        harness.run_epoch()
        snapshot = harness.snapshot()
        harness.push([DELETE])
        harness.run_epoch()
        assert snapshot.epoch == 1
        assert any("keeps" in path for path in snapshot.files)


def what_was_deleted_is_restored(_tmp_path):
    with keeping() as harness:
        harness.push([PUT, PUT_Q])
        harness.run_epoch()
        snapshot = harness.snapshot()
        harness.push([DELETE])
        harness.run_epoch()
        assert harness.value("keeps", key=1, name="entries") == {"q": 2}
        harness.restore(snapshot)
        assert harness.value("keeps", key=1, name="entries") == {"p:1": 1, "q": 2}


def the_watermark_never_goes_back(tmp_path):
    text = pipeline(lines(tmp_path), lateness="10s", sink='kind = "console"')
    with Harness(built(text), scripted=["source"]) as harness:
        seen = []
        for at in (50_000, 20_000, 60_000):
            harness.push([{"word": "a", "event_time": at}])
            harness.run_epoch()
            seen.append(harness.watermark("window"))
    assert seen == [50_000 - 10_001, 50_000 - 10_001, 60_000 - 10_001]


def the_file_sink_writes_two_lines(tmp_path):
    assert len(written(tmp_path)) == 2


def the_end_of_a_file_lets_its_last_window_fire(tmp_path):
    assert rows(tmp_path, "key", "count", events=EVENTS[:1]) == [("a", 1)]


def figures_are_told_as_text(tmp_path):
    shell = Shell(tmp_path)
    shell.put_job("words", record_count=7)
    with (
        serving_metrics(shell.home, port=0, clock=SystemClock()) as url,
        urllib.request.urlopen(url) as answer,
    ):
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert "pulse_dropped_records_total" in answer.read().decode()


def stages_stand_in_the_order_of_the_file(tmp_path):
    made = graph(pipeline(tmp_path / "in.jsonl"))
    ways = {edge.source_id: edge.target_id for edge in made.edges}
    found = ["source"]
    while found[-1] in ways:
        found.append(ways[found[-1]])
    assert found == ["source", "time", "key", "window-combine", "window", "window-rows", "sink"]


def duration(text, ms):
    """Return the check of one way to write a duration."""

    def check(_tmp_path):
        assert duration_ms(text) == ms

    return check


def refused(before, after, *messages, text=GOOD):
    """Return the check of what is said of a pipeline that lacks something, or has it wrong."""

    def check(_tmp_path):
        told = problems(changed(before, after, text))
        assert len(told) == len(messages)
        assert all(any(message in one for one in told) for message in messages)

    return check


def accepted(text):
    """Return the check of a pipeline that has all it needs."""

    def check(_tmp_path):
        assert problems(text) == []

    return check


NO_BROKERS = 'bootstrap_servers = "b:9092"\ntopic = "t"\ngroup_id = "g"'
CASES = [
    (1, "tumbling windows of 60 s: 2 rows", a_tumbling_window_gives_two_rows),
    (2, "sessions with a gap of 30 s: 2 rows", a_session_gives_two_rows),
    (3, "windows of 60 s every 15 s: 9 rows", sliding_windows_give_nine_rows),
    (4, "file sink: 2 lines", the_file_sink_writes_two_lines),
    (5, "sum of x = 1, 2, 3: a 3, b 3", aggregated("sum", "x", "sum", ("a", 3), ("b", 3))),
    (6, "distinct users: a 1, b 1",
     aggregated("distinct", "user", "distinct_count", ("a", 1), ("b", 1))),
    (7, "CSV: a 2, b 1", csv_counts_as_lines_of_json_do),
    (8, "lateness of 30 s defers [0, 60) to 90 s",
     lateness_holds_a_window_back_until_the_watermark_is_past_its_end),
    (9, "average", aggregated("avg", "x", "avg", ("a", 1.5), ("b", 3.0))),
    (10, "distinct", aggregated("distinct", "word", "distinct_count", ("a", 1), ("b", 1))),
    (11, "state: put", kept(PUT, listed=[("p:1", 1)], entries={"p:1": 1})),
    (12, "state: get", kept(PUT, PUT_Q, listed=[("p:1", 1)], entries={"p:1": 1, "q": 2})),
    (13, "state: delete", kept(PUT, PUT_Q, DELETE, listed=[], entries={"q": 2})),
    (14, "state: entries of a prefix",
     kept(PUT_Q, {**PUT, "name": "p:2"}, PUT, listed=[("p:1", 1), ("p:2", 1)],
          entries={"p:1": 1, "p:2": 1, "q": 2})),
    (15, "state: snapshot", a_snapshot_holds_the_state_of_its_epoch),
    (16, "state: restore", what_was_deleted_is_restored),
    (17, "watermark clock", the_watermark_never_goes_back),
    (18, "3 rows of Parquet read back", three_rows_of_parquet_are_read_again),
    (19, "payload: JSON", payload(b'{"a": 1}', {"a": 1})),
    (20, "payload: text", payload(b"plain", {"bytes": "plain"})),
    (21, "payload: base64", payload(b"\xff\x00", {"bytes_b64": "/wA="})),
    (22, "time from a number", time_of(1_700_000_000_000)),
    (23, "time from RFC 3339", time_of("2023-11-14T23:13:20+01:00")),
    (24, "key format of stored offsets", offsets_of_kafka_are_kept_by_topic_and_partition),
    (25, "watermark at the end of a file", the_end_of_a_file_lets_its_last_window_fire),
    (26, "/metrics answers text", figures_are_told_as_text),
    (27, "the executor wires stages", stages_stand_in_the_order_of_the_file),
    (28, "duration: 250ms", duration("250ms", 250)),
    (29, "duration: 10s", duration("10s", 10_000)),
    (30, "duration: 5m", duration("5m", 300_000)),
    (31, "duration: 1h", duration("1h", 3_600_000)),
    (32, "duration: a number alone is seconds", duration("42", 42_000)),
    (33, "validation: a file pipeline", accepted(GOOD)),
    (34, "validation: file without path",
     refused('path = "in.jsonl"\n', "", "source.path must be set for file source")),
    (35, "validation: unknown format",
     refused('format = "jsonl"', 'format = "xml"', "unsupported source.format: xml")),
    (36, "validation: a Kafka pipeline", accepted(KAFKA)),
    (37, "validation: Kafka without brokers, topic and group",
     refused(NO_BROKERS, "", "source.bootstrap_servers must be set for kafka source",
             "source.topic must be set for kafka source",
             "source.group_id must be set for kafka source", text=KAFKA)),
    (38, "validation: sum without a field",
     refused('agg = "count"', 'agg = "sum"',
             "ops.agg_field must be set when ops.agg is sum|avg|distinct")),
]  # fmt: skip


@pytest.mark.parametrize(
    "check", [pytest.param(check, id=f"{number}: {name}") for number, name, check in CASES]
)
def test_each_case_gives_what_it_gave_or_should_have_given(check, tmp_path):
    check(tmp_path)


def test_no_case_is_left_out():
    assert [number for number, _, _ in CASES] == list(range(1, 39))
